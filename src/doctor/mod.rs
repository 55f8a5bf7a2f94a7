//! Whether the nodes are fit for locks: each tells what it can of itself, and a table of checks judges that. Nothing is
//! changed on a server.

mod checks;
mod facts;
mod permissions;

use crate::lock::Quarantine;
use crate::redis::Address;
use facts::{Facts, Untold};
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

/// What a check has found.
#[derive(Debug, Serialize)]
pub(crate) struct Judgement {
    #[serde(rename = "verdict")]
    pub(crate) diagnosis: Diagnosis,
    /// What it means for locks.
    pub(crate) detail: String,
    /// How to mend it.
    pub(crate) advice: Option<String>,
}

/// What a check has found on this node, or of all nodes together.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    pub(crate) node: Option<String>,
    pub(crate) check: &'static str,
    #[serde(flatten)]
    pub(crate) judgement: Judgement,
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
    let gathered = join_all(gathered).await;
    let of_all = checks::of_all(practice).map(|(check, judgement)| Finding { node: None, check, judgement });
    let mut findings = Vec::from(of_all);
    for (address, facts) in practice.addresses.iter().zip(&gathered) {
        let found = |check, judgement| Finding { node: Some(address.to_string()), check, judgement };
        match facts {
            Err(fault) => findings.push(found("connection", checks::unreached(fault))),
            Ok(facts) => {
                let others: Vec<&Facts> = gathered.iter().flatten().filter(|one| !ptr::eq(*one, facts)).collect();
                let judged = |look: checks::Look| look(facts, practice, &others).unwrap_or_else(Judgement::from);
                findings.extend(checks::OF_A_NODE.map(|(check, look)| found(check, judged(look))));
            }
        }
    }
    findings.sort_by_key(|finding| finding.judgement.diagnosis);
    findings
}

impl Judgement {
    fn ok(detail: impl Into<String>) -> Judgement {
        Judgement { diagnosis: Diagnosis::Ok, detail: detail.into(), advice: None }
    }

    fn warn(detail: impl Into<String>, advice: impl Into<String>) -> Judgement {
        Judgement { diagnosis: Diagnosis::Warn, detail: detail.into(), advice: Some(advice.into()) }
    }

    fn fail(detail: impl Into<String>, advice: impl Into<String>) -> Judgement {
        Judgement { diagnosis: Diagnosis::Fail, ..Judgement::warn(detail, advice) }
    }

    fn unknown(detail: impl Into<String>, advice: impl Into<String>) -> Judgement {
        Judgement { diagnosis: Diagnosis::Unknown, ..Judgement::warn(detail, advice) }
    }
}

impl From<Untold> for Judgement {
    fn from(untold: Untold) -> Judgement {
        let Untold { command, why } = untold;
        Judgement::unknown(
            format!("cannot tell: {command} {why}"),
            format!("let this user run {command}, or look it up where the server is managed"),
        )
    }
}
