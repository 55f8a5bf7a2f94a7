//! Many contenders for one lock: the cost of a handover, and of waiting.

use crate::holding;
use crate::measure::{Samples, Table, notes, processor_time};
use crate::peers::{Peer, Waits, redlock};
use crate::support::{Directory, Monitor, Redis, descendants, die_with_parent, eventually, ms};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// A holder of the lock, who keeps it until `open_gate` is called, and the contenders behind.
pub(crate) struct Crowd {
    directory: Directory,
    pub(crate) children: Vec<Child>,
}

impl Crowd {
    /// Starts the holder, with id 0, and then `count` contenders, which each hold the lock for `hold`. `joined` gets
    /// the id of each contender that was started, and may wait until it stands in line.
    fn gather(count: usize, hold: Duration, command: impl Fn(&[String]) -> Command, joined: impl Fn(usize)) -> Crowd {
        let mut crowd = Crowd { directory: Directory::new(), children: Vec::new() };
        let log = crowd.log();
        let start = |id: usize, hold| {
            let mut command = command(&holding(hold, &log, id));
            command.stdout(Stdio::null()).stdin(Stdio::null());
            die_with_parent(&mut command).spawn().unwrap()
        };
        let holder = start(0, Duration::ZERO);
        let pid = holder.id();
        crowd.children.push(holder);
        eventually(LONG, "the first one has the lock", || {
            descendants(pid).iter().any(|&pid| is_holding(pid)) || is_holding(pid)
        });
        for id in 1..=count {
            crowd.children.push(start(id, hold));
            joined(id);
        }
        crowd
    }

    fn log(&self) -> std::path::PathBuf {
        self.directory.path().join("log")
    }

    fn open_gate(&self) {
        std::fs::write(self.directory.path().join("log.go"), "").unwrap();
    }

    fn finish(&mut self) {
        for mut child in self.children.drain(..) {
            let status = child.wait().unwrap();
            assert!(status.success(), "a contender: {status}");
        }
    }
}

/// True if this process is the job of the holder or of a contender.
fn is_holding(pid: u32) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut words = line.split(|&byte| byte == 0);
    let own = crate::own_binary();
    words.next() == Some(own.as_bytes()) && words.next() == Some(b"--hold")
}

/// Measures the time from one job's end to the next job's start, with 50 contenders that each hold the lock for 20 ms.
pub(crate) fn hand_over(peers: &[Peer]) {
    let mut table = Table::new("handover, 50 contenders who hold the lock for 20 ms each");
    let peers: Vec<&Peer> = peers.iter().filter(|peer| !matches!(peer.waits, Waits::Never)).collect();
    let mut samples: Vec<Samples> = peers.iter().map(|_| Samples::default()).collect();
    // The peers take turns, so that a slow minute of the machine slows down more than one.
    for round in 0..3 {
        for (peer, samples) in peers.iter().zip(&mut samples) {
            if round == 0 || peer.seldom == 1 {
                let name = format!("bench-crowd-{}", peer.name.len());
                let mut crowd = Crowd::gather(50, ms(20), |job| (peer.command)(&name, job), |_| {});
                match &peer.waits {
                    Waits::InLine(redlock) => queued(redlock, &name, 50),
                    Waits::After(time) => std::thread::sleep(*time),
                    Waits::Never => {}
                }
                crowd.open_gate();
                crowd.finish();
                assert_eq!(notes(&crowd.log()).len(), 51, "{}", peer.name);
                samples.extend(gaps(&crowd.log()));
            }
        }
    }
    for (peer, samples) in peers.iter().zip(&samples) {
        table.row(peer.name, samples);
    }
    table.print();
}

fn queued(redlock: impl Fn() -> Command, name: &str, count: usize) {
    eventually(LONG, "all of them wait", || {
        let status = redlock().args(["status", name, "--format", "json"]).output();
        let status: serde_json::Value = serde_json::from_slice(&status.unwrap().stdout).unwrap();
        status["waiting"].as_u64() == u64::try_from(count).ok()
    });
}

