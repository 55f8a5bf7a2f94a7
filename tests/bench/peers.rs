//! redlock, and the programs that it is compared with: how each runs a command under a lock.

use crate::measure::{Samples, time};
use crate::support::{
    Authority, Directory, Monitor, Redis, SOON, Tls, compiled, die_with_parent, eventually, free_port, ms,
};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Makes a command that takes the lock of this name and runs this job. It must do nothing between fork and exec, so
/// that std starts it by posix_spawn: a fork would copy this process, which would take longer than the programs that
/// are measured.
type Contender = Box<dyn Fn(&str, &[String]) -> Command>;

pub(crate) struct Peer {
    pub(crate) name: &'static str,
    /// The peer runs in every `seldom`-th round; a slow peer has a number above 1.
    pub(crate) seldom: usize,
    pub(crate) waits: Waits,
    pub(crate) command: Contender,
}

/// How the benchmark knows that fifty contenders wait.
pub(crate) enum Waits {
    Never,
    /// All contenders wait once this time has passed since the last of them was started.
    After(Duration),
    /// The contenders stand in redlock's line. The closure makes a call of redlock, which can ask for this line.
    InLine(Box<dyn Fn() -> Command>),
}

/// On this machine.
pub(crate) struct Nodes {
    pub(crate) masters: Vec<Redis>,
    tls: Tls,
    authority: Authority,
}

impl Nodes {
    pub(crate) fn start() -> Nodes {
        let (tls, authority) = Tls::start();
        let masters = (0..5).map(|_| Redis::with_tcp(&["--maxclients", "10000"])).collect();
        Nodes { masters, tls, authority }
    }

    pub(crate) fn urls(&self, count: usize) -> String {
        let urls: Vec<String> = self.masters[..count].iter().map(Redis::tcp_url).collect();
        urls.join(",")
    }
}

pub(crate) fn own_binary() -> String {
    let path = std::env::current_exe().unwrap();
    path.into_os_string().into_string().unwrap()
}

/// A copy of the binary that `make bench` has built (REDLOCK), or else of cargo's. A fresh copy starts 0.2 to 0.6 ms
/// faster than a file that was read piece by piece (after a boot, say).
pub(crate) fn redlock_binary() -> &'static Path {
    static COPY: OnceLock<PathBuf> = OnceLock::new();
    COPY.get_or_init(|| {
        let built = std::env::var("REDLOCK").unwrap_or_else(|_| env!("CARGO_BIN_EXE_redlock").to_owned());
        let copy = Path::new(env!("CARGO_TARGET_TMPDIR")).join("measured-redlock");
        let _ = std::fs::remove_file(&copy);
        std::fs::copy(built, &copy).unwrap();
        copy
    })
}

/// A call of redlock on these nodes. With several of them, the quarantine is off, because they have just been started.
pub(crate) fn redlock(urls: &str) -> Command {
    let mut command = Command::new(redlock_binary());
    // With RUST_BACKTRACE, each error would gather a backtrace.
    command.env("REDLOCK_REDIS", urls).env_remove("RUST_BACKTRACE");
    if urls.contains(',') {
        command.env("REDLOCK_QUARANTINE", "0");
    }
    command
}

const PYTHON: &str = "
import subprocess, sys, redis
with redis.Redis.from_url(sys.argv[1]).lock(sys.argv[2], timeout=30):
    status = subprocess.call(sys.argv[3:])
sys.exit(status)";

pub(crate) const OURS: &str = "redlock run";

/// redlock as a peer. The closure makes a call without arguments, on the peer's nodes.
fn ours(name: &'static str, redlock: impl Fn() -> Command + Clone + 'static) -> Peer {
    let status = redlock.clone();
    Peer {
        name,
        seldom: 1,
        waits: Waits::InLine(Box::new(status)),
        command: Box::new(move |name, job| {
            let mut command = redlock();
            command.args(["run", "-q", "--name", name, "--wait", "--"]).args(job);
            command
        }),
    }
}

