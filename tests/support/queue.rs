//! Waiters for the lock `backup`. `Line` and `Numbered` start a waiter only when the one before it is in line, so the
//! order is known. `Contenders` compete for the lock in any order.

use super::{Directory, Redis, Running, SOON, Test, Where, any, eventually, redlock};
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Line;

impl Line {
    pub(crate) const NAME: &'static str = "backup";
    pub(crate) const KEY: &'static str = "redlock:backup";
    const QUEUE: &'static str = "{redlock:backup}:\u{1f}queue";
    const RESERVED: &'static str = "{redlock:backup}:\u{1f}reserved";

    #[track_caller]
    pub(crate) fn length(redis: &Redis) -> usize {
        redis.query(&["ZCARD", Line::QUEUE])
    }

    /// In the order of their tickets.
    #[track_caller]
    pub(crate) fn waiters(redis: &Redis) -> Vec<String> {
        redis.query(&["ZRANGE", Line::QUEUE, "0", "-1"])
    }

    /// The number of waiters that are subscribed on this node.
    #[track_caller]
    pub(crate) fn listeners(redis: &Redis) -> usize {
        redis.query::<Vec<String>>(&["PUBSUB", "CHANNELS", "{redlock:backup}:\u{1f}w:*"]).len()
    }

    /// Whether the node has neither a queue nor a reservation.
    #[track_caller]
    pub(crate) fn is_clean(redis: &Redis) -> bool {
        !redis.exists(Line::QUEUE) && !redis.exists(Line::RESERVED)
    }

    #[track_caller]
    pub(crate) fn becomes(redis: &Redis, length: usize) {
        let what = format!("{length} wait");
        eventually(SOON, &what, || Line::length(redis) == length);
    }

    /// A call of `acquire --wait` for the lock `backup`. Its standard output, the lease's token, is not checked.
    pub(crate) fn waiter<W: Where + ?Sized>(servers: &W) -> Test {
        Test::new(servers)
            .args(["acquire", "-q", "--name", Line::NAME, "--wait"])
            .stdout(any())
            .within(Duration::from_secs(60))
    }

    /// Starts the waiter, and waits until the queue of this node is longer by one.
    #[track_caller]
    pub(crate) fn join(redis: &Redis, waiter: Test) -> Running {
        let before = Line::length(redis);
        let running = waiter.spawn();
        Line::becomes(redis, before + 1);
        running
    }

    /// Waits until most of the nodes have the lock with one and the same new token, which is returned.
    #[track_caller]
    pub(crate) fn passes_from<'a>(nodes: impl IntoIterator<Item = &'a Redis> + Copy, token: &str) -> String {
        let count = nodes.into_iter().count();
        let mut next = String::new();
        eventually(SOON, "the lock is passed on", || {
            let said: Vec<String> = nodes.into_iter().filter_map(|node| node.get(Line::KEY)).collect();
            next = said.first().cloned().unwrap_or_default();
            next != token && 2 * said.iter().filter(|one| **one == next).count() > count
        });
        next
    }
}

/// Jobs that wait in line for the lock `backup`. A job that gets it adds its number and fencing token to the file
/// `order`.
#[derive(Debug)]
pub(crate) struct Numbered {
    directory: Arc<Directory>,
    running: Vec<Running>,
}

impl Numbered {
    /// Starts `count` jobs, each when `in_line` says that the jobs before it are in line.
    #[track_caller]
    pub(crate) fn join<W: Where + ?Sized>(servers: &W, count: usize, in_line: impl Fn() -> usize) -> Numbered {
        let directory = Arc::new(Directory::new());
        let join = |number: usize| {
            let test = redlock(servers, "run -q backup --wait -- sh -c").in_directory(&directory);
            let test = test.arg(format!("echo {number} $REDLOCK_FENCING_TOKEN >>order"));
            let running = test.within(Duration::from_secs(60)).spawn();
            eventually(SOON, "in line", || in_line() == number + 1);
            running
        };
        Numbered { running: (0..count).map(join).collect(), directory }
    }

