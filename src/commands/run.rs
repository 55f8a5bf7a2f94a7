//! `redlock run`.

use crate::exit::Exit;
use crate::supervise::{self, Plan};

pub(crate) fn run(plan: Plan) -> anyhow::Result<Exit> {
    Ok(supervise::run(plan)?)
}
