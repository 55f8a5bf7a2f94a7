//! `redlock extend`: makes a lease last longer.

use super::{DEFAULT_TTL, block_on, held_by_other, lock, settings, talk};
use crate::cli::{Common, ExtendArgs, Format};
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::Given;
use crate::output;
use crate::text::{escaped, human};

pub(crate) fn run(args: &ExtendArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    let (name, token) = settings.name_and_token(args.named.name(), args.token.as_deref())?;
    let token = token.ok_or_else(|| Error::Usage("which lease? give its --token".to_owned()))?;
    let mut lock = lock(&settings, &name, args.ttl.unwrap_or(DEFAULT_TTL))?;
    let given = block_on(lock.extend_token(&token, args.ttl))?;
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
            "the lease on {name:?} was revoked by {}: stop the work that it protects, then release it",
            escaped(&by, 80)
        )),
        Given::HeldByOther(held) => held_by_other(&name, &token, &held, "extend"),
        _ => Error::NotHeld(format!(
            "{name:?} is not held: it was released before, or its lease ran out; acquire it again"
        )),
    }
    .into())
}
