//! `redlock completions`: the scripts in completions/, which are made from the definition of the command line by a
//! test.

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
