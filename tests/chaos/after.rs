//! The calm after the storm: every lock comes free, hand-overs are quick, and nothing is left.

use super::Place;
use super::contender::redlock;
use super::field::LONGEST;
use super::history::judge;
use crate::support::{ms, slowness, tagged};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The lock that some race for.
pub(super) const RACE: &str = "race";
const RACERS: usize = 6;
const LAPS: usize = 6;
/// In milliseconds. A lease that nobody uses and nobody has taken back is noticed by its length.
const TTL_OF_RACE: i64 = 20_000;
/// How long the servers may take until they serve again: a replica has to come back, a server to be started.
const HEALED: Duration = Duration::from_secs(90);
/// What a busy machine may add.
const BUSY: Duration = Duration::from_secs(5);

/// Looks whether all is as it was; what is not is the error.
pub(super) fn look(place: &Place) -> Result<(), String> {
    std::thread::sleep(place.field.until_all_vote());
    serves(place)?;
    comes_free(place)?;
    race(place)?;
    nothing_is_left(place)
}

fn succeeds(place: &Place, arguments: &[&str]) -> ExitStatus {
    let mut command = redlock(arguments);
    command.env_clear().envs(place.environment(0)).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().unwrap()
}

/// Tries a lock that nobody has had until the servers grant it.
fn serves(place: &Place) -> Result<(), String> {
    let start = Instant::now();
    while !succeeds(place, &["run", "probe", "-q", "--", "true"]).success() {
        if start.elapsed() > HEALED {
            return Err(format!("the servers do not serve within {HEALED:?}"));
        }
        std::thread::sleep(ms(50));
    }
    Ok(())
}

/// Every lock comes free with the longest lease that may be there.
fn comes_free(place: &Place) -> Result<(), String> {
    let wait = format!("{}ms", (LONGEST + BUSY).as_millis());
    for name in ["x1", "x2", "x3", "x4", "slots", "long"] {
        let slots = if name == "slots" { &["--slots", "2"][..] } else { &[] };
        for _ in 0..2 {
            let call = [&["run", name, "-q", "--wait", &wait], slots, &["--", "true"]].concat();
            let status = succeeds(place, &call);
            if !status.success() {
                return Err(format!("{name} is stuck: {call:?} ends with {status}"));
            }
        }
    }
    Ok(())
}

/// Some who want the same lock: they get it one after the other, without having to wait for a lease to run out, nor for a look.
fn race(place: &Place) -> Result<(), String> {
    let (directory, section) = (place.arena.directory.to_str().unwrap(), place.arena.section.to_str().unwrap());
    let lock = format!("{RACE}:x");
    let ttl = format!("--ttl={TTL_OF_RACE}ms");
    let call = ["run", RACE, "-q", &ttl, "--wait=60s", "--", section, directory, "10", "-", "0", &lock];
    let lost = std::thread::scope(|scope| {
        let racer = || (0..LAPS).filter(|_| !succeeds(place, &call).success()).count();
        let racers: Vec<_> = (0..RACERS).map(|_| scope.spawn(racer)).collect();
        racers.into_iter().map(|one| one.join().unwrap()).sum::<usize>()
    });
    if lost > 0 {
        return Err(format!("{lost} of {} did not get a lock that nobody kept", RACERS * LAPS));
    }
    let mut times = judge(&place.history()).handovers.remove(RACE).unwrap_or_default();
    times.sort_unstable();
    let (quick, worst) = (times[times.len() / 4], times[times.len() - 1]);
    // Who is not called looks after 400 ms at most, so that every fourth is quick by chance; and a busy machine is not.
    let soon = i64::try_from((ms(60) + slowness() * 2).as_millis()).unwrap();
    if quick > soon || worst > TTL_OF_RACE / 2 {
        return Err(format!(
            "hand-overs in calm take {quick} ms (of {soon}) where they are quick, {worst} ms at worst"
        ));
    }
    Ok(())
}

/// No process of the attack and no key but the memory is left once the longest lease has run out.
fn nothing_is_left(place: &Place) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let (mut keys, processes) = (place.field.left(), tagged(&place.tag));
        // The servers of local: were started by calls of this attack.
        let left = processes.into_iter().filter(|&pid| !place.field.has(pid));
        let processes: Vec<u32> = left.collect();
        if keys.is_empty() && processes.is_empty() {
            return Ok(());
        }
        if start.elapsed() > LONGEST + BUSY {
            keys.sort();
            let named =
                processes.iter().map(|pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default());
            return Err(format!("left behind: keys {keys:?}, processes {:?}", named.collect::<Vec<String>>()));
        }
        std::thread::sleep(ms(100));
    }
}
