//! A real redis-server for one test, on a Unix socket in a directory of its own, and optionally on a TCP port.

use super::{Directory, Network, SOON, alive, cannot_start, compiled, die_with_parent, send};
use nix::sys::signal::Signal;
use redis::{FromRedisValue, IntoConnectionInfo};
use std::ffi::OsString;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A running server, which dies on drop. If the test has failed, its log is printed.
#[derive(Debug)]
pub(crate) struct Redis {
    directory: Directory,
    child: Child,
    arguments: Vec<String>,
    port: Option<u16>,
    password: Option<String>,
    /// In seconds, added to the uptime that the server shows.
    age: i64,
    network: Option<Arc<Network>>,
}

/// The wall clock of a server, which a test can set by the file CLOCK_FILE: see clock.c.
#[derive(Clone, Debug)]
pub(crate) struct ServerClock(PathBuf);

impl ServerClock {
    /// Sets the server's clock to this machine's time plus `ahead`.
    pub(crate) fn set(&self, ahead: Duration) {
        let microseconds = i64::try_from(ahead.as_micros()).unwrap();
        // The file is changed, not replaced, because the server has mapped it into its memory.
        let file = std::fs::OpenOptions::new().write(true).open(&self.0).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &microseconds.to_ne_bytes(), 0).unwrap();
    }
}

pub(crate) trait Where {
    fn urls(&self) -> Vec<String>;

    /// The environment variables that a call of redlock needs for these servers, apart from the list of URLs.
    fn environment(&self) -> Vec<(String, String)> {
        Vec::new()
    }
}

impl Where for Redis {
    fn urls(&self) -> Vec<String> {
        vec![self.url()]
    }
}

impl Where for str {
    fn urls(&self) -> Vec<String> {
        vec![self.to_owned()]
    }
}

impl Where for Vec<Redis> {
    fn urls(&self) -> Vec<String> {
        self.iter().map(Redis::url).collect()
    }
}

impl Where for [String] {
    fn urls(&self) -> Vec<String> {
        self.to_vec()
    }
}

impl Where for Vec<String> {
    fn urls(&self) -> Vec<String> {
        self.clone()
    }
}

impl Redis {
    /// A server on a Unix socket, without TCP.
    pub(crate) fn start() -> Redis {
        Redis::with(&[])
    }

    /// A server that takes `delay` microseconds to load each key, and answers requests meanwhile. None with Redis 6,
    /// which answers too seldom while it loads.
    pub(crate) fn loading_slowly(delay: &str) -> Option<Redis> {
        let version = Command::new(program()).arg("--version").output().unwrap().stdout;
        if String::from_utf8_lossy(&version).contains("v=6.") {
            eprintln!("not tried: Redis 6 answers too seldom while it loads");
            return None;
        }
        Some(Redis::with(&["--key-load-delay", delay, "--loading-process-events-interval-bytes", "1024"]))
    }

    /// With these arguments, data survives SIGKILL: the server hands each write to the kernel before it answers. (With
    /// `appendfsync always`, it would also wait for the disk.)
    pub(crate) const DURABLE: &[&str] = &["--appendonly", "yes", "--appendfsync", "no"];

    pub(crate) fn durable() -> Redis {
        Redis::with(Redis::DURABLE)
    }

    /// A server with further lines of configuration, as arguments: `&["--maxmemory", "1mb"]`.
    pub(crate) fn with(arguments: &[&str]) -> Redis {
        let redis = Redis::launch(arguments, None);
        redis.ready();
        redis
    }

    pub(crate) fn with_tcp(arguments: &[&str]) -> Redis {
        Redis::on_free_port(|port| Redis::launch(arguments, Some(port)))
    }

    /// Starts a replica, and waits until it has the data of `primary`.
    pub(crate) fn replica_of(primary: &Redis, arguments: &[&str]) -> Redis {
        let port = primary.port().to_string();
        let replica = ["--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1", &port];
        let replica = Redis::with_tcp(&[&replica, arguments].concat());
        super::eventually(SOON, "in step", || replica.info("master_link_status") == "up");
        replica
    }

    pub(crate) fn on_default_port(network: &Arc<Network>) -> Redis {
        let redis = Redis::launch_in(Directory::new(), Some(network), &[], Some(6379), 0);
        redis.ready();
        redis
    }

    /// A server that speaks TLS on a TCP port; the arguments name its certificate and key.
    pub(super) fn with_tls_port(arguments: &[&str]) -> Redis {
        Redis::on_free_port(|port| {
            let number = port.to_string();
            let mut redis = Redis::launch(&[&["--tls-port", &number], arguments].concat(), None);
            redis.port = Some(port);
            redis
        })
    }

