//! Who holds a lease: what is written into Redis about its owner.

use crate::sys;

/// The owner of a lease. Never the job's arguments, which may hold secrets.
#[derive(Clone, Debug)]
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

    /// As the scripts expect it.
    pub(super) fn fields(&self) -> [&str; 4] {
        [&self.host, &self.pid, &self.user, &self.label]
    }
}

/// The signature under a revocation: `deploy@web-3`.
pub(super) fn signature() -> String {
    format!("{}@{}", sys::host::user(), sys::host::name())
}
