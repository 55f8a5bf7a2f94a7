//! Deletes what Redis keeps of a free lock.

use crate::error::Error;
use crate::lock::votes::quorum::Verdict;
use crate::lock::wire::answer::{Answer, Outcome};
use crate::lock::wire::fields::Args;
use crate::lock::{Lock, scripts};

impl Lock {
    /// Deletes the history of the free lock, and its number of `--newest`. Returns whether any node had something to
    /// forget, and the nodes that may bring it back.
    ///
    /// # Errors
    /// [`Error::InUse`] if the lock is not free; [`Error::NoQuorum`].
    pub(crate) async fn forget(&mut self) -> Result<(bool, Vec<String>), Error> {
        let call = self.call(&scripts::FORGET, Args::default());
        let answers = self.locks.ask_each(&call, |answers| answers.verdict(|_| true) != Verdict::Open).await;
        let has_forgotten = |answer: &Answer| answer.outcome == Outcome::Forgot;
        if answers.verdict(has_forgotten) == Verdict::Yes {
            let held =
                answers.iter().filter(|(.., answer)| !has_forgotten(answer)).map(|(node, ..)| (node, "has a lease"));
            let held = held.map(|(node, why)| format!("{} {why}", self.locks.nodes.name(node)));
            let away = answers.faults().map(|(node, fault)| format!("{} {fault}", self.locks.nodes.name(node)));
            let had = answers.replies().any(|answer| answer.count("keys") > 0);
            return Ok((had, away.chain(held).collect()));
        }
        match answers.replies().find_map(|answer| answer.by.clone()) {
            Some(by) if answers.is_denied(has_forgotten) => Err(Error::InUse(Box::new(self.held_by(by)))),
            _ => Err(self.no_quorum(&answers)),
        }
    }
}
