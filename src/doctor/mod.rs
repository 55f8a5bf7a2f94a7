//! Whether the nodes are ready for locks: each tells what it can of itself, and a table of checks judges that. Nothing is
//! changed on a server.

mod checks;
mod facts;
mod permissions;

use crate::lock::Quarantine;
use crate::redis::Address;
use facts::Facts;
use futures_util::future::join_all;
use serde::Serialize;
use std::ptr;
use std::time::Duration;

/// How a check came out, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Diagnosis {
    Fail,
    Warn,
    /// The server does not tell.
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

/// What a check says of this node, or of all nodes together.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) node: Option<String>,
    pub(crate) check: &'static str,
    pub(crate) verdict: Diagnosis,
    /// What it means for locks.
    pub(crate) detail: String,
    /// How to mend it, unless all is well.
    pub(crate) advice: Option<String>,
}

/// How the locks are used, besides what the nodes tell.
#[derive(Debug)]
pub(crate) struct Practice<'a> {
    pub(crate) addresses: &'a [Address],
    pub(crate) prefix: &'a str,
    /// As it was asked for, and as a lease of the default ttl gets it.
    pub(crate) given_timeout: Option<Duration>,
    pub(crate) node_timeout: Duration,
    /// How many replicas have to confirm a lease.
    pub(crate) replicas: u32,
    pub(crate) quarantine: Quarantine,
    /// The longest lease that is held now, or why that cannot be told.
    pub(crate) longest_lease: Result<Duration, String>,
}

/// Looks at all nodes at the same time. The worst comes first, and otherwise what is about all nodes.
pub(crate) async fn examine(practice: &Practice<'_>) -> Vec<Finding> {
    let gathered = practice.addresses.iter().map(|node| facts::gather(node, practice.prefix, practice.node_timeout));
    let gathered = join_all(gathered).await.into_iter().flatten().collect::<Vec<_>>();
    let mut findings: Vec<Finding> =
        checks::OF_ALL.iter().map(|(check, look)| Finding::of(None, check, look(practice))).collect();
    for (name, facts) in &gathered {
        let mut found = |check, checked| findings.push(Finding::of(Some(name), check, checked));
        match facts {
            Err(fault) => found("connection", checks::unreached(fault)),
            Ok(facts) => {
                let reached = gathered.iter().filter_map(|(_, facts)| facts.as_ref().ok());
                let others: Vec<&Facts> = reached.filter(|one| !ptr::eq(*one, facts)).collect();
                // What a Sentinel tells beyond its kind is not about locks.
                let looks = checks::OF_A_NODE.iter().filter(|(check, _)| *check == "kind" || !facts.is_sentinel());
                looks.for_each(|(check, look)| found(check, look(facts, practice, &others)));
            }
        }
    }
    findings.sort_by_key(|finding| finding.verdict);
    findings
}

/// In which way all is well, or what is not.
type Checked = Result<String, Trouble>;

/// What is not well, or not known.
#[derive(Clone, Debug)]
struct Trouble {
    verdict: Diagnosis,
    detail: String,
    advice: String,
}

impl Trouble {
    fn fail(detail: impl Into<String>, advice: impl Into<String>) -> Trouble {
        Trouble { verdict: Diagnosis::Fail, detail: detail.into(), advice: advice.into() }
    }

    fn warn(detail: impl Into<String>, advice: impl Into<String>) -> Trouble {
        Trouble { verdict: Diagnosis::Warn, ..Trouble::fail(detail, advice) }
    }

    fn unknown(detail: impl Into<String>, advice: impl Into<String>) -> Trouble {
        Trouble { verdict: Diagnosis::Unknown, ..Trouble::fail(detail, advice) }
    }
}

impl Finding {
    fn of(node: Option<&str>, check: &'static str, checked: Checked) -> Finding {
        let node = node.map(str::to_owned);
        match checked {
            Ok(detail) => Finding { node, check, verdict: Diagnosis::Ok, detail, advice: None },
            Err(Trouble { verdict, detail, advice }) => Finding { node, check, verdict, detail, advice: Some(advice) },
        }
    }
}
