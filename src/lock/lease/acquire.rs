//! Acquires a lock: re-enters a lease, else tries to take the lock, else waits in line.

use crate::error::Error;
use crate::lock::lease::Lease;
use crate::lock::lease::attempt::{Attempt, Denial};
use crate::lock::lease::traces::{LONG_UNDO_TIMEOUT, Traces, UNDO_TIMEOUT};
use crate::lock::line::queue::{LAST_LOOK, WaitReport};
use crate::lock::{Lock, Newest, Request, View};
use crate::sys::clock::Boot;
use crate::sys::random::full_jitter;
use crate::sys::wait::{sleep_until, within};
use std::time::Duration;

/// If rivals have each got some of the nodes, each makes a random pause before its next try. These are the upper
/// bounds, in ms, of the first pause, the second, and so on. If the call's tries have been slow, the bound is three
/// times the time since the call began, but at most [`RIVALRY_AT_MOST`].
const RIVALRY_MS: [u64; 6] = [20, 40, 80, 160, 320, 640];
const RIVALRY_AT_MOST: Duration = Duration::from_secs(1);

impl Lock {
    /// Re-enters a lease if the request asks for that, else takes the lock, else waits in line for as long as the
    /// request says. `notify` gets reports while the call waits. Once `interrupted` returns an error, the call ends
    /// with it. A failed call leaves neither a lease nor a position in line on a node that answers.
    ///
    /// # Errors
    /// The error of `interrupted`; [`Error::Held`], [`Error::OtherClaim`], [`Error::NotNeeded`], [`Error::Superseded`],
    /// [`Error::GrantedTooLate`] and [`Error::NoQuorum`]; [`Error::NotOurs`] when the lease to re-enter has ended;
    /// [`Error::Usage`] when two addresses lead to the same node.
    pub(crate) async fn acquire(
        &mut self,
        request: &Request,
        notify: &mut dyn FnMut(&WaitReport),
        interrupted: impl Future<Output = Error>,
    ) -> Result<Lease, Error> {
        let mut traces = Traces::new(self.locks.nodes.len(), request.tries().is_some());
        let (acquired, patience) = tokio::select! {
            biased;
            error = interrupted => (Err(error), UNDO_TIMEOUT),
            acquired = self.obtain(&mut traces, request, notify) => (acquired, self.node_timeout().clamp(UNDO_TIMEOUT, LONG_UNDO_TIMEOUT)),
        };
        if acquired.is_err() {
            self.withdraw(&mut traces, Boot::now() + patience).await;
        }
        match acquired {
            Err(Error::Superseded { name, by }) => Err(Error::Superseded { name, by: self.fate_of(by).await }),
            acquired => acquired,
        }
    }

    /// The same register, and what has become of its caller, if the nodes say so soon.
    async fn fate_of(&mut self, by: Box<Newest>) -> Box<Newest> {
        let known = within(Boot::now() + LONG_UNDO_TIMEOUT, self.inspect(View::NEWEST, None)).await;
        let known = known.and_then(Result::ok).and_then(|status| status.history.newest);
        known.filter(|known| known.number == by.number).map_or(by, Box::new)
    }

    /// The caller may drop the future at any await. After a drop or an error, `traces` lists what must be undone.
    async fn obtain(
        &mut self,
        traces: &mut Traces,
        request: &Request,
        notify: &mut dyn FnMut(&WaitReport),
    ) -> Result<Lease, Error> {
        let start = Boot::now();
        if let Some(lease) = self.reenter(traces, request).await? {
            return Ok(lease);
        }
        let (denial, trouble) = match self.compete(traces, request, start).await {
            Attempt::Granted(lease) => {
                self.step_out(traces).await;
                return Ok(*lease);
            }
            // A call that is part of the holder's job would wait in line for itself.
            Attempt::Denied(denial) if denial.by.is_held_by(&request.ancestors) => {
                return Err(self.held_error(&denial.by, request, None));
            }
            Attempt::Denied(denial) if request.wait.is_zero() => {
                return Err(self.gives_up(&denial.by, request, None, true));
            }
            Attempt::Failure(error) if request.wait.is_zero() || !error.can_heal() => return Err(error),
            Attempt::Denied(denial) => (*denial, None),
            Attempt::Failure(error) => (Denial::default(), Some(error)),
        };
        self.wait_in_line(traces, request, start, denial, trouble, notify).await
    }

    /// Tries to take the lock. Repeats the try for a while if rivals have each got some of the nodes.
    async fn compete(&mut self, traces: &mut Traces, request: &Request, start: Boot) -> Attempt {
        // A call that does not wait needs no deadline here: the number of its tries is limited.
        let over = if request.wait.is_zero() { Boot::NEVER } else { start + request.wait };
        let mut rivalry = RIVALRY_MS.into_iter().map(Duration::from_millis);
        loop {
            // Even the last try, at the end of the wait, has time for an answer. Otherwise the message would be "timed
            // out", and would not say who holds the lock.
            let attempt = self.attempt(traces, request, None, over.max(Boot::now() + LAST_LOOK)).await;
            let pause = match &attempt {
                Attempt::Denied(denial) if denial.split && !over.passed() => match rivalry.next() {
                    Some(base) => full_jitter(base.max(start.elapsed() * 3).min(RIVALRY_AT_MOST)),
                    None => return attempt,
                },
                _ => return attempt,
            };
            self.withdraw(traces, Boot::now() + UNDO_TIMEOUT).await;
            sleep_until((Boot::now() + pause).min(over)).await;
        }
    }
}
