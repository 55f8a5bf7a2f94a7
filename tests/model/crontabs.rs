//! A year of crontabs with `--once-per`, without a clock: hosts that call by their zones, their clocks and their crons,
//! and one line, in which each call decides by `periods.rs`. What is left out or runs twice is what redlock-run(1)
//! names, and nothing else.

use redlock::lock::history::periods::{Expected, OncePer, is_within};
use redlock::lock::view::check::{Came, Facts};
use std::collections::VecDeque;
use std::time::Duration;

// Times are in ms since 1970.
const SECOND: i64 = 1000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;
/// January 1st, 2028.
const START: i64 = 1_830_297_600 * SECOND;

/// A zone: its usual offset from UTC, the offset's growth in summer, and the two moments of the change in a year.
#[derive(Clone, Copy)]
struct Zone {
    offset: i64,
    summer: i64,
    /// Summer begins and ends on a Sunday: its month, its number in the month (0: the last), and the moment on that day
    /// in UTC.
    changes: [(u32, u32, i64); 2],
}

const UTC: Zone = Zone { offset: 0, summer: 0, changes: [(1, 1, 0); 2] };
const BERLIN: Zone = Zone { offset: HOUR, summer: HOUR, changes: [(3, 0, HOUR), (10, 0, HOUR)] };
const NEW_YORK: Zone = Zone { offset: -5 * HOUR, summer: HOUR, changes: [(3, 2, 7 * HOUR), (11, 1, 6 * HOUR)] };
/// Half an hour of daylight saving. The Sunday begins there on Saturday in UTC.
const LORD_HOWE: Zone = Zone {
    offset: 10 * HOUR + HOUR / 2,
    summer: HOUR / 2,
    changes: [(10, 1, 15 * HOUR + HOUR / 2 - DAY), (4, 1, 15 * HOUR - DAY)],
};
const KATHMANDU: Zone = Zone { offset: 5 * HOUR + 45 * MINUTE, ..UTC };

/// The year, month and day of a day since 1970, by the Gregorian calendar.
fn date(day: i64) -> (i64, u32, u32) {
    let z = day + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + i64::from(month <= 2), month as u32, (doy - (153 * mp + 2) / 5 + 1) as u32)
}

/// 0 is Monday.
fn weekday(day: i64) -> i64 {
    (day + 3).rem_euclid(7)
}

impl Zone {
    fn change(&self, at: usize, year: i64) -> i64 {
        let (month, number, moment) = self.changes[at];
        let from = (year - 1970) * 365;
        let sundays =
            (from..from + 400).filter(|&day| weekday(day) == 6 && (date(day).0, date(day).1) == (year, month));
        let sundays: Vec<i64> = sundays.collect();
        let sunday = if number == 0 { sundays[sundays.len() - 1] } else { sundays[number as usize - 1] };
        sunday * DAY + moment
    }

    /// The local time by the time in UTC.
    fn clock(&self) -> impl Fn(i64) -> i64 {
        let Zone { offset, summer, .. } = *self;
        let years = 2027..=2030;
        let changes: Vec<[i64; 2]> = years.map(|year| [self.change(0, year), self.change(1, year)]).collect();
        move |utc| {
            let passed = |at: usize| changes.iter().filter(|change| change[at] <= utc).count();
            // In the south, the year begins in summer.
            let is_summer = passed(0) + usize::from(changes[0][0] > changes[0][1]) > passed(1);
            utc + offset + if is_summer { summer } else { 0 }
        }
    }
}

