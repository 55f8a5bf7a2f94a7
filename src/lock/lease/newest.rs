//! The register of `--newest`, as newest.lua writes it.

use crate::lock::wire::answer::Answer;
use crate::redis::Answers;
use crate::text::{human, safe};
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// The largest number that stood in line or was granted, and the first caller with that number.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Newest {
    /// None if the register does not begin with a number.
    pub(crate) number: Option<u64>,
    host: Option<String>,
    pid: Option<u64>,
    label: Option<String>,
    /// The time since the first caller with this number came, by the server's clock.
    #[serde(skip)]
    ago: Option<Duration>,
}

impl Newest {
    /// The register with the largest number in these answers; None if no answer has a register.
    pub(super) fn largest(answers: &Answers<Answer>) -> Option<Newest> {
        answers.replies().filter_map(Newest::read).max_by_key(|newest| newest.number)
    }

    /// The register in this answer; None if the answer has no register.
    fn read(answer: &Answer) -> Option<Newest> {
        let mut parts = answer.text("newest")?.splitn(5, ' ');
        let mut part = || parts.next().filter(|part| !part.is_empty());
        let number = part().and_then(|number| number.parse().ok());
        let came = part().and_then(|ms| ms.parse().ok()).map(Duration::from_millis);
        let pid = part().and_then(|pid| pid.parse().ok());
        let short = |part: &str| part.chars().take(256).collect();
        let (host, label) = (part().map(short), part().map(short));
        let ago = answer.get("clock").as_time().zip(came).map(|(clock, came)| clock.saturating_sub(came));
        Some(Newest { number, host, pid, label, ago })
    }
}

/// "43 (ci-7, pid 4713, nightly), which came 3m ago"
impl fmt::Display for Newest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Newest { number, host, pid, label, ago } = self;
        f.write_str(&number.map_or_else(|| "something that is not a number".to_owned(), |number| number.to_string()))?;
        let known = [host.as_deref().map(safe), pid.map(|pid| format!("pid {pid}")), label.as_deref().map(safe)];
        let known: Vec<String> = known.into_iter().flatten().collect();
        if !known.is_empty() {
            write!(f, " ({})", known.join(", "))?;
        }
        ago.map_or(Ok(()), |ago| write!(f, ", which came {} ago", human(ago)))
    }
}
