//! The one place where redlock's main thread waits while it supervises: for signals, for the
//! keeper, and for the thread that owns the lease.

use super::renewer::Event;
use crate::keeper::{Keeper, Report};
use crate::sys::clock::Boot;
use crate::sys::packets::Received;
use crate::sys::process::{Reaped, reap};
use crate::sys::signals::{Arrivals, Arrived};
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Something to act on.
#[derive(Debug)]
pub(super) enum News {
    Signal(Arrived),
    Keeper(Report),
    /// The keeper has ended without having ended the job.
    KeeperGone,
    Lease(Event),
}

/// Everything that may come, in the order in which it must be looked at.
#[derive(Debug)]
pub(super) struct Inbox {
    signals: Arc<Arrivals>,
    keeper: Arc<Keeper>,
    keeper_gone: bool,
    events: Receiver<Event>,
    bell: Arc<EventFd>,
    news: VecDeque<News>,
}

impl Inbox {
    /// `bell` is rung after something was put into `events`.
    pub(super) fn new(
        signals: Arc<Arrivals>,
        keeper: Arc<Keeper>,
        events: Receiver<Event>,
        bell: Arc<EventFd>,
    ) -> Inbox {
        Inbox { signals, keeper, keeper_gone: false, events, bell, news: VecDeque::new() }
    }

    /// The next piece of news; waits for it.
    pub(super) fn next(&mut self) -> News {
        loop {
            if let Some(news) = self.next_until(Boot::NEVER) {
                return news;
            }
        }
    }

    /// The next piece of news; none when there is none until then.
    pub(super) fn next_until(&mut self, until: Boot) -> Option<News> {
        loop {
            if let Some(news) = self.ready() {
                return Some(news);
            }
            if until.passed() {
                return None;
            }
            self.wait(until);
        }
    }

    /// The next piece of news, if there is one. Signals come first: one that was sent before the
    /// keeper reported something must not be seen after that report.
    pub(super) fn ready(&mut self) -> Option<News> {
        if let Some(arrived) = self.signal() {
            return Some(News::Signal(arrived));
        }
        if self.news.is_empty() {
            self.take_others();
        }
        self.news.pop_front()
    }

    /// The next signal, if one is pending.
    fn signal(&mut self) -> Option<Arrived> {
        loop {
            let arrived = self.signals.next()?;
            if arrived.signal != libc::SIGCHLD {
                return Some(arrived);
            }
            // The keeper, whose end the socket reports, or, as process 1, anybody's orphan.
            while let Reaped::One(..) = reap() {}
        }
    }

    /// What is known of the lease comes before what the keeper made of it.
    fn take_others(&mut self) {
        let from_keeper = self.take_reports();
        let _ = self.bell.read();
        self.news.extend(self.events.try_iter().map(News::Lease));
        self.news.extend(from_keeper);
    }

    fn take_reports(&mut self) -> Vec<News> {
        let mut reports = Vec::new();
        while !self.keeper_gone {
            match self.keeper.receive() {
                Received::Message(report) => reports.push(News::Keeper(report)),
                Received::Nothing => break,
                Received::Closed => {
                    self.keeper_gone = true;
                    reports.push(News::KeeperGone);
                }
            }
        }
        reports
    }

    /// Until there may be news, or for a while; what the machine sleeps does not count.
    fn wait(&self, until: Boot) {
        let mut ready = vec![
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.bell.as_fd(), PollFlags::POLLIN),
        ];
        if !self.keeper_gone {
            ready.push(PollFd::new(self.keeper.as_fd(), PollFlags::POLLIN));
        }
        // Whatever goes wrong here, looking again is all that can be done.
        let millis = i32::try_from(until.left().as_millis() + 1).unwrap_or(i32::MAX);
        let _ = poll(&mut ready, PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX));
    }
}
