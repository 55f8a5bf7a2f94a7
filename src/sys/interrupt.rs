//! Signals for a command that waits and has no job to look after.

use super::inherited::is_ignored;
use super::signals::Signals;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use std::thread;

/// What asks a waiting program to end.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];

/// The signals that ask us to end, kept back until somebody wants to be told of them.
#[derive(Debug)]
pub(crate) struct Ending(Option<SigSet>);

impl Ending {
    /// Keeps them back in this thread and in those that it starts: to be called before any other thread is started, since
    /// one that has them open would be the one that the kernel gives them to, and that ends us on the spot. One that was
    /// ignored when we were started stays so.
    pub(crate) fn keep_back() -> Ending {
        let set: SigSet = ENDING.into_iter().filter(|&signal| !is_ignored(signal as i32)).collect();
        Ending(sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None).is_ok().then_some(set))
    }

    /// A descriptor to poll for them, and to read them from.
    pub(crate) fn open(&self) -> Option<Signals> {
        Signals::open(self.0.as_ref()?).ok()
    }

    /// Calls `told` with the number of each that comes or has come.
    pub(crate) fn tell(self, told: impl Fn(i32) + Send + 'static) {
        let Some(set) = self.0 else { return };
        let started = thread::Builder::new().spawn(move || {
            while let Ok(signal) = set.wait() {
                told(signal as i32);
            }
        });
        if started.is_err() {
            // Nobody would be told: then they end us on the spot.
            let _ = sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&set), None);
        }
    }
}
