//! README's crontab for many hosts, with shorter times. Three hosts start at the same second, and meet each fault that
//! README promises to survive. The job succeeds if any host can run it, standard error (which cron mails) says only
//! what went wrong, and the check in the morning reports the truth. Also README's recipe for a job that must not run
//! twice, and the cost of 29 waiting hosts.

use crate::docs::readme::{Block, blocks};
use crate::support::{
    Directory, Ended, Line, Pattern, Redis, Running, SOON, Test, any, command_calls, eventually, like, message, ms,
    name, send, tagged,
};
use nix::sys::signal::Signal;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Two hours become twenty seconds.
const SHRINKAGE: u32 = 360;

/// The check in the morning, shortened, too. All three hosts have the name of this machine, and count as one host.
const MORNING: &str = "./redlock check backup --within 50s --min-hosts 1";

/// A word of a command line, in which a duration in hours or minutes, or a day, is shortened.
fn shortened(word: &str) -> String {
    let word = if word == "day" { "24h" } else { word };
    let is_duration = word.ends_with(['h', 'm']) && word.starts_with(|c: char| c.is_ascii_digit());
    match humantime::parse_duration(word) {
        Ok(time) if is_duration => format!("{}ms", (time / SHRINKAGE).as_millis()),
        _ => word.to_owned(),
    }
}

/// README's crontab for the night.
pub(crate) fn crontab() -> String {
    let is_it = |block: &Block| block.language == "crontab" && block.text.contains("--max-run");
    blocks().into_iter().find(is_it).expect("a crontab in README").text
}

/// Three hosts with README's crontab, and a job whose n-th run executes the plan's n-th line.
struct Night {
    redis: Vec<Redis>,
    directory: Arc<Directory>,
    /// The call of the crontab.
    line: String,
}

impl Night {
    fn new(plan: &[&str]) -> Night {
        Night::on(1, plan)
    }

    /// With this number of masters.
    fn on(masters: usize, plan: &[&str]) -> Night {
        let directory = Arc::new(Directory::new());
        // The kernel's lock shows whether two jobs run at the same time.
        let job = "#!/bin/sh
            exec 9>>job.lock; flock -n 9 || echo \"$HOST ran beside another\" >>faults
            echo \"$HOST\" >>runs
            eval \"$(sed -n \"$(wc -l <runs)p\" plan)\"
            echo \"$HOST\" >>successes\n";
        directory.program("backup", job);
        symlink(env!("CARGO_BIN_EXE_redlock"), directory.path().join("redlock")).unwrap();
        fs::write(directory.path().join("plan"), plan.join("\n") + "\n").unwrap();
        let crontab = crontab();
        let line = crontab.lines().find(|line| line.contains("/redlock ")).expect("a job");
        let line = line.split_whitespace().skip(5).map(shortened).collect::<Vec<_>>().join(" ");
        let line =
            line.replace("/usr/local/bin/", "./").replace("/usr/bin/", "./").replacen(" -- ", " --ttl 5s -- ", 1);
        Night { redis: (0..masters).map(|_| Redis::durable()).collect(), directory, line }
    }

    /// A line, as cron calls it.
    fn call(&self, line: &str) -> Test {
        let test = Test::sh(&self.redis, line).in_directory(&self.directory).env("PATH", "/usr/bin:/bin");
        test.within(Duration::from_secs(60))
    }

    /// All hosts start at the same second.
    fn falls(&self) -> Vec<Running> {
        let host = |number: u32| self.call(&self.line).env("HOST", number.to_string()).any_end().stderr(any()).spawn();
        (1..=3).map(host).collect()
    }

