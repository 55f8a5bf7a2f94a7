//! `redlock extend`: makes a lease last longer.

use super::{DEFAULT_TTL, block_on, lock, name_and_token, settings, token_of};
use crate::cli::{Common, ExtendArgs, Format};
use crate::exit::Exit;
use crate::output;
use crate::text::human;

pub(crate) fn run(args: &ExtendArgs, common: &Common) -> anyhow::Result<Exit> {
    let settings = settings(common)?;
    let (name, token) = name_and_token(args.lock.name(), args.token.as_deref(), settings.enclosing.as_ref())?;
    let mut lock = lock(&settings, &name, args.ttl.unwrap_or(DEFAULT_TTL))?;
    let extension = block_on(async {
        let token = token_of(token, &mut lock, &settings.ancestors, "missing --token, which acquire printed").await?;
        lock.extend(&token, args.ttl).await
    })?;
    match common.format {
        Format::Json => output::success(&name, "extended", Some(extension.holds), Some(extension.validity))?,
        _ if common.quiet => {}
        _ => output::say(&format!("extended {name:?}, valid for {}", human(extension.validity))),
    }
    Ok(Exit::DONE)
}
