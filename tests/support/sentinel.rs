//! A primary, its replicas, and three Sentinels that watch them.

use super::redis::program;
use super::{Authority, Directory, Redis, SOON, Where, cannot_start, die_with_parent, eventually, free_port, ms, send};
use nix::sys::signal::Signal;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A failover may take this long, even if the machine is busy.
pub(crate) const FAIL_OVER: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(crate) struct Sentinels {
    /// The first is the primary at the start.
    pub(crate) servers: Vec<Redis>,
    sentinels: Vec<Sentinel>,
}

#[derive(Debug)]
struct Sentinel {
    directory: Directory,
    child: Child,
    port: u16,
    /// The test asks the Sentinel here, without TLS.
    plain_port: u16,
    password: Option<String>,
}

impl Where for Sentinels {
    fn urls(&self) -> Vec<String> {
        vec![self.url()]
    }
}

impl Sentinels {
    pub(crate) const SERVICE: &'static str = "mymaster";
    pub(crate) const CALM: &'static str = "sentinel down-after-milliseconds mymaster 60000";
    const HASTY: &'static str = "sentinel down-after-milliseconds mymaster 500";

    /// A primary with this many replicas. The Sentinels count a primary as dead after a minute of silence.
    pub(crate) fn start(replicas: usize) -> Sentinels {
        Sentinels::with(replicas, &[], Sentinels::CALM)
    }

    /// As [`Sentinels::start`], but half a second of silence is enough.
    pub(crate) fn failing_over(replicas: usize) -> Sentinels {
        Sentinels::with(replicas, &[], Sentinels::HASTY)
    }

    /// As [`Sentinels::failing_over`], but all servers and Sentinels speak TLS.
    pub(crate) fn by_tls(replicas: usize, authority: &Authority) -> Sentinels {
        let arguments = authority.issue("IP:127.0.0.1", 2).everywhere(authority);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let lines: Vec<String> = arguments.chunks(2).map(|pair| format!("{} {}", &pair[0][2..], pair[1])).collect();
        let lines = [&lines[..], &[Sentinels::HASTY.to_owned()]].concat();
        Sentinels::with(replicas, &arguments, &lines.join("\n"))
    }

    /// A primary with this many replicas, further arguments for each server, and lines of configuration for each
    /// Sentinel.
    pub(crate) fn with(replicas: usize, arguments: &[&str], lines: &str) -> Sentinels {
        let launch = if arguments.contains(&"--tls-cert-file") { Redis::with_tls_port } else { Redis::with_tcp };
        let primary = launch(&[arguments, &["--repl-diskless-sync-delay", "0"]].concat());
        let port = primary.port().to_string();
        let mut servers = vec![primary];
        for _ in 0..replicas {
            let replica = ["--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1", &port];
            servers.push(launch(&[arguments, &replica].concat()));
        }
        // A replica may count as online before any write has reached it. So this waits until one write has reached all
        // of them.
        let mut connection = servers[0].connection();
        let ask = |request: &[&str], connection: &mut redis::Connection| -> usize {
            let mut command = redis::cmd(request[0]);
            command.arg(&request[1..]).query(connection).unwrap()
        };
        ask(&["INCR", "replicated"], &mut connection);
        let wanted = replicas.to_string();
        eventually(SOON, "replicated", || ask(&["WAIT", &wanted, "1000"], &mut connection) == replicas);
        ask(&["DEL", "replicated"], &mut connection);
        // The configuration lists the other Sentinels, because they would take seconds to find each other.
        let ports: Vec<u16> = servers[1..].iter().map(Redis::port).collect();
        loop {
            // If another test takes a free port before the Sentinel does, the Sentinel ends at once, and all are
            // started anew.
            let peers: Vec<(u16, String)> = (1..=3).map(|id| (free_port(), format!("{id:040}"))).collect();
            let start = |me| Sentinel::start(me, &peers, &servers[0], &ports, lines);
            let mut sentinels: Vec<Sentinel> = peers.iter().map(start).collect();
            if sentinels.iter_mut().all(Sentinel::became_ready) {
                return Sentinels { servers, sentinels };
            }
        }
    }

