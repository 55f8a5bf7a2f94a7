//! Two clocks: the boot clock is for deadlines, the wall clock is for dates and for other hosts. The boot clock goes on
//! while the machine sleeps; `std::time::Instant` does not (rust-lang/rust#87906).

use nix::libc;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::mem::MaybeUninit;
use std::ops::{Add, Sub};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A point in time on the boot clock, in nanoseconds. All processes of this machine share that clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Boot(u64);

impl Boot {
    /// The latest point, which is never reached.
    pub(crate) const NEVER: Boot = Boot(u64::MAX);

    pub(crate) const fn at(since_boot: Duration) -> Boot {
        Boot(since_boot.as_secs() * 1_000_000_000 + since_boot.subsec_nanos() as u64)
    }

    pub(crate) fn now() -> Boot {
        // Every kernel with pidfds has this clock, so the call cannot fail.
        let time = clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from);
        Boot(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The time left until this point; zero once it has passed.
    pub(crate) fn left(self) -> Duration {
        self.since(Boot::now())
    }

    /// The time from `earlier` to this point; zero if `earlier` is later than this point.
    pub(crate) fn since(self, earlier: Boot) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// The time since this point; zero while it lies ahead.
    pub(crate) fn elapsed(self) -> Duration {
        Boot::now().since(self)
    }

    pub(crate) fn passed(self) -> bool {
        Boot::now() >= self
    }

    /// The same point as a time since boot, for a timer on the same clock.
    pub(crate) fn since_boot(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl Add<Duration> for Boot {
    type Output = Boot;
    fn add(self, time: Duration) -> Boot {
        Boot(self.0.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for Boot {
    type Output = Boot;
    fn sub(self, time: Duration) -> Boot {
        Boot(self.0.saturating_sub(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The wall clock: time since 1970. For display and for other hosts, never for a deadline.
pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A time since 1970 to the minute, in this machine's time zone: `03:00` today, `yesterday 03:00`, `Friday 03:00` in the last
/// week, else `2026-11-20 03:00`.
pub(crate) fn local_minute(since: Duration) -> Option<String> {
    const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
    let day = |time: Duration| Some((i64::try_from(time.as_secs()).ok()? + local(time)?.tm_gmtoff).div_euclid(86_400));
    let date = local_date(since)?;
    let minute = date.get(11..16)?;
    Some(match day(unix_time())? - day(since)? {
        0 => minute.to_owned(),
        1 => format!("yesterday {minute}"),
        2..=6 => format!("{} {minute}", DAYS.get(usize::try_from(local(since)?.tm_wday).ok()?)?),
        _ => date.get(..16)?.to_owned(),
    })
}

/// A time since 1970, in this machine's time zone. None if the time is too large.
fn local(since: Duration) -> Option<libc::tm> {
    let seconds = libc::time_t::try_from(since.as_secs()).ok()?;
    let mut parts = MaybeUninit::uninit();
    // SAFETY: both pointers are valid for the call, which fills `parts` unless it returns null.
    unsafe { if libc::localtime_r(&seconds, parts.as_mut_ptr()).is_null() { None } else { Some(parts.assume_init()) } }
}

/// A time since 1970 in this machine's time zone: `2026-11-21 03:00:02 +0100`. None if it is too large.
pub(crate) fn local_date(since: Duration) -> Option<String> {
    let parts = local(since)?;
    let (year, month) = (parts.tm_year + 1900, parts.tm_mon + 1);
    let (day, hour, minute, second) = (parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
    let (sign, zone) = (if parts.tm_gmtoff < 0 { '-' } else { '+' }, parts.tm_gmtoff.abs() / 60);
    let zone = format!("{sign}{:02}{:02}", zone / 60, zone % 60);
    Some(format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} {zone}"))
}