    /// Calls `launch` with a free port, and returns the launched server once it answers.
    pub(super) fn on_free_port(mut launch: impl FnMut(u16) -> Redis) -> Redis {
        let mut log = String::new();
        // If another process takes the free port before the server does, the server ends at once.
        for _ in 0..5 {
            let mut redis = launch(free_port());
            if redis.became_ready() {
                return redis;
            }
            log = redis.log();
        }
        panic!("redis-server ended each time:\n{log}");
    }

    pub(crate) fn several(count: usize) -> Vec<Redis> {
        Redis::aged(count, 0)
    }

    /// Several servers, each of which says that it was started this many seconds ago. A negative number means a start
    /// in the future, as after a clock was set back.
    pub(crate) fn aged(count: usize, seconds: i64) -> Vec<Redis> {
        let servers: Vec<Redis> = (0..count).map(|_| Redis::launch_aged(&[], None, seconds)).collect();
        servers.iter().for_each(Redis::ready);
        if seconds != 0 {
            let reported: i64 = servers[0].info("uptime_in_seconds").parse().unwrap();
            assert!((reported - seconds).abs() < 60, "redis-server does not heed the other clock: {reported}");
        }
        servers
    }

    /// A server whose wall clock can be set, and which says that it was started this many seconds ago.
    pub(crate) fn with_clock(arguments: &[&str], age: i64) -> Redis {
        let directory = Directory::new();
        std::fs::write(directory.path().join("clock"), 0_i64.to_ne_bytes()).unwrap();
        let redis = Redis::launch_in(directory, None, arguments, None, age);
        redis.ready();
        redis
    }

    pub(crate) fn clock(&self) -> ServerClock {
        ServerClock(self.directory.path().join("clock"))
    }

    pub(super) fn launch(arguments: &[&str], port: Option<u16>) -> Redis {
        Redis::launch_aged(arguments, port, 0)
    }

    fn launch_aged(arguments: &[&str], port: Option<u16>, age: i64) -> Redis {
        Redis::launch_in(Directory::new(), None, arguments, port, age)
    }

    fn launch_in(
        directory: Directory,
        network: Option<&Arc<Network>>,
        arguments: &[&str],
        port: Option<u16>,
        age: i64,
    ) -> Redis {
        let arguments: Vec<String> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let password =
            arguments.iter().position(|argument| argument == "--requirepass").map(|at| arguments[at + 1].clone());
        let network = network.map(Arc::clone);
        let child = spawn(&directory, &arguments, port, age, network.as_deref());
        Redis { directory, child, arguments, port, password, age, network }
    }