#[derive(Clone, Copy)]
enum Schedule {
    /// Every so often, by the wall clock.
    Each(i64),
    /// At these times of day, on days of which this is true.
    At(&'static [i64], fn(i64) -> bool),
}

impl Schedule {
    /// When the wall clock shows a time of the schedule on one of these days.
    fn calls(self, zone: &Zone, days: i64) -> Vec<i64> {
        let days = START / DAY..START / DAY + days;
        let local: Vec<i64> = match self {
            Schedule::Each(every) => (days.start * DAY..days.end * DAY).step_by(every as usize).collect(),
            Schedule::At(times, is_meant) => days
                .filter(|&day| is_meant(day))
                .flat_map(|day| times.iter().map(move |time| day * DAY + time))
                .collect(),
        };
        let clock = zone.clock();
        let moments = local.into_iter().flat_map(|local| {
            let summer = (zone.summer != 0).then_some(local - zone.offset - zone.summer);
            summer.into_iter().chain([local - zone.offset]).map(move |utc| (utc, local))
        });
        // As with the simplest cron, an hour that comes twice calls twice, and an hour that is left out does not call.
        let mut calls: Vec<i64> = moments.filter(|&(utc, local)| clock(utc) == local).map(|(utc, _)| utc).collect();
        calls.sort_unstable();
        calls
    }
}

fn is_seventh(day: i64) -> bool {
    (day - START / DAY) % 7 == 3
}

#[derive(Clone, Copy)]
struct Crontab {
    schedule: Schedule,
    period: i64,
    wait: Option<i64>,
    tries: Option<u64>,
    due: Option<i64>,
    hosts: usize,
    /// Of the hosts, in turn.
    zones: &'static [Zone],
    /// How far the clocks of the hosts are ahead, in turn.
    skews: &'static [i64],
    /// Each call comes later by a random time up to this: cron's second, or a timer's delay.
    delay: i64,
    job: i64,
    /// True if the job fails on this host, on this day.
    fails: fn(usize, i64) -> bool,
    /// How far the server's clock is ahead at this time.
    server: fn(i64) -> i64,
    /// Somebody repeats the job by hand, with the same options, so long after the midnight of each seventh day.
    repair: Option<i64>,
    /// The days on which no cron runs.
    absent: (i64, i64),
    days: i64,
}

const NIGHTLY: Crontab = Crontab {
    schedule: Schedule::At(&[3 * HOUR], |_| true),
    period: DAY,
    wait: None,
    tries: None,
    due: None,
    hosts: 30,
    zones: &[UTC],
    skews: &[0],
    delay: 1500,
    job: 10 * MINUTE,
    fails: |_, _| false,
    server: |_| 0,
    repair: None,
    absent: (0, 0),
    days: 366,
};

#[derive(Clone, Copy)]
struct Call {
    at: i64,
    host: usize,
    /// The night that the call belongs to; none for a repair.
    night: Option<usize>,
    /// True if nobody waited when the call came.
    is_first: bool,
}

struct Run {
    call: Call,
    began: i64,
    end: i64,
}

/// What `check` hears of, with its time by the server's clock.
#[derive(Clone, Copy)]
enum Event {
    Came { host: usize, is_done: bool },
    Began,
    Ended { has_failed: bool },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Year {
    /// Nights on which a host came whose job would have succeeded, and no call succeeded.
    left_out: usize,
    /// Nights on which more than one call succeeded.
    twice: usize,
    failed: usize,
    /// Calls that ended with 75, and those of them that printed a line.
    held: usize,
    lines: usize,
}

fn time(ms: i64) -> Duration {
    Duration::from_millis(ms.try_into().expect("it is positive"))
}

impl Crontab {
    fn once_per(&self) -> OncePer {
        OncePer { period: time(self.period), wait: self.wait.map(time), tries: self.tries, due: self.due.map(time) }
    }

    /// All calls in order, and the number of nights. A night ends half-way to the next.
    fn calls(&self) -> (Vec<Call>, usize) {
        let nights = self.schedule.calls(&self.zones[0], self.days);
        let ends: Vec<i64> = nights.windows(2).map(|pair| (pair[0] + pair[1]) / 2).collect();
        let mut seed: u32 = 35;
        let mut calls = Vec::new();
        for (at, zone) in self.zones.iter().enumerate() {
            let due = self.schedule.calls(zone, self.days);
            for host in (0..self.hosts).filter(|host| host % self.zones.len() == at) {
                let skew = self.skews[host % self.skews.len()];
                let is_absent = |due: i64| (self.absent.0..self.absent.1).contains(&((due - START) / DAY));
                for due in due.iter().filter(|due| !is_absent(**due)) {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    let at = due - skew + (self.delay * i64::from(seed >> 8)) / (1 << 24);
                    let night = Some(ends.partition_point(|&end| end <= due - skew));
                    calls.push(Call { at, host, night, is_first: false });
                }
            }
        }
        let days =
            self.repair.into_iter().flat_map(|time| (0..self.days).map(move |day| (day, START + day * DAY + time)));
        let repairs = days.filter(|(day, _)| is_seventh(START / DAY + day)).map(|(_, at)| at);
        calls.extend(repairs.map(|at| Call { at, host: self.hosts, night: None, is_first: false }));
        calls.sort_by_key(|call| call.at);
        (calls, nights.len())
    }