fn all_of_ours(nodes: &Nodes) -> [Peer; 4] {
    let on = |count: usize| {
        let urls = nodes.urls(count);
        move || redlock(&urls)
    };
    let (url, trusted) = (nodes.tls.url(), nodes.authority.certificate());
    let over_tls = move || {
        let mut command = redlock(&url);
        command.env("REDLOCK_TLS_CA", &trusted);
        command
    };
    [
        ours(OURS, on(1)),
        ours("redlock run, over TLS", over_tls),
        ours("redlock run, three masters", on(3)),
        ours("redlock run, five masters", on(5)),
    ]
}

/// The installed peers, beginning with floor.c, and the names of those that are not installed.
pub(crate) fn peers(nodes: &Nodes, etcd: Option<&Etcd>) -> (Vec<Peer>, Vec<&'static str>) {
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    let url = nodes.urls(1);
    let redis = &nodes.masters[0];
    let floor = compiled("floor", include_str!("floor.c"), &["-O2"]);
    found.push(in_c("C: SET NX, fork, spawn, DEL", floor, vec![redis.port().to_string()]));
    let keeper = compiled("keeper", include_str!("keeper.c"), &["-O2"]);
    let arguments = [redis.port().to_string()].into_iter().chain(scripts_of_run(redis, &url));
    found.push(in_c("C: the same scripts, and a keeper", keeper, arguments.collect()));
    found.extend(all_of_ours(nodes));
    if installed("flock", &["--version"]) {
        let directory = Directory::new();
        found.push(Peer {
            name: "flock",
            seldom: 1,
            waits: Waits::After(Duration::from_secs(1)),
            command: Box::new(move |name, job| {
                let mut command = Command::new("flock");
                command.arg(directory.path().join(name)).args(job);
                command
            }),
        });
    } else {
        missing.push("flock (util-linux)");
    }
    let place = url.clone();
    found.push(Peer {
        name: "SET NX every ms, no queue, no keeper",
        seldom: 1,
        waits: Waits::After(Duration::from_secs(1)),
        command: Box::new(move |name, job| {
            let mut command = Command::new(own_binary());
            command.args(["--poll", &place, name]).args(job);
            command
        }),
    });
    if let Some(etcd) = etcd {
        let endpoint = etcd.endpoint.clone();
        found.push(Peer {
            name: "etcdctl lock",
            seldom: 10,
            waits: Waits::After(Duration::from_secs(4)),
            command: Box::new(move |name, job| {
                let mut command = Command::new("etcdctl");
                command.env("ETCDCTL_API", "3").arg("--endpoints").arg(&endpoint);
                command.args(["lock", "--", name]).args(job);
                command
            }),
        });
    } else {
        missing.push("etcdctl lock (etcd-server, etcd-client)");
    }
    if let Some(python) = python() {
        found.push(Peer {
            name: "redis-py Lock",
            seldom: 10,
            waits: Waits::After(Duration::from_secs(9)),
            command: Box::new(move |name, job| {
                let mut command = Command::new(&python);
                command.args(["-c", PYTHON, &url, name]).args(job);
                command
            }),
        });
    } else {
        missing.push("redis-py (python3-redis)");
    }
    (found, missing)
}

/// A peer that is a C program of this folder. It gets `arguments`, then the key of the lock, then the job.
fn in_c(name: &'static str, program: PathBuf, arguments: Vec<String>) -> Peer {
    let command: Contender = Box::new(move |name, job| {
        let mut command = Command::new(&program);
        command.args(&arguments).arg(format!("c:{name}")).args(job);
        command
    });
    Peer { name, seldom: 1, waits: Waits::Never, command }
}

/// The SHA-1s of the scripts that a `run` calls, TAKE and RELEASE, which the server knows afterwards.
fn scripts_of_run(redis: &Redis, url: &str) -> Vec<String> {
    let mut run = redlock(url);
    run.args(["run", "-q", "--name", "bench-scripts", "--", "true"]);
    time(&mut run);
    let monitor = Monitor::new(redis);
    time(&mut run);
    let lines = monitor.lines(redis);
    let calls = lines.iter().filter_map(|line| line.split_once("\"EVALSHA\" \""));
    calls.filter_map(|(_, rest)| Some(rest.split_once('"')?.0.to_owned())).collect()
}

