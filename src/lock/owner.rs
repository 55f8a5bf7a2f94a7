//! The owner of a lease, as it is written into Redis.

use super::fields::Args;
use crate::sys;
use serde::{Deserialize, Serialize};

/// The owner of a lease. Never the job's arguments, which may hold secrets.
///
/// A further fact is sent by [`Owner::add_to`], written by grant.lua, read by `Holder::read`, agreed upon by `agreed`, and shown
/// by output.rs, error.rs and progress.rs. It is about the process `pid`, not about redlock, and empty if unknown, as a missing
/// argument fails the grant. One that changes with renewals is sent by `args` of `Lease` (each hold has its own); extend.lua
/// writes it by pcall, since a lack of memory must not cost a lease, and by no command that users have not allowed yet;
/// recreate.lua writes the whole record again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) host: String,
    pub(crate) pid: String,
    pub(crate) user: String,
    pub(crate) label: String,
}

impl Owner {
    /// A process of this user on this machine.
    pub(crate) fn local(pid: u32, label: String) -> Owner {
        Owner { host: sys::host::name(), pid: pid.to_string(), user: sys::host::user(), label }
    }

    /// Adds it as the scripts record it.
    pub(super) fn add_to(&self, args: Args) -> Args {
        let Owner { host, pid, user, label } = self;
        args.with("host", host).with("pid", pid).with("user", user).with("label", label)
    }
}

/// The signature under a revocation: `deploy@web-3`.
pub(super) fn signature() -> String {
    format!("{}@{}", sys::host::user(), sys::host::name())
}
