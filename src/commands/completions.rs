//! `redlock completions`: the scripts in completions/, which are made from the definition of the command line by a test.

use crate::cli::Shell;
use crate::exit::Exit;
use crate::output;

pub(crate) fn run(shell: Shell) -> anyhow::Result<Exit> {
    let script = match shell {
        Shell::Bash => include_str!("../../completions/redlock.bash"),
        Shell::Zsh => include_str!("../../completions/_redlock"),
        Shell::Fish => include_str!("../../completions/redlock.fish"),
        Shell::Elvish => include_str!("../../completions/redlock.elv"),
        Shell::Powershell => include_str!("../../completions/_redlock.ps1"),
    };
    output::text(script)?;
    Ok(Exit::Done)
}
