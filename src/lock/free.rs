//! Waiting until a lock is free, without a place in line.

use super::ears::Ears;
use super::inspect::State;
use super::node::{Event, Order};
use super::queue::{AFTER_EXPIRY, FAILURE_AT_MOST};
use super::{Locker, Wait, Waiting, scripts};
use crate::error::{Error, Held};
use crate::sys::clock::Boot;
use std::time::Duration;

/// How often `redlock wait` looks by itself.
const WAIT_LOOKS: Duration = Duration::from_millis(500);

impl Locker {
    /// The lock is free, and promised to nobody, though there is a line: its first are dead, or do not know yet. Calls
    /// the first one that lives.
    fn call_the_first(&mut self) {
        let call = self.script(&scripts::LEAVE, &["", ""]);
        let deadline = self.deadline();
        let all = vec![true; self.nodes.len()];
        self.ask(&call, all, deadline, Order::InTurn, |_| true);
    }

    /// Waits until nobody has the lock, nor wants it, and takes nothing.
    ///
    /// # Errors
    /// [`Error::Held`] when `timeout` is over, [`Error::Unavailable`] when the nodes cannot be asked at the beginning,
    /// [`Error::Interrupted`].
    pub(crate) fn wait_until_free(&mut self, timeout: Wait, on_wait: &mut dyn FnMut(&Waiting)) -> Result<(), Error> {
        let waited = self.watch_until_free(timeout, on_wait);
        self.stop_listening();
        waited
    }

    fn watch_until_free(&mut self, timeout: Wait, on_wait: &mut dyn FnMut(&Waiting)) -> Result<(), Error> {
        let start = Boot::now();
        let end = timeout.end(start);
        let mut ears = Ears::new(self.keys.free(), self.nodes.len());
        let mut reached = false;
        loop {
            let status = self.inspect()?;
            match status.state {
                State::Free if status.waiting.unwrap_or(0) == 0 => return Ok(()),
                State::Free => {
                    reached = true;
                    self.call_the_first();
                }
                State::Unknown if !reached => return Err(Error::Unavailable(status.trouble())),
                State::Unknown => {}
                _ => reached = true,
            }
            let told = status.told();
            if end.passed() {
                let waited = Some(Boot::now().since(start));
                let held = told.held;
                return Err(Error::Held(Box::new(Held { waited, ..held })));
            }
            on_wait(&told);
            ears.open(self);
            let look = match told.held.lease {
                Some(left) => WAIT_LOOKS.min(left + AFTER_EXPIRY),
                None => WAIT_LOOKS,
            };
            let look = (Boot::now() + look).min(end);
            while let Some(event) = self.next_event(look) {
                match event {
                    Event::Interrupt(signal) => return Err(Error::Interrupted(signal)),
                    Event::Heard { .. } => break,
                    Event::Listening { node, listener } if ears.is(node, listener) => break,
                    Event::Deaf { node, listener, .. } if ears.is(node, listener) => ears.close(node, FAILURE_AT_MOST),
                    _ => {}
                }
            }
        }
    }
}
