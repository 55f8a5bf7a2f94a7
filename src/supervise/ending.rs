//! The end: what has become of the job and of the lease, and how redlock ends.

use super::Supervisor;
use super::inbox::News;
use super::renewer::{Event, Grant};
use crate::error::Error;
use crate::exit::Exit;
use crate::keeper::{Cause, Progress};
use crate::sys::clock::Boot;
use crate::sys::process::End;
use std::sync::Arc;
use std::time::Duration;

/// A job that has ended.
pub(super) struct Ended {
    /// None when the command could not be waited for.
    pub(super) status: Option<i32>,
    pub(super) cause: Cause,
    pub(super) at: Boot,
}

impl Ended {
    /// A job that redlock had to kill itself when its lease was lost.
    pub(super) fn lost() -> Ended {
        Ended { status: None, cause: Cause::Lost, at: Boot::now() }
    }
}

impl Supervisor {
    /// Releases the lease and says how we end.
    pub(super) fn conclude(&mut self, ended: &Ended, grant: &Grant) -> Exit {
        let validity = self.confirmed.map_or(ended.at, |confirmed| confirmed.valid_until);
        if self.loss.is_none() && ended.cause == Cause::Lost {
            self.loss = Some(self.unconfirmed());
        }
        if let Some(loss) = &self.loss {
            if !self.plan.continue_when_lost {
                self.talk.lost(loss, ended.at.since(validity));
                self.talk.spare(validity.since(ended.at));
            }
            // Some node may still have it: the job of a revoked lease has ended only now.
            self.give_back();
            return Exit::Lost;
        }
        let kept_until = self.plan.hold_at_least.map(|least| grant.acquired_at + least);
        let keep = kept_until.map(Boot::left).filter(|left| !left.is_zero());
        match self.release(keep) {
            Ok(()) => {}
            Err(error @ Error::NotHeld(_)) => {
                self.talk.lost_at_release(&error);
                return Exit::Lost;
            }
            Err(error) => self.talk.not_released(&error, validity.left()),
        }
        if self.keeper_gone {
            self.talk.keeper_gone();
            return Exit::Internal;
        }
        if let (Cause::TooLong, Some(limit)) = (ended.cause, self.plan.max_run) {
            self.talk.too_long(limit);
            return Exit::TooLong;
        }
        match ended.status.map(End::from_raw) {
            Some(End::Status(status)) => Exit::Command(status),
            Some(End::Signal(signal)) => Exit::Signal(signal),
            None => Exit::Internal,
        }
    }

    /// Gives up a lease whose end is told already, whatever comes of it.
    pub(super) fn give_back(&mut self) {
        let _ = self.release(None);
    }

    /// Gives the lease up, and waits until that is done or has failed.
    fn release(&mut self, keep: Option<Duration>) -> Result<(), Error> {
        // The keeper ends while the lease is being released, and not before that has been sent.
        let keeper = Arc::clone(&self.keeper);
        self.renewer.release(keep, Box::new(move || keeper.hang_up()));
        while !self.renewer_failed {
            match self.inbox.next() {
                News::Lease(Event::Released(released)) => return released.map(drop),
                News::Lease(Event::Failed) => self.renewer_failed = true,
                // The job is over; nothing that comes now can change how it ended.
                _ => {}
            }
        }
        Err(Error::Internal("the thread of the lease has failed".to_owned()))
    }

    /// Kills the job without the keeper.
    pub(super) fn kill_job(&self) {
        let mut killing = self.keeper.kill_job();
        loop {
            match killing.step() {
                Progress::Done => return,
                Progress::GoesOn(_) => std::thread::sleep(Duration::from_millis(1)),
                Progress::Unkillable(pids) => self.talk.unkillable(&pids),
                Progress::OutOfReach(pids) => return self.talk.out_of_reach(&pids),
            }
        }
    }
}