    fn noted(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.directory.path().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until the job runs, and the other hosts stand in line.
    fn is_under_way(&self) {
        eventually(SOON, "one runs it, two wait", || {
            self.noted("runs").len() == 1 && Line::length(&self.redis[0]) == 2
        });
    }

    /// Waits until the hosts end. For each pair in `troubles`, one host ends with this status and this mail, and the
    /// others with 0 and in silence. The job has run `runs` times, and succeeded `successes` times.
    #[track_caller]
    fn ends(&self, hosts: Vec<Running>, troubles: &[(i32, &str)], runs: usize, successes: usize) {
        let mut left: Vec<(i32, Pattern)> = troubles.iter().map(|(status, said)| (*status, like(said))).collect();
        for host in hosts {
            let finished = host.finish();
            let (ended, said) = (finished.ended, finished.stderr);
            assert_eq!(finished.stdout, "");
            if (ended, said.as_str()) != (Ended::Status(0), "") {
                let is_it =
                    |(status, pattern): &(i32, Pattern)| ended == Ended::Status(*status) && pattern.matches(&said);
                let found = left.iter().position(is_it).unwrap_or_else(|| panic!("{ended:?} {said:?}"));
                left.remove(found);
            }
        }
        assert!(left.is_empty(), "missing: {left:?}");
        assert_eq!(self.noted("faults"), [""; 0]);
        assert_eq!((self.noted("runs").len(), self.noted("successes").len()), (runs, successes));
    }

    /// The crontab's call for the morning ends with this status, and says this.
    #[track_caller]
    fn dawns(&self, status: i32, said: &str) {
        self.call(MORNING).status(status).stdout(like(format!("{said}\n"))).run();
    }
}

const SUCCESS: &str = "1 lock in order";
const NO_SUCCESS: &str =
    "backup: no success within 50s, none is known; 1 host came, the last <any>. redlock log backup -v";

#[test]
fn the_next_host_in_line_repeats_what_failed_and_the_others_go_home() {
    for (masters, fails) in [(1, 0), (1, 1), (1, 2), (1, 3), (3, 1), (3, 2)] {
        let night = Night::on(masters, &["echo 'no space left' >&2; exit 1"; 3][..fails]);
        let hosts = night.falls();
        let mails = vec![(1, "no space left\n"); fails];
        night.ends(hosts, &mails, (fails + 1).min(3), usize::from(fails < 3));
        match fails {
            0..3 => night.dawns(0, SUCCESS),
            _ => night.dawns(1, &format!("{NO_SUCCESS}\nbackup: failed on <any>, exit 1; 1 host came<any>")),
        }
        // A host whose clock is late runs the job only if no host has succeeded.
        let late = night.call(&night.line).env("HOST", "late").run();
        assert!(late.elapsed < SOON);
        assert_eq!(night.noted("successes").len(), 1);
        night.dawns(0, SUCCESS);
    }
}

#[test]
fn a_job_that_hangs_is_stopped_and_the_next_host_runs_it() {
    let night = Night::new(&["sleep 1000"]);
    let hosts = night.falls();
    night.is_under_way();
    night.dawns(1, NO_SUCCESS);
    night.ends(hosts, &[(124, "redlock: <any>--max-run<any>\n")], 2, 1);
    night.dawns(0, SUCCESS);
}

#[test]
fn a_host_that_dies_with_its_job_is_replaced() {
    for masters in [1, 3] {
        let night = Night::on(masters, &["sleep 1000"]);
        let mut hosts = night.falls();
        night.is_under_way();
        let dead = night.noted("runs")[0].parse::<usize>().unwrap() - 1;
        let dead = hosts.remove(dead);
        // A process that is just forking may leave a child, so the kill is repeated.
        eventually(SOON, "nothing of it is left", || {
            let left = tagged(dead.tag());
            left.iter().for_each(|&pid| send(pid, Signal::SIGKILL));
            left.is_empty()
        });
        night.ends(hosts, &[], 2, 1);
        // With three nodes, one may have granted late. There the dead host's lease ended after the success, so the call
        // in the morning also reports how the dead host's run ended.
        night.dawns(0, &if masters == 1 { SUCCESS.to_owned() } else { format!("{SUCCESS}<any>") });
    }
}

#[test]
fn a_redis_that_comes_a_second_late_costs_nothing() {
    let mut night = Night::new(&[]);
    night.redis[0].kill();
    let hosts = night.falls();
    std::thread::sleep(ms(1000));
    night.redis[0].restart();
    night.ends(hosts, &[], 1, 1);
    night.dawns(0, SUCCESS);
}

#[test]
fn a_restart_of_redis_while_the_job_runs_costs_nothing() {
    for (first, mails, runs) in [("", &[][..], 1), ("; exit 1", &[(1, "")], 2)] {
        let mut night = Night::new(&[&format!("while [ ! -e go ]; do sleep 0.05; done{first}")]);
        let hosts = night.falls();
        night.is_under_way();
        night.redis[0].kill();
        std::thread::sleep(ms(1000));
        night.redis[0].restart();
        eventually(SOON, "two wait", || Line::listeners(&night.redis[0]) == 2);
        fs::write(night.directory.path().join("go"), "").unwrap();
        night.ends(hosts, mails, runs, 1);
        night.dawns(0, SUCCESS);
    }
}

#[test]
fn where_redis_is_away_all_night_each_host_says_that_the_job_did_not_run() {
    let mut night = Night::new(&[]);
    night.redis[0].kill();
    let mail = (69, "redlock: \"backup\" did not run: <node> is unreachable <any>\n");
    night.ends(night.falls(), &[mail; 3], 0, 0);
    let morning = night.call(MORNING).status(69);
    morning.stderr(like("redlock: \"backup\": <node> is unreachable <any>\n")).run();
    night.redis[0].restart();
    night.call(MORNING).status(1).stderr(message(["nothing to check"])).run();
}

/// The number that stands before these words in the list of what the crontab costs.
fn price(words: &str) -> f64 {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/redis.md")).unwrap();
    let list = page.split_once("**29 hosts that wait for two hours**").expect("what waiting costs").1;
    let list = list.split_once("\n\n").unwrap().0.split_whitespace().collect::<Vec<_>>().join(" ");
    let before = list.split_once(words).unwrap_or_else(|| panic!("{words} in {list}")).0;
    before.rsplit(' ').find(|word| !word.is_empty()).unwrap().parse().unwrap()
}

#[test]
fn thirty_hosts_in_line_cost_what_docs_say() {
    let night = Night::new(&["sleep 1000"]);
    let memory = || night.redis[0].info("used_memory").parse::<f64>().unwrap();
    let empty = memory();
    let line = night
        .line
        .replace("--once-per 240000ms", "--once-per day")
        .replace("--max-run 15000ms ", "")
        .replace("--ttl 5s ", "");
    let host = |_| night.call(&line).env("HOST", "any").any_end().stderr(any()).spawn();
    let hosts: Vec<Running> = (0..30).map(host).collect();
    eventually(SOON * 3, "29 wait", || Line::listeners(&night.redis[0]) == 29);
    let counts = || {
        [command_calls(&night.redis[0])["evalsha"], night.redis[0].info("total_commands_processed").parse().unwrap()]
    };
    let (before, start) = (counts(), Instant::now());
    std::thread::sleep(ms(10_000));
    let (after, seconds) = (counts(), start.elapsed().as_secs_f64());
    // On a busy machine the waiters look less often.
    let is = |measured: f64, words: &str| {
        let promised = price(words);
        assert!(
            (promised * 0.5..=promised * 1.25).contains(&measured),
            "{measured} {words}: {promised} in docs/redis.md"
        );
    };
    is((after[0] - before[0]) as f64 / seconds, "requests");
    is((after[1] - before[1]) as f64 / seconds, "commands");
    // The holder's connection and the test's own do not count.
    is(night.redis[0].info("connected_clients").parse::<f64>().unwrap() - 2.0, "connections");
    // Requests under way take some memory for a moment.
    eventually(SOON, "they take no more memory", || memory() - empty < price("MB of memory") * 1e6);
    drop(hosts);
}

#[test]
fn the_manual_and_docs_have_the_same_crontab() {
    let crontab = crontab();
    let line = crontab.lines().find(|line| line.contains("--once-per")).unwrap();
    for page in ["man/src/redlock.man", "docs/cron.md"] {
        let page = fs::read_to_string(format!("{}/{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
        assert!(page.contains(line), "{line:?}");
    }
}

#[test]
fn a_job_that_an_outage_of_redis_stops_is_repeated() {
    let mut night = Night::new(&["sleep 1000"]);
    let hosts = night.falls();
    night.is_under_way();
    night.redis[0].kill();
    let holder = &hosts[night.noted("runs")[0].parse::<usize>().unwrap() - 1];
    eventually(SOON * 2, "its job is stopped", || holder.job().iter().all(|&pid| name(pid) == "redlock"));
    night.redis[0].restart();
    let mail = "<lines>redlock: cannot renew \"backup\": <any>; <any>\n<lines>redlock: lost \"backup\": <any>\n";
    night.ends(hosts, &[(76, mail)], 2, 1);
    night.dawns(0, SUCCESS);
}

#[test]
fn a_redis_that_is_away_for_a_second_at_the_jobs_end_costs_nothing() {
    let mut night = Night::new(&["while [ ! -e go ]; do sleep 0.05; done"]);
    let hosts = night.falls();
    night.is_under_way();
    night.redis[0].kill();
    fs::write(night.directory.path().join("go"), "").unwrap();
    eventually(SOON, "the job has ended", || night.noted("successes").len() == 1);
    std::thread::sleep(ms(1000));
    night.redis[0].restart();
    night.ends(hosts, &[], 1, 1);
    night.dawns(0, SUCCESS);
}
