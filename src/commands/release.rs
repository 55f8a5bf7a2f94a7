//! `redlock release`: gives a lease up, or ends another's.

use super::{DEFAULT_TTL, block_on, held_by_other, lock, settings, talk};
use crate::cli::{Common, Format, ReleaseArgs};
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::{Ended, Given, Lock};
use crate::output;
use std::time::Duration;

pub(crate) fn run(args: &ReleaseArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    let (name, token) = settings.name_and_token(args.named.name(), args.token.as_deref())?;
    let lock = lock(&settings, &name, DEFAULT_TTL)?;
    if args.revoke || args.force {
        return end(lock, &token.unwrap_or_default(), args.force, common);
    }
    let token = token.ok_or_else(|| {
        Error::Usage("which lease? give its --token; to end another holder's, use --revoke or --force".to_owned())
    })?;
    give_up(lock, &token, common)
}

fn give_up(mut lock: Lock, token: &str, common: &Common) -> anyhow::Result<Exit> {
    let given = block_on(lock.release_token(token))?;
    let name = &lock.name;
    let said = match &given {
        Given::Released => format!("released {name:?}"),
        Given::StillHeld(1) => format!("{name:?} is still held: 1 hold is left"),
        Given::StillHeld(left) => format!("{name:?} is still held: {left} holds are left"),
        Given::HeldByOther(held) => return Err(held_by_other(name, token, held, "release").into()),
        _ => {
            let text = format!("{name:?} is not held: it was released before, or its lease ran out");
            return Err(Error::NotHeld(text).into());
        }
    };
    match common.format {
        Format::Json => output::given_json(name, &given)?,
        _ if common.quiet => {}
        _ => talk(&said),
    }
    Ok(Exit::Done)
}

fn end(mut lock: Lock, token_prefix: &str, force: bool, common: &Common) -> anyhow::Result<Exit> {
    let ended = block_on(lock.end_lease(token_prefix, force))?;
    let name = &lock.name;
    if let Ended::Released { missed, .. } = &ended
        && !missed.is_empty()
    {
        talk(&format!("{name:?} may still be held on nodes that missed this: {}; run it again", missed.join(", ")));
    }
    Err(match &ended {
        Ended::Revoked(_) | Ended::Released { .. } => {
            match common.format {
                Format::Json => output::ended_json(name, &ended)?,
                _ if common.quiet => {}
                _ => output::ended(name, &ended)?,
            }
            return Ok(Exit::Done);
        }
        Ended::NotHeld => Error::NotHeld(format!("{name:?} is not held")),
        Ended::HeldByOther(held) => {
            let situation = held.situation(Duration::ZERO);
            let text = format!("the holder of {name:?} has changed: it {situation}; look at redlock status again");
            Error::HeldByOther(text, Box::new(held.clone()))
        }
        Ended::Foreign(held) => Error::CannotEnd(Box::new(held.clone())),
    }
    .into())
}