    fn year(&self) -> Year {
        self.history().0
    }

    fn history(&self) -> (Year, Vec<(i64, Event)>) {
        let mut events = Vec::new();
        let (calls, nights) = self.calls();
        let mut calls = calls.into_iter().peekable();
        let (mut year, mut successes, mut workable) = (Year::default(), vec![0; nights], vec![false; nights]);
        let (mut line, mut run): (Vec<Call>, Option<Run>) = (Vec::new(), None);
        // When the last success and each run began, by the server's clock.
        let (mut success, mut tries): (Option<i64>, Vec<i64>) = (None, Vec::new());
        let once = self.once_per();
        let clock = |at: i64| time(at + (self.server)(at));
        loop {
            let goes_on = |call: &Call, run: &Run, now: i64| {
                clock(now).saturating_sub(clock(run.began)) < once.looks_back(time(now - call.at))
            };
            let until = |call: &Call, run: &Option<Run>, now: i64| {
                let goes_on = run.as_ref().is_some_and(|run| goes_on(call, run, now));
                call.at + i64::try_from(once.waits(goes_on).as_millis()).expect("it is small")
            };
            let next_call = calls.peek().map(|call| call.at);
            let since = run.as_ref().map_or(i64::MIN, |run| run.began);
            let next_end = line.iter().map(|call| until(call, &run, since.max(call.at)).max(since)).min();
            let Some(now) = next_call.into_iter().chain(run.as_ref().map(|run| run.end)).chain(next_end).min() else {
                break;
            };
            if run.as_ref().is_some_and(|run| run.end == now) {
                let Run { call, began, .. } = run.take().expect("it goes on");
                let has_failed = call.night.is_some() && (self.fails)(call.host, began.div_euclid(DAY));
                events.push((now, Event::Ended { has_failed }));
                match call.night {
                    Some(_) if (self.fails)(call.host, began.div_euclid(DAY)) => year.failed += 1,
                    Some(night) => {
                        successes[night] += 1;
                        success = Some(began + (self.server)(began));
                    }
                    None => success = Some(began + (self.server)(began)),
                }
            } else if next_call == Some(now) {
                let call = Call { is_first: line.is_empty(), ..calls.next().expect("it comes") };
                if let Some(night) = call.night {
                    workable[night] |= !(self.fails)(call.host, now.div_euclid(DAY));
                }
                events.extend(run.is_some().then_some((now, Event::Came { host: call.host, is_done: false })));
                line.push(call);
            }
            // Whoever gets the lock now, or is turned away.
            while run.is_none() && !line.is_empty() {
                let call = line.remove(0);
                let reach = once.looks_back(time(now - call.at));
                let is_of_it = |began: &i64| is_within(reach, clock(now), time(*began));
                let tried = tries.iter().filter(|began| is_of_it(began)).count() as u64;
                let is_done = success.as_ref().is_some_and(is_of_it);
                events.push((now, Event::Came { host: call.host, is_done }));
                if is_done || self.tries.is_some_and(|most| tried >= most) {
                    continue;
                }
                events.push((now, Event::Began));
                tries.push(now + (self.server)(now));
                tries.drain(..tries.len().saturating_sub(100));
                run = Some(Run { call, began: now, end: now + self.job });
            }
            line.retain(|call| {
                let is_over = until(call, &run, now) <= now;
                if is_over && !run.as_ref().is_some_and(|run| goes_on(call, run, now)) {
                    year.held += 1;
                    year.lines += usize::from(call.is_first || once.waits(false).is_zero());
                }
                !is_over
            });
        }
        // The first and last nights are cut off.
        for night in 2..nights - 2 {
            year.left_out += usize::from(workable[night] && successes[night] == 0);
            year.twice += usize::from(successes[night] > 1);
        }
        (year, events)
    }

