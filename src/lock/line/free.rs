//! `redlock wait`: waits until a lock is free and no waiter is in line, and takes nothing.

use crate::error::{Error, NamedObstacle};
use crate::lock::line::queue::{AFTER_EXPIRY, WaitReport};
use crate::lock::view::status::{State, View};
use crate::lock::wire::answer::Answer;
use crate::lock::wire::fields::Args;
use crate::lock::{Lock, scripts};
use crate::redis::Answers;
use crate::sys::clock::Boot;
use crate::sys::wait::sleep_until;
use std::time::Duration;

/// The pause between two looks. (A release calls only waiters in line, and `redlock wait` is not in line.)
const LOOKS: Duration = Duration::from_millis(500);

impl Lock {
    /// # Errors
    /// [`Error::Held`] if the lock is not free after `timeout`. [`Error::NoQuorum`] if too few nodes answer, and
    /// waiting cannot help or has not helped.
    pub(crate) async fn wait_until_free(
        &mut self,
        timeout: Duration,
        notify: &mut dyn FnMut(&WaitReport),
    ) -> Result<(), Error> {
        let start = Boot::now();
        let end = start + timeout;
        // The error of the last look, if it failed. Then the next look ends with the wait at the latest.
        let mut unanswered = None;
        loop {
            let status = match unanswered.take() {
                None => self.inspect(View::MESSAGE, None).await?,
                Some(error) => tokio::select! {
                    biased;
                    status = self.inspect(View::MESSAGE, None) => status?,
                    () = sleep_until(end) => return Err(error),
                },
            };
            if status.state == State::Free && status.waiting.unwrap_or(0) == 0 {
                return Ok(());
            }
            if status.state == State::Free {
                // The lock is free and promised to no waiter, but waiters are in line. The first of them are dead, or
                // do not know yet that the lock is free. UNDO without arguments calls the first live waiter.
                let call = self.keys.call(&scripts::UNDO, Args::default());
                let _: Answers<Answer> =
                    self.locks.nodes.ask(&call, self.locks.nodes.deadline(), |_| Boot::NEVER).await;
            }
            if end.passed() {
                return Err(match status.unanswered {
                    Some(error) => error,
                    None => Error::Held(Box::new(NamedObstacle { waited: Some(start.elapsed()), ..status.held() })),
                });
            }
            notify(&WaitReport {
                held: status.held(),
                number: None,
                rank: None,
                trouble: status.unanswered.as_ref().map(Error::trouble),
                news: None,
            });
            let look = status.lease().map_or(LOOKS, |left| LOOKS.min(left + AFTER_EXPIRY));
            unanswered = status.unanswered;
            sleep_until((Boot::now() + look).min(end)).await;
        }
    }
}
