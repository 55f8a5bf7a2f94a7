//! `status --ran-within`: whether jobs have succeeded lately, for cron, Nagios and other monitoring.

use super::gaps;
use crate::cli::{Common, Format};
use crate::exit::Exit;
use crate::lock::{Listing, Selection, State, Status};
use crate::output;
use std::time::Duration;

/// The answer for one lock, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Recency {
    Recent,
    /// The only success that is known is in the future: the server's clock was changed.
    Ahead,
    NotRecent,
}

/// Tells of each selected lock whether a run that ended within this time has succeeded.
pub(super) fn ran_within(
    mut listing: Listing,
    selection: Selection<'_>,
    within: Duration,
    common: &Common,
) -> anyhow::Result<Exit> {
    let (unmatched, unknown) = (selection.unmatched(&listing), listing.unknown.take());
    listing.must_remember();
    let answers: Vec<(&Status, Recency)> =
        listing.locks.iter().map(|status| (status, answer(status, within))).collect();
    let worst = answers.iter().map(|(_, answer)| *answer).max().unwrap_or(Recency::NotRecent);
    let mut lines: Vec<String> =
        answers.iter().map(|(status, answer)| output::ran_within(status, *answer == Recency::Recent, within)).collect();
    lines.extend(unmatched.iter().map(|pattern| format!("no lock matches {pattern:?}")));
    let all_well = worst == Recency::Recent && unmatched.is_empty();
    // A success is one, whoever knows it; where there is none, nodes that cannot tell may have forgotten one.
    let is_unsure =
        |(status, answer): &&(&Status, Recency)| status.state == State::Unknown && *answer != Recency::Recent;
    let unsure = answers.iter().find(is_unsure).map(|(status, _)| status.name.as_str());
    if let Some(error) = unknown
        && (unsure.is_some() || answers.is_empty())
    {
        return Err(error.about(unsure).into());
    }
    if common.format == Format::Nagios {
        return nagios(&listing, &answers, &lines, all_well, worst);
    }
    let exit = gaps(&listing.gaps);
    match common.format {
        _ if common.quiet => {}
        Format::Json if listing.locks.len() == 1 && selection.names.len() == 1 => {
            output::show(&output::status(&listing.locks[0], true))?;
        }
        Format::Json => output::show(&output::list(&listing.locks, true, None))?,
        _ => output::show(&lines.iter().map(|line| format!("{line}\n")).collect::<String>())?,
    }
    Ok(match exit {
        Exit::Done if all_well => Exit::Done,
        Exit::Done => Exit::NotRecent,
        exit => exit,
    })
}

fn answer(status: &Status, within: Duration) -> Recency {
    match &status.memory.last_success {
        Some(run) if run.is_ahead => Recency::Ahead,
        Some(run) if run.ago.is_some_and(|ago| ago <= within) => Recency::Recent,
        _ => Recency::NotRecent,
    }
}

/// One line as monitoring plugins print it; the worst lock stands first.
fn nagios(
    listing: &Listing,
    answers: &[(&Status, Recency)],
    lines: &[String],
    all_well: bool,
    worst: Recency,
) -> anyhow::Result<Exit> {
    let unknown = listing.gaps.locks.first().map(ToString::to_string);
    let (exit, word) = match (&unknown, worst) {
        (None, _) if all_well => (Exit::Done, "OK"),
        (None, Recency::Ahead) => (Exit::CannotTell, "UNKNOWN"),
        (None, _) => (Exit::Critical, "CRITICAL"),
        (Some(_), _) => (Exit::CannotTell, "UNKNOWN"),
    };
    let is_told = |at: &usize| all_well || answers.get(*at).is_none_or(|(_, answer)| *answer != Recency::Recent);
    let told: Vec<&str> = (0..lines.len()).filter(is_told).map(|at| lines[at].as_str()).collect();
    let text = match (&unknown, told.as_slice()) {
        (Some(error), _) => error.clone(),
        (None, []) => "no lock is named".to_owned(),
        (None, [one]) => (*one).to_owned(),
        (None, several) if all_well => format!("all {} have succeeded in time", several.len()),
        (None, several) => format!("{} of {}: {}", several.len(), lines.len(), several.join("; ")),
    };
    output::show(&output::nagios(word, &text, answers.iter().map(|(status, _)| *status)))?;
    Ok(exit)
}