    /// What `check` finds at each of these times: the word of each finding, and when it is reported.
    fn checked(&self, times: impl Iterator<Item = i64>) -> Vec<(&'static str, i64)> {
        let (_, events) = self.history();
        let expected = Expected { period: time(self.period), due: self.once_per().due(), first: time(events[0].0) };
        let mut facts = Facts { expected: Some(expected), ..Facts::default() };
        let (mut events, mut found) = (events.into_iter().peekable(), Vec::new());
        let (mut hosts, mut durations): (Vec<usize>, VecDeque<Duration>) = (Vec::new(), VecDeque::new());
        for now in times {
            while let Some((at, event)) = events.next_if(|(at, _)| *at <= now) {
                match event {
                    Event::Came { host, is_done } => {
                        if let Some(place) = hosts.iter().position(|other| *other == host) {
                            hosts.remove(place);
                            facts.visits.remove(place);
                        }
                        hosts.insert(0, host);
                        facts.visits.insert(0, Came { at: time(at), is_done });
                    }
                    Event::Began => facts.running = Some(time(at)),
                    Event::Ended { has_failed } => {
                        let began = facts.running.take().expect("it went on");
                        facts.has_failed = has_failed;
                        if !has_failed {
                            facts.success = Some((began, time(at)));
                            durations.push_front(time(at) - began);
                            durations.truncate(20);
                            let mut sorted = Vec::from(durations.clone());
                            sorted.sort_unstable();
                            facts.usual = (sorted.len() >= 3).then(|| sorted[sorted.len() / 2]);
                        }
                    }
                }
            }
            facts.now = time(now);
            if facts.is_expected() {
                found.extend(facts.findings().iter().map(|finding| (finding.word(), now)));
            }
        }
        found
    }

    /// The times of a check in the morning, and of one each five minutes.
    fn mornings(&self) -> Vec<i64> {
        Schedule::At(&[7 * HOUR + HOUR / 2], ANY).calls(&self.zones[0], self.days)
    }

