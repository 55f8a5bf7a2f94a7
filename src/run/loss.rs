//! The reasons why a lease is lost.

use crate::sys::clock::Boot;
use std::borrow::Cow;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The nodes' answers prove the loss. The field says what became of the lease: "it was revoked by …", for example.
    Proof(String),
    Outage(Outage),
    /// The lease was not renewed for this long, and no try has failed: redlock was stopped, or the machine was asleep.
    Sleep(Duration),
    /// Another process released the lease by the token that `acquire --while-pid` printed.
    Release,
}

/// The failures to renew a lease since the last success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    pub(super) since: Boot,
    /// The nodes' faults in the first report of this outage; None before the report. (`--quiet` suppresses the report.)
    pub(super) first: Option<String>,
    /// The nodes' latest faults.
    pub(super) faults: String,
    /// The advice about them. None if a longer lease would have outlived them.
    pub(super) advice: Option<Cow<'static, str>>,
}
