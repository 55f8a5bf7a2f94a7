//! `redlock forget`: deletes the history of a free lock, and its number of `--newest`.

use super::{DEFAULT_TTL, block_on, lock, settings};
use crate::cli::{Common, ForgetArgs, Format};
use crate::error::Error;
use crate::exit::Exit;
use crate::output::{self, say};

pub(crate) fn run(args: &ForgetArgs, common: &Common) -> anyhow::Result<Exit> {
    let name = args.lock.name().ok_or_else(|| Error::Usage("missing lock name: redlock forget NAME".to_owned()))?;
    let mut lock = lock(&settings(common)?, name, DEFAULT_TTL)?;
    let (had, missed) = block_on(lock.forget())?;
    if !missed.is_empty() {
        say(&format!("{name:?}: some nodes may bring it back ({}); run the command again", missed.join(", ")));
    }
    match common.format {
        Format::Json => output::success(name, "forgot", None, None)?,
        _ if common.quiet => {}
        _ if had => say(&format!("forgot {name:?}: its runs, its hosts, and what check expects of it")),
        _ => say(&format!("nothing is known of {name:?}")),
    }
    Ok(Exit::DONE)
}
