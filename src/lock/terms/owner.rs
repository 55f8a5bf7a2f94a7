//! The owner of a lease, a run, or a position in line: host, process, user and label.

use crate::lock::wire::fields::Args;
use crate::sys;
use crate::text::safe;
use serde::{Deserialize, Serialize};

/// A field is none if the fact is not known. No field has the job's arguments, which may hold secrets.
///
/// A fact is about the process `pid`, which need not be redlock. To add a fact, change these places. [`Owner::local`]
/// gives it a value, because a script fails if an argument is missing; an unknown fact is an empty text.
/// [`Owner::add_to`] sends it, grant.lua writes it (for recreate.lua, too), and `Holder::read`, `Waiter::read` and
/// `Run::read` read it. `Holder::agreed` takes it from the newest record. [`Owner::who`], error.rs and output/ show it.
///
/// A fact that changes with renewals needs more. `Lease::args` sends it (each hold has its own `Lease`). extend.lua
/// writes it by pcall, because a lack of memory must not cost a lease, and uses only commands that users already allow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) host: Option<String>,
    pub(crate) pid: Option<u64>,
    pub(crate) user: Option<String>,
    pub(crate) label: Option<String>,
}

impl Owner {
    pub(crate) fn local(pid: u32, label: String) -> Owner {
        Owner {
            host: Some(sys::host::name()),
            pid: Some(pid.into()),
            user: Some(sys::host::user()),
            label: Some(label),
        }
    }

    pub(in crate::lock) fn add_to(&self, args: Args) -> Args {
        let Owner { host, pid, user, label } = self;
        args.with_some("host", host.as_ref())
            .with_some("pid", *pid)
            .with_some("user", user.as_ref())
            .with_some("label", label.as_ref())
    }

    /// `deploy@web-3, pid 4121 (nightly)`; none if neither the user nor the host is known.
    pub(crate) fn who(&self, with_pid: bool) -> Option<String> {
        self.user.as_ref().or(self.host.as_ref())?;
        let part = |part: &Option<String>| safe(part.as_deref().unwrap_or_default());
        let pid = self.pid.filter(|_| with_pid).map_or_else(String::new, |pid| format!(", pid {pid}"));
        Some(format!("{}@{}{pid}{}", part(&self.user), part(&self.host), self.label_in_brackets()))
    }

    /// `web-3 (nightly)`, for a column.
    pub(crate) fn at(&self) -> String {
        safe(self.host.as_deref().unwrap_or_default()) + &self.label_in_brackets()
    }

    /// ` (nightly)`; nothing without a label.
    pub(crate) fn label_in_brackets(&self) -> String {
        self.label.as_ref().map_or_else(String::new, |label| format!(" ({})", safe(label)))
    }
}

/// The name under which this process revokes a lease, for the holder and the log: `deploy@web-3`.
pub(in crate::lock) fn user_at_host() -> String {
    format!("{}@{}", sys::host::user(), sys::host::name())
}
