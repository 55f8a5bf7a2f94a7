//! Measures of time, memory and processor time, tables of times, and the job that records when it held the lock.

use nix::time::{ClockId, clock_gettime};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct Samples(Vec<Duration>);

impl Samples {
    pub(crate) fn add(&mut self, sample: Duration) {
        self.0.push(sample);
    }

    pub(crate) fn extend(&mut self, others: Samples) {
        self.0.extend(others.0);
    }

    /// A percentile in ms (50: the median); NaN without samples.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort();
        let at = (sorted.len() * percent).div_ceil(100).max(1) - 1;
        sorted.get(at).map_or(f64::NAN, |one| one.as_secs_f64() * 1e3)
    }
}

/// Rows of percentiles; the ratios compare each row with the first. On a busy machine the fastest tenth (p10) says most
/// about the program.
#[derive(Debug)]
pub(crate) struct Table {
    title: String,
    rows: Vec<(String, [f64; 4], usize)>,
}

impl Table {
    pub(crate) fn new(title: &str) -> Table {
        Table { title: title.to_owned(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, name: &str, samples: &Samples) {
        let percentiles = [10, 50, 95, 99].map(|percent| samples.percentile(percent));
        self.rows.push((name.to_owned(), percentiles, samples.0.len()));
    }

    pub(crate) fn print(&self) {
        let width = self.rows.iter().map(|row| row.0.len()).max().unwrap_or(0);
        println!("\n{}, in ms", self.title);
        println!("  {:width$}       p10   ratio       p50   ratio       p95       p99    n", "");
        for (name, [low, middle, high, highest], count) in &self.rows {
            let [first_low, first, ..] = self.rows[0].1;
            let (low_ratio, ratio) = (low / first_low, middle / first);
            println!(
                "  {name:width$} {low:9.2} {low_ratio:7.2} {middle:9.2} {ratio:7.2} {high:9.2} {highest:9.2} {count:4}"
            );
        }
    }
}

/// Runs a command, which must succeed, and returns its duration.
pub(crate) fn time(command: &mut Command) -> Duration {
    let begin = Instant::now();
    let status = command.status().unwrap();
    let taken = begin.elapsed();
    assert!(status.success(), "{command:?}: {status}");
    taken
}

/// When one contender held the lock, by the clock that all processes share.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Held {
    pub(crate) from: Duration,
    pub(crate) to: Duration,
    pub(crate) id: usize,
}

fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap().into()
}

/// The job `--hold MS FILE ID`: lasts MS milliseconds, and appends its start, its end and ID to FILE. With MS 0 and ID
/// 0 it lasts until the file FILE.go exists.
pub(crate) fn hold(arguments: &[String]) {
    let from = now();
    let [time, file, id] = arguments else { panic!("--hold MS FILE ID") };
    if time == "0" && id == "0" {
        while !fs::exists(format!("{file}.go")).unwrap() {
            std::thread::sleep(Duration::from_millis(1));
        }
    } else {
        std::thread::sleep(Duration::from_millis(time.parse().unwrap()));
    }
    // A single write, so that lines of several jobs do not mix.
    let mut log = OpenOptions::new().create(true).append(true).open(file).unwrap();
    let line = format!("{} {} {id}\n", from.as_nanos(), now().as_nanos());
    log.write_all(line.as_bytes()).unwrap();
}

/// In the order in which the jobs held the lock.
pub(crate) fn notes(file: &std::path::Path) -> Vec<Held> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let mut notes: Vec<Held> = text
        .lines()
        .map(|line| {
            let mut numbers = line.split(' ').map(|number| number.parse::<u64>().unwrap());
            let mut next = || numbers.next().unwrap();
            Held {
                from: Duration::from_nanos(next()),
                to: Duration::from_nanos(next()),
                id: usize::try_from(next()).unwrap(),
            }
        })
        .collect();
    notes.sort();
    notes
}

/// In KiB.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    pub(crate) unshared: u64,
}

pub(crate) fn memory(pid: u32) -> Memory {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let sum = |fields: &[&str]| {
        let lines = text.lines().filter(|line| fields.iter().any(|field| line.starts_with(field)));
        lines.map(|line| line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()).sum()
    };
    Memory { resident: sum(&["Rss:"]), unshared: sum(&["Private_Clean:", "Private_Dirty:"]) }
}

/// The processor time that all threads of these processes have used.
pub(crate) fn processor_time(pids: &[u32]) -> Duration {
    let threads = pids.iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    let used = threads.flatten().filter_map(|thread| {
        let line = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        line.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(used.sum())
}
