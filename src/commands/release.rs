//! `redlock release`: releases a lease, or frees a lock of another.

use super::{DEFAULT_TTL, block_on, lock, name_and_token, settings, token_of};
use crate::cli::{Common, Format, ReleaseArgs};
use crate::exit::Exit;
use crate::lock::Lock;
use crate::output::{self, say};

const TOKENLESS: &str = "missing --token; without it, --force frees the lock now; redlock stop NAME ends another's job";

pub(crate) fn run(args: &ReleaseArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    let (name, token) = name_and_token(args.lock.name(), args.token.as_deref(), settings.enclosing.as_ref())?;
    let mut lock = lock(&settings, &name, DEFAULT_TTL)?;
    if args.force {
        return force(lock, &token.unwrap_or_default(), common);
    }
    let left = block_on(async {
        let token = token_of(token, &mut lock, &settings.ancestors, TOKENLESS).await?;
        lock.release_token(&token, args.status).await
    })?;
    let name = &lock.name;
    match (common.format, left) {
        (Format::Json, 0) => output::success(name, "released", Some(0), None)?,
        (Format::Json, left) => output::success(name, "still-held", Some(left), None)?,
        _ if common.quiet => {}
        (_, 0) => say(&format!("released {name:?}")),
        (_, 1) => say(&format!("{name:?} is still held: 1 hold is left")),
        (_, left) => say(&format!("{name:?} is still held: {left} holds are left")),
    }
    if let Some(why) = &lock.unwritten.log {
        say(&format!("the log of {name:?} could not be written: {why}"));
    }
    Ok(Exit::DONE)
}

fn force(mut lock: Lock, token_prefix: &str, common: &Common) -> anyhow::Result<Exit> {
    let revocation = block_on(lock.force(token_prefix))?;
    let name = &lock.name;
    if !revocation.missed.is_empty() {
        let missed = revocation.missed.join(", ");
        say(&format!("{name:?}: some nodes may still have a lease ({missed}); run the command again"));
    }
    let is_json = common.format == Format::Json;
    if is_json || !common.quiet {
        output::freed(name, &revocation, is_json)?;
    }
    Ok(Exit::DONE)
}