/// A python3 with redis-py. The path leads to the interpreter itself, because a wrapper script would take time.
fn python() -> Option<String> {
    let ask = ["-c", "import redis, sys; print(sys.executable)"];
    let answer = Command::new("python3").args(ask).stderr(Stdio::null()).output().ok()?;
    let path = String::from_utf8(answer.stdout).ok()?.trim().to_owned();
    (answer.status.success() && !path.is_empty()).then_some(path)
}

pub(crate) fn installed(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    let command = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// An etcd of one member.
#[derive(Debug)]
pub(crate) struct Etcd {
    child: Child,
    endpoint: String,
    _directory: Directory,
}

impl Etcd {
    /// None if etcd or etcdctl is not installed.
    pub(crate) fn start() -> Option<Etcd> {
        if !installed("etcd", &["--version"]) || !installed("etcdctl", &["version"]) {
            return None;
        }
        let directory = Directory::new();
        let [clients, peers] = [(); 2].map(|()| format!("http://127.0.0.1:{}", free_port()));
        let mut command = Command::new("etcd");
        command.args(["--name", "bench", "--initial-cluster", &format!("bench={peers}")]);
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.arg("--data-dir").arg(directory.path().join("data"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let child = die_with_parent(&mut command).spawn().unwrap();
        let etcd = Etcd { child, endpoint: clients, _directory: directory };
        eventually(SOON, "etcd serves", || {
            let mut health = Command::new("etcdctl");
            health.env("ETCDCTL_API", "3").args(["--endpoints", &etcd.endpoint]);
            health.args(["endpoint", "health"]).stdout(Stdio::null()).stderr(Stdio::null());
            health.status().unwrap().success()
        });
        Some(etcd)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The loop that everybody writes first, `--poll URL NAME JOB...`: tries SET NX every ms, renews nothing, and watches
/// no job.
pub(crate) fn poll(arguments: &[String]) {
    let mut connection = redis::Client::open(arguments[0].as_str()).unwrap().get_connection().unwrap();
    let (name, token) = (format!("poll:{}", arguments[1]), uuid::Uuid::new_v4().to_string());
    loop {
        let mut set = redis::cmd("SET");
        set.arg(&name).arg(&token).arg("NX").arg("PX").arg(30_000);
        if set.query::<Option<String>>(&mut connection).unwrap().is_some() {
            break;
        }
        std::thread::sleep(ms(1));
    }
    let status = Command::new(&arguments[2]).args(&arguments[3..]).status().unwrap();
    let script = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end";
    redis::cmd("EVAL").arg(script).arg(1).arg(&name).arg(&token).exec(&mut connection).unwrap();
    std::process::exit(status.code().unwrap_or(1));
}

/// How long redis-py takes to acquire and release its Lock: first with a new python3 for each pair, then with the same
/// one for all pairs. None if redis-py is not installed.
pub(crate) fn python_pairs(url: &str) -> Option<(Samples, Samples)> {
    let interpreter = python()?;
    let pair = "
import sys, time, redis
lock = redis.Redis.from_url(sys.argv[1]).lock('bench-py', timeout=30)
for i in range(int(sys.argv[2])):
    begin = time.monotonic_ns()
    lock.acquire()
    lock.release()
    print(time.monotonic_ns() - begin)";
    let python = |count: &str| {
        let output = Command::new(&interpreter).args(["-c", pair, url, count]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    let (mut whole, mut warm) = (Samples::default(), Samples::default());
    for _ in 0..20 {
        let begin = Instant::now();
        python("1");
        whole.add(begin.elapsed());
    }
    for line in python("105").lines().skip(5) {
        warm.add(Duration::from_nanos(line.unwrap().parse().unwrap()));
    }
    Some((whole, warm))
}