    fn each_five_minutes(&self) -> impl Iterator<Item = i64> {
        (START..START + (self.days - 1) * DAY).step_by((5 * MINUTE) as usize)
    }
}

const NOTHING: Year = Year { left_out: 0, twice: 0, failed: 0, held: 0, lines: 0 };
const ANY: fn(i64) -> bool = |_| true;
const BY_TWOS: Crontab =
    Crontab { schedule: Schedule::Each(2 * HOUR), period: 2 * HOUR, hosts: 3, job: MINUTE, ..NIGHTLY };

/// The job takes a tenth of a period at most.
fn crontabs() -> [(&'static str, Crontab); 11] {
    let at =
        |times, is_meant, period| Crontab { schedule: Schedule::At(times, is_meant), period, hosts: 10, ..NIGHTLY };
    let each = |period, hosts, days| Crontab {
        schedule: Schedule::Each(period),
        period,
        hosts,
        days,
        job: period / 10,
        ..NIGHTLY
    };
    [
        ("@daily", at(&[0], ANY, DAY)),
        ("03:00", NIGHTLY),
        // Each waits beyond midnight for a holder that is no run of the period.
        ("23:50", Crontab { wait: Some(HOUR), ..at(&[23 * HOUR + 50 * MINUTE], ANY, DAY) }),
        ("each 2 hours", BY_TWOS),
        ("each 6 hours", each(6 * HOUR, 5, 366)),
        ("each hour", each(HOUR, 3, 366)),
        ("each 5 minutes", each(5 * MINUTE, 3, 30)),
        ("weekly", at(&[3 * HOUR], |day| weekday(day) == 6, 7 * DAY)),
        ("monthly", at(&[3 * HOUR], |day| date(day).2 == 1, 30 * DAY)),
        ("Monday to Friday", at(&[3 * HOUR], |day| weekday(day) < 5, DAY)),
        ("twice a day", at(&[3 * HOUR, 15 * HOUR], ANY, DAY / 2)),
    ]
}

/// Checks each crontab as `changed`. `others`: those of which something is left out, runs twice, fails or is held.
#[track_caller]
fn all_are(changed: impl Fn(Crontab) -> Crontab, others: &[(&str, Year)]) {
    let unlike = crontabs().into_iter().map(|(what, crontab)| (what, changed(crontab).year()));
    let unlike: Vec<(&str, Year)> = unlike.filter(|(_, year)| *year != NOTHING).collect();
    assert_eq!(unlike, others);
}

#[test]
fn in_each_zone_each_call_of_the_crontab_runs_once() {
    for zone in [&[UTC], &[BERLIN], &[NEW_YORK], &[LORD_HOWE], &[KATHMANDU]] {
        all_are(|crontab| Crontab { zones: zone, ..crontab }, &[]);
    }
    // At 02:30, the hour that comes twice in autumn calls twice. The second call is turned away.
    let doubled = Crontab { schedule: Schedule::At(&[5 * HOUR / 2], ANY), zones: &[BERLIN], ..NIGHTLY };
    assert_eq!(doubled.year(), Year { left_out: 1, ..NOTHING });
}

/// The manual names it: hosts whose calls come half a period apart may both run.
#[test]
fn hosts_in_two_zones_are_one_crontab_unless_their_calls_come_half_a_period_apart() {
    let twice = |count| Year { twice: count, ..NOTHING };
    // For three weeks in March and one in autumn, New York is five hours behind Berlin, and not six.
    let half = [("each 2 hours", twice(96)), ("twice a day", twice(484))];
    all_are(|crontab| Crontab { zones: &[BERLIN, NEW_YORK], ..crontab }, &half);
    // The hour that comes twice in Berlin makes another gap.
    let changes = [("each 2 hours", twice(1))];
    all_are(|crontab| Crontab { zones: &[BERLIN, KATHMANDU], ..crontab }, &changes);
    // More than half a day apart: the zone that is later on the same day comes earlier for the next.
    let far = Crontab { zones: &[NEW_YORK, LORD_HOWE], ..NIGHTLY };
    assert_eq!(far.year(), NOTHING);
}

#[test]
fn wrong_clocks_of_hosts_change_nothing() {
    // (A host whose clock is a day off comes on another day of the week.)
    let weekend = [("Monday to Friday", Year { twice: 51, ..NOTHING })];
    for (skews, others) in [
        (&[0, 7 * SECOND, -9 * SECOND][..], &[][..]),
        (&[0, 2 * HOUR], &[]),
        (&[0, -2 * HOUR], &[]),
        (&[0, DAY], &weekend),
        (&[0, -DAY], &weekend),
    ] {
        all_are(|crontab| Crontab { skews, ..crontab }, others);
    }
}

/// The manual names it: a server's clock that was off by P/2 to 3P/2 at a success leaves one out.
#[test]
fn a_servers_clock_that_jumps_by_less_than_half_a_period_changes_nothing() {
    // Each fourth day, from noon to noon, the clock is off.
    fn off(at: i64, by: i64) -> i64 {
        if (2 * DAY + DAY / 2..3 * DAY + DAY / 2).contains(&(at % (4 * DAY))) { by } else { 0 }
    }
    let day = |crontab: Crontab, server| Crontab { server, ..crontab };
    for server in [(|at| off(at, 5 * HOUR)) as fn(i64) -> i64, |at| off(at, -5 * HOUR)] {
        all_are(|crontab| day(crontab, server), &[("each 6 hours", Year { left_out: 91, ..NOTHING })]);
    }
    let left_out = |left_out| Year { left_out, ..NOTHING };
    let half = [
        ("@daily", left_out(90)),
        ("03:00", left_out(90)),
        ("23:50", left_out(91)),
        ("Monday to Friday", left_out(52)),
        ("twice a day", left_out(91)),
    ];
    all_are(|crontab| day(crontab, |at| off(at, 13 * HOUR)), &half);
    // Other nights are left out: those before the jump back, and not those behind it.
    let half =
        half.map(|(what, year)| (what, Year { left_out: if what == "Monday to Friday" { 50 } else { 91 }, ..year }));
    all_are(|crontab| day(crontab, |at| off(at, -13 * HOUR)), &half);
}

/// A job that takes longer than P holds the lock when its next calls come: they end with 75, and one of them says so.
#[test]
fn long_jobs_leave_out_what_comes_while_they_run() {
    for percent in [10, 50, 90] {
        all_are(|crontab| Crontab { job: crontab.period * percent / 100, ..crontab }, &[]);
    }
    for (what, crontab) in crontabs() {
        let year = Crontab { job: crontab.period * 3 / 2, ..crontab }.year();
        let Year { left_out, lines, .. } = year;
        assert_eq!(year, Year { left_out, held: lines * crontab.hosts, lines, ..NOTHING }, "{what}");
        // The lines of the first nights and the last are not counted as left out.
        assert!(left_out > 3 && (left_out..=left_out + 2).contains(&lines), "{what}: {year:?}");
    }
    for job in [12 * HOUR, 14 * HOUR] {
        assert_eq!(Crontab { job, ..NIGHTLY }.year(), NOTHING, "{job}");
    }
}

#[test]
fn while_any_host_can_do_it_no_failure_costs_a_night() {
    let unlike = |crontab: Crontab| {
        let year = crontab.year();
        assert_eq!(year, Year { failed: year.failed, ..NOTHING });
        year.failed
    };
    for (what, crontab) in crontabs() {
        let failed = unlike(Crontab { fails: |host, day| host < 2 && day % 2 == 0, ..crontab });
        assert!(failed > 0 || what == "monthly", "{what}");
    }
    // Where all fail, each host has tried.
    let failed = unlike(Crontab { fails: |_, _| true, ..NIGHTLY });
    assert_eq!(failed, 366 * 30);
}

/// The manual names it: a repair in the second half of the period turns the next call away.
#[test]
fn a_repair_by_hand_turns_the_next_call_away_only_in_the_second_half_of_the_period() {
    let fails: fn(usize, i64) -> bool = |_, day| is_seventh(day);
    for (repair, left_out) in [(9 * HOUR, 0), (14 * HOUR, 0), (16 * HOUR + HOUR / 2, 52), (DAY + HOUR / 2, 52)] {
        let year = Crontab { fails, repair: Some(repair), ..NIGHTLY }.year();
        assert_eq!(year, Year { left_out, failed: 52 * 30, ..NOTHING }, "{repair}");
    }
    let [.., (_, late), _, _, _, _, _, _, _, _] = crontabs();
    let year = Crontab { fails, repair: Some(DAY + HOUR / 2), ..late }.year();
    assert_eq!(Year { failed: 0, ..year }, NOTHING);
}

#[test]
fn random_delays_of_less_than_half_a_period_cost_nothing() {
    for hosts in [1, 2, 30] {
        for delay in [MINUTE, HOUR, 6 * HOUR, 11 * HOUR] {
            assert_eq!(Crontab { delay, hosts, ..NIGHTLY }.year(), NOTHING, "{hosts} {delay}");
        }
    }
}

#[test]
fn tries_are_counted_whatever_became_of_them() {
    // Each second night the first hosts fail. One try: whichever comes first has it.
    let some: fn(usize, i64) -> bool = |host, day| host < 3 && day % 2 == 0;
    assert_eq!(Crontab { tries: Some(1), fails: some, ..NIGHTLY }.year(), Year { left_out: 10, failed: 11, ..NOTHING });
    assert_eq!(Crontab { tries: Some(3), fails: |_, _| true, ..NIGHTLY }.year(), Year { failed: 366 * 3, ..NOTHING });
}

/// No false alarm, but that of a rhythm other than P, which --due states.
#[test]
fn check_is_silent_for_a_year_in_which_all_is_well() {
    for zones in [&[UTC], &[BERLIN], &[NEW_YORK], &[LORD_HOWE], &[KATHMANDU]] as [&'static [Zone]; 5] {
        for (what, crontab) in crontabs() {
            let weekdays = what == "Monday to Friday";
            let crontab = Crontab { zones, due: weekdays.then_some(3 * DAY), ..crontab };
            assert_eq!(crontab.checked(crontab.mornings().into_iter()), [], "{what}");
            if zones[0].offset == HOUR {
                assert_eq!(crontab.checked(crontab.each_five_minutes()), [], "{what}");
            }
            if weekdays {
                let reported = Crontab { due: None, ..crontab }.checked(crontab.mornings().into_iter());
                assert!(reported.iter().all(|(word, _)| *word == "overdue"), "{reported:?}");
                // Saturday's success is missing on Saturday, Sunday and (New York, whose day ends later) Monday.
                assert!((100..=160).contains(&reported.len()), "{}", reported.len());
            }
        }
    }
    // Hosts that fail, slow jobs, repairs, hosts whose clocks are wrong.
    for crontab in [
        Crontab { fails: |host, day| host < 2 && day % 2 == 0, ..NIGHTLY },
        Crontab { job: 9 * HOUR, ..NIGHTLY },
        Crontab { job: 14 * HOUR, ..NIGHTLY },
        Crontab { delay: 2 * HOUR, ..NIGHTLY },
        Crontab { skews: &[0, 2 * HOUR, -2 * HOUR], ..NIGHTLY },
        Crontab { repair: Some(16 * HOUR + HOUR / 2), ..NIGHTLY },
    ] {
        assert_eq!(crontab.checked(crontab.mornings().into_iter()), []);
    }
}

/// Each absence is reported at the first check after D + S, and by each check until a host comes again.
#[test]
fn check_reports_each_absence_at_the_first_check_after_it_is_due() {
    // The crontab, D + S, and when it is reported after the last sign: in the morning, and each five minutes (in hours).
    let mut table = Vec::new();
    for (what, crontab) in crontabs() {
        let (weekdays, days) = (what == "Monday to Friday", crontab.days);
        let quit = days * 2 / 3;
        let crontab = Crontab {
            due: weekdays.then_some(3 * DAY),
            absent: (quit, days),
            days: if what == "monthly" { days } else { days.min(quit + 12) },
            zones: &[BERLIN],
            ..crontab
        };
        let (_, events) = crontab.history();
        let is_sign = |event: &Event| matches!(event, Event::Began | Event::Came { is_done: true, .. });
        let last = events.iter().filter(|(_, event)| is_sign(event)).map(|(at, _)| *at).next_back();
        let last = last.expect("it ran");
        let slack = (crontab.period / 12).min(2 * HOUR).max(if crontab.period < 2 * HOUR { 0 } else { 70 * MINUTE });
        let due = i64::try_from(crontab.once_per().due().as_millis()).expect("it is small") + slack;
        let mornings = crontab.mornings();
        let check = |times: Vec<i64>| {
            let first = times.iter().copied().find(|at| *at >= last + due).expect("the year is long enough");
            let reported = crontab.checked(times.iter().copied());
            let expected: Vec<_> = times.into_iter().filter(|at| *at >= first).map(|at| ("overdue", at)).collect();
            assert!(reported == expected, "{what}: {} {:?}", reported.len(), reported.first());
            (first - last) as f64 / HOUR as f64
        };
        let hours = [check(mornings), check(crontab.each_five_minutes().collect())];
        table.push(format!("{what} {:.1} {:.1} {:.1}", due as f64 / HOUR as f64, hours[0], hours[1]));
    }
    let expected = [
        "@daily 26.0 31.3 26.1",
        "03:00 26.0 28.3 26.1",
        "23:50 26.0 31.5 26.1",
        "each 2 hours 3.2 7.5 3.2",
        "each 6 hours 7.2 30.9 7.2",
        "each hour 1.1 6.4 1.1",
        "each 5 minutes 0.1 6.6 0.2",
        "weekly 170.0 172.3 170.1",
        "monthly 746.0 748.3 746.1",
        "Monday to Friday 74.0 76.3 74.1",
        "twice a day 13.2 16.3 13.2",
    ];
    assert_eq!(table, expected);
}

/// A failure on all hosts is reported in the morning.
#[test]
fn check_tells_a_night_on_which_all_have_failed_in_the_morning() {
    let crontab = Crontab { fails: |_, day| is_seventh(day), hosts: 10, ..NIGHTLY };
    let reported = crontab.checked(crontab.mornings().into_iter());
    let failed: Vec<i64> = reported.iter().filter(|(word, _)| *word == "failed").map(|(_, at)| *at / DAY).collect();
    let nights: Vec<i64> = crontab.mornings().iter().map(|at| at / DAY).filter(|day| is_seventh(*day)).collect();
    assert_eq!(failed, nights);
}
