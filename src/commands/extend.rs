//! `redlock extend`: makes a lease last longer.

use super::talk;
use crate::cli::Format;
use crate::error::{Error, Held, human};
use crate::exit::Exit;
use crate::lock::{Ended, Locker, escaped};
use crate::output;
use crate::plan::{Extend, default_ttl};

pub(crate) fn run(plan: Extend) -> anyhow::Result<Exit> {
    let mut locker = Locker::new(&plan.settings, &plan.name, plan.ttl.unwrap_or(default_ttl()))?;
    let ended = locker.extend_token(&plan.token, plan.ttl)?;
    let name = &plan.name;
    let lost = "it is not brought back, and what it protects may be in use elsewhere: acquire it anew";
    Err(match ended {
        Ended::Extended { validity, .. } => {
            match plan.manner.format {
                Format::Json => output::ended_json(name, &ended)?,
                _ if plan.manner.quiet => {}
                _ => talk(&format!("extended {name:?}, {} left for sure", human(validity))),
            }
            return Ok(Exit::Done);
        }
        Ended::Revoked(by) => Error::Revoked(format!(
            "the lease on {name:?} was revoked by {}: stop what it protects, then release it",
            escaped(&by, 80)
        )),
        Ended::HeldByOther(held) if is_beginning(&plan.token, &held) => {
            let text = format!("{name:?} is held with a token that only begins so: extend takes all of it");
            Error::HeldByOther(text, held)
        }
        Ended::HeldByOther(held) => {
            let text = format!("the lease on {name:?} has ended, and {} now has it: {lost}", whose(&held));
            Error::HeldByOther(text, held)
        }
        _ => Error::NotHeld(format!("the lease on {name:?} has ended: {lost}")),
    }
    .into())
}

/// Whether this is what `status` shows of the holder's token, rather than another one.
pub(super) fn is_beginning(token: &str, held: &Held) -> bool {
    let shown = token.trim_end_matches('…');
    let holder = held.holder.as_ref();
    shown.len() >= 4 && holder.is_some_and(|holder| holder.token.starts_with(shown))
}

/// Who has a lock that is not ours.
pub(super) fn whose(held: &Held) -> String {
    held.holder.as_ref().map_or_else(|| "something else".to_owned(), ToString::to_string)
}