    #[track_caller]
    fn ready(&self) {
        let start = Instant::now();
        while !self.pings() {
            assert!(start.elapsed() < SOON, "redis-server does not answer:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the server answers; false if the server's process ends instead.
    fn became_ready(&mut self) -> bool {
        let start = Instant::now();
        while start.elapsed() < SOON {
            if self.pings() {
                return true;
            }
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("redis-server does not answer:\n{}", self.log());
    }

    fn pings(&self) -> bool {
        // An error from the server, except LOADING, counts as an answer: the server may demand a password, or be a
        // replica without data.
        match self.try_connection() {
            Ok(mut connection) => match redis::cmd("PING").query::<String>(&mut connection) {
                Ok(_) => true,
                Err(error) => !error.is_io_error() && error.code() != Some("LOADING"),
            },
            Err(error) => !error.is_io_error(),
        }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// Without a password.
    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port())
    }

    pub(crate) fn tcp_url(&self) -> String {
        format!("redis://{}", self.address())
    }

    pub(crate) fn port(&self) -> u16 {
        self.port.expect("a server started by with_tcp")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Gives the server a real-time priority, where permitted, because its slow log also counts the time in which a
    /// script waits for a processor.
    pub(crate) fn go_first(&self) {
        let _ =
            Command::new("chrt").args(["--fifo", "-p", "1", &self.pid().to_string()]).stderr(Stdio::null()).status();
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    /// A connection for raw commands. If the server hangs, a command fails after [`SOON`].
    #[track_caller]
    pub(crate) fn connection(&self) -> redis::Connection {
        self.try_connection().unwrap()
    }

    fn try_connection(&self) -> redis::RedisResult<redis::Connection> {
        let password = self.password.as_ref().map(|password| format!("?pass={password}")).unwrap_or_default();
        let info = format!("{}{password}", self.url()).into_connection_info()?;
        // Tests count and watch commands, so their own client must not add CLIENT SETINFO.
        let settings = info.redis_settings().clone().set_skip_set_lib_name();
        let connection = redis::Client::open(info.set_redis_settings(settings))?.get_connection()?;
        connection.set_read_timeout(Some(SOON))?;
        connection.set_write_timeout(Some(SOON))?;
        Ok(connection)
    }

    /// Sends one command to the server, on a new connection.
    pub(crate) fn try_query<T: FromRedisValue>(&self, command: &[&str]) -> redis::RedisResult<T> {
        let mut request = redis::cmd(command[0]);
        for argument in &command[1..] {
            request.arg(*argument);
        }
        request.query(&mut self.try_connection()?)
    }

    /// Sends one command to the server, which must succeed.
    #[track_caller]
    pub(crate) fn query<T: FromRedisValue>(&self, command: &[&str]) -> T {
        loop {
            match self.try_query(command) {
                Ok(value) => return value,
                // The client library does not repeat a system call that a signal has interrupted (connect(2), EINTR).
                Err(error) if error.to_string().contains("Interrupted system call") => {}
                Err(error) => panic!("{command:?}: {error}"),
            }
        }
    }

    /// As [`Redis::query`], if the answer does not matter.
    #[track_caller]
    pub(crate) fn command(&self, command: &[&str]) {
        let _: redis::Value = self.query(command);
    }

    #[track_caller]
    pub(crate) fn get(&self, key: &str) -> Option<String> {
        self.query(&["GET", key])
    }

    /// The milliseconds until the key expires. −1: the key never expires. −2: the key does not exist.
    #[track_caller]
    pub(crate) fn pttl(&self, key: &str) -> i64 {
        self.query(&["PTTL", key])
    }

    #[track_caller]
    pub(crate) fn exists(&self, key: &str) -> bool {
        self.query(&["EXISTS", key])
    }

    /// The names of all keys, sorted, without those of history, which outlive the locks that most tests are about.
    #[track_caller]
    pub(crate) fn keys_without_history(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.query(&["KEYS", "*"]);
        let of_memory = ["log", "runs", "visits", "tries"].map(|part| format!("\u{1f}{part}"));
        keys.retain(|key| of_memory.iter().all(|part| !key.ends_with(part)));
        keys.sort();
        keys
    }

    #[track_caller]
    pub(crate) fn info(&self, field: &str) -> String {
        let info: String = self.query(&["INFO", "everything"]);
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {field} in INFO")).to_owned()
    }

    /// Stops the server's process. Connections stay open, and the kernel accepts new ones, but nothing is answered
    /// until [`Redis::resume`].
    pub(crate) fn pause(&self) {
        send(self.pid(), Signal::SIGSTOP);
        super::eventually(SOON, "redis-server stopped", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid())).unwrap();
            stat[stat.rfind(')').unwrap()..].starts_with(") T")
        });
    }

    pub(crate) fn resume(&self) {
        send(self.pid(), Signal::SIGCONT);
    }

    /// Kills the server by SIGKILL. Data that it has not saved is lost.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let _ = std::fs::remove_file(self.socket());
    }

    /// Starts the server again at the same addresses, and waits until it answers. It is then empty, unless it has saved
    /// its data.
    #[track_caller]
    pub(crate) fn restart(&mut self) {
        self.restart_aged(0);
    }

    /// As [`Redis::restart`], but the server says that it was started this many seconds ago.
    #[track_caller]
    pub(crate) fn restart_aged(&mut self, seconds: i64) {
        self.age = seconds;
        self.restart_unready();
        self.ready();
    }

    /// As [`Redis::restart`], but does not wait until the server answers.
    pub(crate) fn restart_unready(&mut self) {
        if alive(self.pid()) {
            self.kill();
        }
        self.child = spawn(&self.directory, &self.arguments, self.port, self.age, self.network.as_deref());
    }
}

fn spawn(directory: &Directory, arguments: &[String], port: Option<u16>, age: i64, network: Option<&Network>) -> Child {
    let mut command = Command::new(program());
    if let Some(network) = network {
        network.enter(&mut command);
    }
    let clock = directory.path().join("clock");
    if age != 0 || clock.exists() {
        command.env("LD_PRELOAD", other_clocks()).env("TIME_SHIFT", (-age).to_string()).env("CLOCK_FILE", clock);
    }
    command.args(["--port", &port.unwrap_or(0).to_string(), "--bind", "127.0.0.1"]);
    command.args(["--unixsocket", "s", "--unixsocketperm", "700", "--logfile", "log"]);
    command.args(["--save", "", "--appendonly", "no", "--databases", "16"]);
    command.arg("--dir").arg(directory.path()).args(arguments);
    command.current_dir(directory.path()).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    die_with_parent(&mut command).spawn().unwrap_or_else(|error| cannot_start(&command, &error))
}

/// The server to test with: the SERVER of `make test SERVER=…`, else redis-server.
pub(super) fn program() -> OsString {
    std::env::var_os("TEST_SERVER").unwrap_or_else(|| "redis-server".into())
}

pub(crate) fn other_clocks() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| compiled("clock.so", include_str!("clock.c"), &["-shared", "-fPIC"]))
}

impl Drop for Redis {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of redis-server {}:\n{}", self.pid(), self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A free TCP port of 127.0.0.1. The port + 10,000 is a valid port, too, because a server of a Cluster needs both.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if port <= u16::MAX - 10_000 {
            return port;
        }
    }
}
