//! `redlock release`: gives a lease up, or ends somebody else's.

use super::extend::{is_beginning, whose};
use super::talk;
use crate::cli::Format;
use crate::error::{Error, Held};
use crate::exit::Exit;
use crate::lock::{Ended, Freed, Locker};
use crate::output;
use crate::plan::{How, Release, default_ttl};

pub(crate) fn run(plan: Release) -> anyhow::Result<Exit> {
    let mut locker = Locker::new(&plan.settings, &plan.name, default_ttl())?;
    match &plan.how {
        How::Token(token) => give_up(&plan, &mut locker, token),
        How::Revoke(prefix) => end(&plan, &mut locker, prefix.as_deref().unwrap_or_default(), false),
        How::Force(prefix) => end(&plan, &mut locker, prefix.as_deref().unwrap_or_default(), true),
    }
}

fn give_up(plan: &Release, locker: &mut Locker, token: &str) -> anyhow::Result<Exit> {
    let name = &plan.name;
    let ended = locker.release_token(token)?;
    let lost = "work may have run unprotected; a longer --ttl covers it";
    let said = match &ended {
        Ended::Released => format!("released {name:?}"),
        Ended::StillHeld(1) => format!("{name:?} is still held, 1 hold is left"),
        Ended::StillHeld(left) => format!("{name:?} is still held, {left} holds are left"),
        Ended::HeldByOther(held) if is_beginning(token, held) => {
            let text = format!(
                "{name:?} is held with a token that only begins so: this takes all of it, --revoke and --force the beginning"
            );
            return Err(Error::HeldByOther(text, held.clone()).into());
        }
        Ended::HeldByOther(held) => {
            let text = format!("the lease on {name:?} had ended, and {} now has it: {lost}", whose(held));
            return Err(Error::HeldByOther(text, held.clone()).into());
        }
        _ => return Err(Error::NotHeld(format!("the lease on {name:?} had ended: {lost}")).into()),
    };
    match plan.manner.format {
        Format::Json => output::ended_json(name, &ended)?,
        _ if plan.manner.quiet => {}
        _ => talk(&said),
    }
    Ok(Exit::Done)
}

fn end(plan: &Release, locker: &mut Locker, token_prefix: &str, force: bool) -> anyhow::Result<Exit> {
    let name = &plan.name;
    let freed = locker.end_lease(token_prefix, force)?;
    Err(match freed {
        Freed::Revoked(_) | Freed::Released(_) => {
            match plan.manner.format {
                Format::Json => output::freed_json(name, &freed)?,
                _ => output::freed(name, &freed)?,
            }
            return Ok(Exit::Done);
        }
        Freed::NotHeld => Error::NotHeld(format!("nobody holds {name:?}")),
        Freed::HeldByOther(held) => {
            let text = format!("the holder of {name:?} has changed: {} has it now; look at status again", whose(&held));
            Error::HeldByOther(text, Box::new(held))
        }
        Freed::Foreign(held) => Error::Held(Box::new(Held { unwanted: true, ..held })),
    }
    .into())
}
