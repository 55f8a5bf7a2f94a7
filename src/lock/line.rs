//! Going on with a line that one script has not passed on to its end: no script drops more than a few hundred dead waiters.

use super::answer::Answer;
use super::fields::Args;
use super::{Lock, scripts};
use crate::redis::Answers;
use crate::sys::clock::Boot;
use std::time::Duration;

/// More requests than the dead of any real line need.
const ROUNDS: usize = 200;
/// The time that a caller which is done with its own lock gives to the line. If it is too short, a live waiter's next look does
/// the rest.
pub(super) const LINE_TIMEOUT: Duration = Duration::from_millis(250);

/// True for each node that has more to do than one script may.
pub(super) fn unmoved(answers: &Answers<Answer>) -> Vec<bool> {
    let mut unmoved = vec![false; answers.nodes()];
    answers.iter().for_each(|(node, _, answer)| unmoved[node] = answer.more);
    unmoved
}

impl Lock {
    /// Moves the line on these nodes until a live waiter is first in it, or none is left, but not after `until`.
    pub(super) async fn move_line(&mut self, mut nodes: Vec<bool>, until: Boot) {
        let call = self.keys.call(&scripts::UNDO, Args::default());
        for _ in 0..ROUNDS {
            if until.passed() || !nodes.contains(&true) {
                return;
            }
            let answers: Answers<Answer> =
                self.locks.nodes.ask_apart(|node| nodes[node].then_some(&call), until, |_| Boot::NEVER).await;
            nodes = unmoved(&answers);
        }
    }
}
