//! The calm after the storm: every lock comes free, hand-overs are quick, and nothing is left.

use super::Place;
use super::contender::{LATE, redlock};
use super::field::LONGEST;
use super::history::judge;
use crate::support::{ms, slowness, tagged};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

pub(super) const RACE: &str = "race";
const RACERS: usize = 14;
/// In milliseconds. It is long, so that a lease that nobody uses shows as a slow hand-over.
const TTL_OF_RACE: i64 = 20_000;
/// How long the servers may need after the attack until they grant locks. A server may have to start, for example.
const HEALED: Duration = Duration::from_secs(90);
/// On a busy machine, a lock, keys and processes may stay for this time beyond the longest lease.
const BUSY: Duration = Duration::from_secs(5);

/// Checks that the attack has left no damage; the error names the damage.
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

/// Within [`HEALED`], the servers grant a lock that no contender uses.
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

/// Every lock comes free within the length of the longest lease.
fn comes_free(place: &Place) -> Result<(), String> {
    let (wait, ttl) = (format!("{}ms", (LONGEST + BUSY).as_millis()), format!("--ttl={}ms", LONGEST.as_millis()));
    for name in ["x1", "x2", "x3", "x4", "slots", "newest", "long", LATE] {
        let slots = if name == "slots" { &["--slots", "2"][..] } else { &[] };
        for _ in 0..2 {
            let call = [&["run", name, "-q", &ttl, "--wait", &wait], slots, &["--", "true"]].concat();
            let status = succeeds(place, &call);
            if !status.success() {
                return Err(format!("{name} is stuck: {call:?} ends with {status}"));
            }
        }
    }
    Ok(())
}

/// Each of many waiters gets the lock, and none waits until a lease expires. With one node, most must be called before
/// they look by themselves. No newcomer comes meanwhile, because it would call the first in line, and hide a forgotten
/// call.
fn race(place: &Place) -> Result<(), String> {
    let (directory, section) = (place.arena.directory.to_str().unwrap(), place.arena.section.to_str().unwrap());
    let (ttl, lock) = (format!("--ttl={TTL_OF_RACE}ms"), format!("{RACE}:x"));
    let run = |time| {
        succeeds(place, &["run", RACE, "-q", &ttl, "--wait=60s", "--", section, directory, time, "-", "0", &lock])
    };
    let (lost, slow) = std::thread::scope(|scope| {
        let first = scope.spawn(move || run("2000"));
        // The first run has the lock before the others come. Each of them keeps the lock for longer than the 50 ms
        // after which a waiter that becomes the first in line looks once: this look must not get the lock.
        std::thread::sleep(ms(200));
        let others: Vec<_> = (0..RACERS).map(|_| scope.spawn(move || run("120"))).collect();
        let mut slow = slowness();
        while others.iter().any(|one| !one.is_finished()) {
            slow = slow.max(slowness());
            std::thread::sleep(ms(50));
        }
        let ended = others.into_iter().chain([first]).map(|one| one.join().unwrap());
        (ended.filter(|status| !status.success()).count(), slow)
    });
    if lost > 0 {
        return Err(format!("{lost} of {} did not get a lock that nobody kept", RACERS + 1));
    }
    let mut times = judge(&place.history(), place.field.remembers_until).handovers.remove(RACE).unwrap_or_default();
    times.sort_unstable();
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    // A waiter that is not called looks by itself (sends TAKE), after 200 ms on average. Over several masters the
    // median does not count: tries of two waiters may collide, and are repeated after a pause.
    let soon = i64::try_from((ms(150) + slow).as_millis()).unwrap();
    if median > soon && place.field.is_one() || worst > TTL_OF_RACE / 2 {
        return Err(format!("hand-overs in calm take {median} ms (of {soon}) in the median, {worst} ms at worst"));
    }
    Ok(())
}

/// Nothing of the attack is left when the longest lease has run out, except history and the servers of `local:`.
fn nothing_is_left(place: &Place) -> Result<(), String> {
    let start = Instant::now();
    loop {
        let (mut keys, processes) = (place.field.left(), tagged(&place.tag));
        // Servers of `local:` have the tag of this attack, because calls of redlock have started them. They may stay.
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
        // A dead waiter stays in the line of a node until a `redlock run` reaches that node. On a busy machine a run
        // may leave out a node, so the test makes the runs again.
        if keys.iter().any(|key| key.ends_with("queue")) {
            comes_free(place)?;
        }
        std::thread::sleep(ms(100));
    }
}