    /// Without a password.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(|one| format!("127.0.0.1:{}", one.port)).collect();
        format!("redis+sentinel://{}/{}", hosts.join(","), Sentinels::SERVICE)
    }

    /// Waits until another server than `old` is the primary, and returns its index. It must say so itself, and so must
    /// most of the Sentinels that answer.
    #[track_caller]
    pub(crate) fn fails_over_from(&self, old: usize) -> usize {
        let start = Instant::now();
        loop {
            let named: Vec<u16> = self.sentinels.iter().filter_map(Sentinel::primary).collect();
            let is_new = |at: &usize| {
                let port = self.servers[*at].port();
                *at != old && named.iter().filter(|&&one| one == port).count() > named.len() / 2
            };
            if let Some(new) = (0..self.servers.len()).find(is_new)
                && self.servers[new].info("role") == "master"
            {
                return new;
            }
            assert!(start.elapsed() < FAIL_OVER, "no failover:\n{}", self.sentinels[0].log());
            std::thread::sleep(ms(20));
        }
    }

    pub(crate) fn kill(&mut self, sentinel: usize) {
        self.sentinels[sentinel].child.kill().unwrap();
        self.sentinels[sentinel].child.wait().unwrap();
    }

    #[track_caller]
    pub(crate) fn command(&self, sentinel: usize, words: &[&str]) {
        let mut request = redis::cmd(words[0]);
        request.arg(&words[1..]);
        let _: redis::Value = request.query(&mut self.sentinels[sentinel].connection().unwrap()).unwrap();
    }

    /// Stops a Sentinel's process. The kernel still accepts connections to it, but nobody answers.
    pub(crate) fn pause(&self, sentinel: usize) {
        send(self.sentinels[sentinel].child.id(), Signal::SIGSTOP);
    }

    pub(crate) fn resume(&self, sentinel: usize) {
        send(self.sentinels[sentinel].child.id(), Signal::SIGCONT);
    }
}

impl Sentinel {
    fn start(me: &(u16, String), peers: &[(u16, String)], primary: &Redis, replicas: &[u16], lines: &str) -> Sentinel {
        let (directory, (port, id), name) = (Directory::new(), me, Sentinels::SERVICE);
        let (plain_port, tls) = match lines.contains("tls-cert-file") {
            true => (free_port(), format!("tls-port {port}\n")),
            false => (*port, String::new()),
        };
        let mut config = format!(
            "{tls}port {plain_port}\nbind 127.0.0.1\nlogfile log\nsentinel myid {id}\n{lines}\n\
             sentinel monitor {name} 127.0.0.1 {} 2\nsentinel failover-timeout {name} 3000\n",
            primary.port()
        );
        for port in replicas {
            config.push_str(&format!("sentinel known-replica {name} 127.0.0.1 {port}\n"));
        }
        for (port, peer) in peers.iter().filter(|(_, peer)| peer != id) {
            config.push_str(&format!("sentinel known-sentinel {name} 127.0.0.1 {port} {peer}\n"));
        }
        let file = directory.path().join("sentinel.conf");
        std::fs::write(&file, config).unwrap();
        let mut command = Command::new(program());
        command.arg(&file).arg("--sentinel").current_dir(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = die_with_parent(&mut command).spawn().unwrap_or_else(|error| cannot_start(&command, &error));
        let password = lines.lines().find_map(|line| line.strip_prefix("requirepass ")).map(str::to_owned);
        Sentinel { directory, child, port: *port, plain_port, password }
    }

    /// Waits until the Sentinel names a primary; false if its process ends instead.
    fn became_ready(&mut self) -> bool {
        let mut ended = false;
        eventually(SOON, "the Sentinel answers", || {
            ended = self.child.try_wait().unwrap().is_some();
            ended || self.primary().is_some()
        });
        !ended
    }

    /// The port of the primary that this Sentinel names, if it answers and names one.
    fn primary(&self) -> Option<u16> {
        let mut connection = self.connection()?;
        let mut request = redis::cmd("SENTINEL");
        request.arg("GET-MASTER-ADDR-BY-NAME").arg(Sentinels::SERVICE);
        let (_, port): (String, u16) = request.query(&mut connection).ok()?;
        Some(port)
    }

    fn connection(&self) -> Option<redis::Connection> {
        let login = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        let client = redis::Client::open(format!("redis://{login}127.0.0.1:{}", self.plain_port)).unwrap();
        let connection = client.get_connection_with_timeout(ms(200)).ok()?;
        connection.set_read_timeout(Some(ms(500))).ok()?;
        Some(connection)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("log of Sentinel {}:\n{}", self.port, self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