    pub(crate) fn pids(&self) -> impl Iterator<Item = u32> {
        self.running.iter().map(Running::pid)
    }

    /// Waits for the end of all jobs. They must get the lock in the order of their numbers, each with a larger fencing
    /// token than the one before. Returns the first fencing token.
    #[track_caller]
    pub(crate) fn are_served_in_order(self) -> u64 {
        let count = self.running.len();
        self.running.into_iter().for_each(|waiter| drop(waiter.finish()));
        let order = std::fs::read_to_string(self.directory.path().join("order")).unwrap();
        let pair =
            |line: &str| line.split_once(' ').map(|(number, fence)| (number.parse().unwrap(), fence.parse().unwrap()));
        let order: Vec<(usize, u64)> = order.lines().filter_map(pair).collect();
        assert!(order.iter().map(|(number, _)| *number).eq(0..count), "{order:?}");
        assert!(order.is_sorted_by(|(_, one), (_, next)| one < next), "{order:?}");
        order[0].1
    }
}

/// Callers who take the lock `backup` over and over. Each job adds its fencing token to the file `order`, or `two` if
/// another job runs at the same time.
#[derive(Debug)]
pub(crate) struct Contenders {
    directory: Arc<Directory>,
    running: Vec<Running>,
}

impl Contenders {
    /// Starts `count` callers, each of which runs `jobs` jobs, one after another, with these further arguments of
    /// `run`.
    pub(crate) fn start<W: Where + ?Sized>(servers: &W, count: usize, jobs: usize, arguments: &str) -> Contenders {
        let directory = Arc::new(Directory::new());
        // The kernel frees flock's lock on the file `busy` when the job ends, even if it was killed.
        let job = "flock -n busy sh -c 'echo $REDLOCK_FENCING_TOKEN >>order; sleep 0.01' || echo two >>order";
        std::fs::write(directory.path().join("job"), job).unwrap();
        let script = format!(
            "for job in $(seq {jobs}); do redlock run -q --name backup --wait 30s {arguments} -- sh ./job; done; true"
        );
        let contender = |_| {
            // In some tests the servers fail, and the callers report this.
            let test = Test::sh(servers, &script).in_directory(&directory).stderr(any());
            test.within(Duration::from_secs(120)).spawn()
        };
        Contenders { running: (0..count).map(contender).collect(), directory }
    }

    pub(crate) fn jobs(&self) -> usize {
        self.order().len()
    }

    #[track_caller]
    pub(crate) fn go_on(&self, jobs: usize) {
        let before = self.jobs();
        eventually(Duration::from_secs(40), "the lock changes hands", || self.jobs() >= before + jobs);
    }

    /// Waits for the end of all callers. At least `jobs` jobs must have begun, no two at a time, each with a larger
    /// fencing token than the one before.
    #[track_caller]
    pub(crate) fn finish(mut self, jobs: usize) {
        self.running.drain(..).for_each(|running| drop(running.finish()));
        let order = self.order();
        assert!(order.iter().all(Option::is_some), "two at a time: {order:?}");
        assert!(order.is_sorted_by(|one, next| one < next), "{order:?}");
        assert!(order.len() >= jobs, "{} jobs, and not {jobs}", order.len());
    }

    fn order(&self) -> Vec<Option<u64>> {
        let text = std::fs::read_to_string(self.directory.path().join("order")).unwrap_or_default();
        text.lines().map(|line| line.parse().ok()).collect()
    }
}

/// The processor time that these processes have used so far.
pub(crate) fn processor_time(pids: impl IntoIterator<Item = u32>) -> Duration {
    let ticks: u64 = pids
        .into_iter()
        .map(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
            fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
        })
        .sum();
    Duration::from_millis(ticks * 10) // a tick is 10 ms on every Linux
}
