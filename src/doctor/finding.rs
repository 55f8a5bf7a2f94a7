//! The findings of the checks: the problem, its harm to locks, and the remedy.

use serde::Serialize;

/// The verdict of a check; the worst verdict is the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Diagnosis {
    Fail,
    Warn,
    /// The server does not reveal the fact.
    Unknown,
    Ok,
}

impl Diagnosis {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Diagnosis::Fail => "fail",
            Diagnosis::Warn => "warn",
            Diagnosis::Unknown => "unknown",
            Diagnosis::Ok => "ok",
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) node: Option<String>,
    pub(crate) check: &'static str,
    pub(crate) verdict: Diagnosis,
    /// The finding in words; for a problem, also the harm to locks.
    pub(crate) detail: String,
    /// The remedy, unless all is well.
    pub(crate) advice: Option<String>,
}

/// The node or server (none for a check of all nodes), the name of the check, and the result.
pub(super) type CheckOutcome = (Option<String>, &'static str, CheckResult);

/// A detail if all is well, else the problem.
pub(super) type CheckResult = Result<String, Problem>;

#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) harm: Harm,
    pub(super) detail: String,
    pub(super) advice: String,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Harm {
    Fail,
    /// The node can grant no lock, or only some locks. This is a warning if enough other nodes have a vote, else a
    /// failure.
    NoVote,
    Warn,
    Unknown,
}

impl Harm {
    pub(super) fn problem(self, detail: &str, advice: &str) -> Problem {
        Problem { harm: self, detail: detail.to_owned(), advice: advice.to_owned() }
    }

    /// Fails with a problem of this harm if `wrong`.
    pub(super) fn when(self, wrong: bool, detail: &str, advice: &str) -> Result<(), Problem> {
        if wrong { Err(self.problem(detail, advice)) } else { Ok(()) }
    }
}

impl Finding {
    /// The finding for this outcome. `enough`: enough nodes have a vote.
    pub(super) fn of((node, check, result): CheckOutcome, enough: bool) -> Finding {
        match result {
            Ok(detail) => Finding { node, check, verdict: Diagnosis::Ok, detail, advice: None },
            Err(Problem { harm, detail, advice }) => {
                let verdict = match harm {
                    Harm::NoVote if enough => Diagnosis::Warn,
                    Harm::Fail | Harm::NoVote => Diagnosis::Fail,
                    Harm::Warn => Diagnosis::Warn,
                    Harm::Unknown => Diagnosis::Unknown,
                };
                Finding { node, check, verdict, detail, advice: Some(advice) }
            }
        }
    }
}
