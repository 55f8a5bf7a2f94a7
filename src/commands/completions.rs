//! `redlock completions`: prints a script from completions/. `make man` makes these scripts from cli/mod.rs and
//! completions/src/.

use crate::cli::{CompletionsArgs, Shell};
use crate::exit::Exit;
use crate::output;

pub(crate) fn run(args: &CompletionsArgs) -> anyhow::Result<Exit> {
    output::show(match args.shell {
        Shell::Bash => include_str!("../../completions/redlock.bash"),
        Shell::Zsh => include_str!("../../completions/_redlock"),
        Shell::Fish => include_str!("../../completions/redlock.fish"),
    })?;
    Ok(Exit::DONE)
}
