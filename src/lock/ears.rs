//! Our ears while we wait: one subscription on each node, opened anew where it ends.

use super::Locker;
use crate::sys::clock::Boot;
use std::time::Duration;

/// Our ears: one subscription on each node.
pub(super) struct Ears {
    channel: String,
    /// The number of each node's listener, if it has one.
    pub(super) listeners: Vec<Option<u64>>,
    pub(super) hearing: Vec<bool>,
    /// When a listener that ended may be replaced.
    again: Vec<Boot>,
    next: u64,
}

impl Ears {
    pub(super) fn new(channel: String, nodes: usize) -> Ears {
        Ears {
            channel,
            listeners: vec![None; nodes],
            hearing: vec![false; nodes],
            again: vec![Boot::at(Duration::ZERO); nodes],
            next: 1,
        }
    }

    /// Starts to listen wherever nobody does.
    pub(super) fn open(&mut self, locker: &mut Locker) {
        let (deadline, heed) = (locker.deadline(), locker.heed());
        for (at, node) in locker.nodes.iter_mut().enumerate() {
            if self.listeners[at].is_none()
                && self.again[at].passed()
                && node.listen(self.next, &self.channel, deadline, heed)
            {
                self.listeners[at] = Some(self.next);
                self.next += 1;
            }
        }
    }

    /// Listens anew on this node, after a pause.
    pub(super) fn close(&mut self, node: usize, pause: Duration) {
        self.listeners[node] = None;
        self.hearing[node] = false;
        self.again[node] = Boot::now() + pause;
    }

    /// On how many nodes we would hear a call.
    pub(super) fn hear(&self) -> usize {
        self.hearing.iter().filter(|&&hearing| hearing).count()
    }

    pub(super) fn is(&self, node: usize, listener: u64) -> bool {
        self.listeners[node] == Some(listener)
    }

    /// When something is to be done about a deaf node.
    pub(super) fn due(&self) -> Boot {
        let deaf = self.listeners.iter().zip(&self.again).filter(|(listener, _)| listener.is_none());
        deaf.map(|(_, &again)| again).min().unwrap_or(Boot::NEVER)
    }
}