/// A holder and waiters of redlock. Each waiter starts once the one before it stands in line.
pub(crate) fn gather_redlocks(redis: &Redis, name: &str, count: usize) -> Crowd {
    let url = redis.tcp_url();
    let queue = format!("{{redlock:{name}}}:\u{1f}queue");
    let connection = std::cell::RefCell::new(redis.connection());
    let command = |job: &[String]| {
        let mut command = redlock(&url);
        command.args(["run", "-q", "--name", name, "--wait", "--"]);
        command.args(job);
        command
    };
    Crowd::gather(count, Duration::ZERO, command, |id| {
        eventually(LONG, "the next one waits", || {
            let mut length = redis::cmd("ZCARD");
            let length: usize = length.arg(&queue).query(&mut *connection.borrow_mut()).unwrap();
            length == id
        });
    })
}

/// Prints the requests and the time of a handover, with `count` waiters in line.
pub(crate) fn wire(redis: &Redis, count: usize) {
    let name = format!("bench-wire-{count}");
    let mut crowd = gather_redlocks(redis, &name, count);
    drain(redis, &mut crowd, count);
}

/// Lets all waiters have the lock in turn, and prints the requests and the time of a handover.
pub(crate) fn drain(redis: &Redis, crowd: &mut Crowd, count: usize) {
    let monitor = Monitor::new(redis);
    crowd.open_gate();
    crowd.finish();
    let requests = monitor.commands(redis).len();
    let gaps = gaps(&crowd.log());
    println!(
        "\n{count} waiters get the lock in turn: {:.1} requests on the wire for each handover, which takes {:.1} ms (p95 {:.1})",
        requests as f64 / count as f64,
        gaps.percentile(50),
        gaps.percentile(95),
    );
    in_order(&crowd.log(), count);
}

fn gaps(log: &Path) -> Samples {
    let mut samples = Samples::default();
    for pair in notes(log).windows(2) {
        assert!(pair[0].to <= pair[1].from, "two at a time");
        samples.add(pair[1].from - pair[0].to);
    }
    samples
}

fn in_order(log: &Path, count: usize) {
    let ids: Vec<usize> = notes(log).iter().map(|note| note.id).collect();
    assert_eq!(ids.len(), count + 1, "everybody has had it");
    let late = ids.windows(2).filter(|pair| pair[0] > pair[1]).count();
    assert_eq!(late, 0, "first come, first served");
    println!("  all of them had it, in the order in which they came");
}

/// Measures what a thousand waiters cost while nothing happens, and then their handovers.
pub(crate) fn thousand(redis: &Redis) {
    let mut crowd = gather_redlocks(redis, "bench-thousand", 1000);
    // The last waiters stand in line by now, but may still be busy.
    std::thread::sleep(Duration::from_secs(2));
    let pids: Vec<u32> =
        crowd.children[1..].iter().flat_map(|child| [vec![child.id()], children_of(child.id())].concat()).collect();
    let commands = || redis.info("total_commands_processed").parse::<f64>().unwrap();
    let monitor = Monitor::new(redis);
    let (before, used) = (commands(), processor_time(&pids));
    let time = Duration::from_secs(10);
    std::thread::sleep(time);
    // The second INFO counts the first one, but not itself.
    let commands = (commands() - before - 1.0) / time.as_secs_f64();
    let requests = (monitor.commands(redis).len() - 2) as f64 / time.as_secs_f64();
    let used = (processor_time(&pids) - used).as_secs_f64() / time.as_secs_f64();
    println!("\n1000 waiters ({} processes) on a held lock, for 10 s", pids.len());
    println!(
        "  {requests:.1} requests/s on the wire, {commands:.1} commands/s with those in scripts; \
         {:.2} % of one core for all waiters",
        used * 100.0
    );
    drop(monitor);
    drain(redis, &mut crowd, 1000);
}

/// The children of a process, which for a thousand waiters is much cheaper than a search through all processes.
pub(crate) fn children_of(pid: u32) -> Vec<u32> {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.unwrap_or_default();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}
