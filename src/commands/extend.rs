//! `redlock extend`: makes a lease last longer.

use super::{DEFAULT_TTL, block_on, lock, settings, talk};
use crate::cli::{Common, ExtendArgs, Format};
use crate::error::{Error, Held};
use crate::exit::Exit;
use crate::lock::Given;
use crate::output;
use crate::text::{escaped, human};

pub(crate) fn run(args: &ExtendArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    let (name, token) = settings.name_and_token(args.named.name(), args.token.as_deref())?;
    let token = token.ok_or_else(|| Error::Usage("which lease? --token is missing".to_owned()))?;
    let mut lock = lock(&settings, &name, args.ttl.unwrap_or(DEFAULT_TTL))?;
    let given = block_on(lock.extend_token(&token, args.ttl))?;
    let lost = "it is not brought back, and what it protects may be in use elsewhere: acquire it anew";
    Err(match given {
        Given::Extended { validity, .. } => {
            match common.format {
                Format::Json => output::given_json(&name, &given)?,
                _ if common.quiet => {}
                _ => talk(&format!("extended {name:?}, valid for {}", human(validity))),
            }
            return Ok(Exit::Done);
        }
        Given::Revoked(by) => Error::Revoked(format!(
            "the lease on {name:?} was revoked by {}: stop what it protects, then release it",
            escaped(&by, 80)
        )),
        Given::HeldByOther(held) if is_beginning(&token, &held) => {
            let text = format!("that is only the start of the token that holds {name:?}; extend needs the whole token");
            Error::HeldByOther(text, held)
        }
        Given::HeldByOther(held) => {
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
    shown.len() >= 4 && held.by.holder().is_some_and(|holder| holder.token.starts_with(shown))
}

/// Who has a lock that is not ours.
pub(super) fn whose(held: &Held) -> String {
    held.by.holder().map_or_else(|| "something else".to_owned(), ToString::to_string)
}
