//! The servers under attack, and the faults that hit them. Contenders reach masters by ways, each of which has one
//! proxy for each master.

use super::history;
use crate::support::{
    Chance, Cluster, Directory, Mode, Proxy, Redis, SOON, Sentinels, alive, eventually, ms, name, other_clocks, send,
    stopped,
};
use nix::sys::signal::Signal;
use std::net::Shutdown;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, Instant};

/// The longest ttl of an attack, and the quarantine if servers forget.
pub(super) const LONGEST: Duration = ms(4000);
/// The shortest ttl. A fault sets a server's clock ahead by at most 1 % of this and 2 ms: README allows no more.
pub(super) const SHORTEST: Duration = ms(2000);
pub(super) const ALLOWANCE: Duration = ms(SHORTEST.as_millis() as u64 / 100 + 2);
/// How many ways lead to the same masters. Each contender uses one, and each has faults of its own.
pub(super) const PATHS: usize = 3;

/// How far the clocks of the contenders' hosts are ahead, in microseconds. If servers forget, the clocks must not
/// differ by more than the quarantine, because a lost counter of fencing tokens begins again at the clock of a host.
const CLOCKS: [i64; 3] = [0, 700_000, 3_000_000];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Servers {
    One,
    Three,
    Five,
    Sentinel,
    Cluster,
    Local,
}

impl Servers {
    pub(super) const ALL: [(&str, Servers); 6] = [
        ("one", Servers::One),
        ("three", Servers::Three),
        ("five", Servers::Five),
        ("sentinel", Servers::Sentinel),
        ("cluster", Servers::Cluster),
        ("local", Servers::Local),
    ];
}

impl FromStr for Servers {
    type Err = String;

    fn from_str(name: &str) -> Result<Servers, String> {
        let found = Servers::ALL.iter().find(|one| one.0 == name);
        found.map(|one| one.1).ok_or_else(|| format!("SERVERS={name}: one, three, five, sentinel, cluster or local"))
    }
}

pub(super) struct Field {
    kind: Kind,
    /// The servers keep their keys over a restart. Otherwise a restarted server has forgotten all leases, and a
    /// quarantine covers these leases.
    pub(super) durable: bool,
    /// When a server was last started again. Unless `durable`, it has forgotten everything.
    forgot_at: Option<Instant>,
    /// When a server first forgot its keys, in microseconds of [`history::now`]. `i64::MAX`: none has done so.
    pub(super) remembers_until: i64,
}

enum Kind {
    Masters {
        servers: Vec<Redis>,
        paths: Vec<Vec<Proxy>>,
        clocks: Directory,
    },
    Sentinel(Sentinels),
    /// True: hash slots move to other masters. False: replicas take over from their masters.
    Cluster(Box<Cluster>, bool),
    Local(Directory),
}

#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// A way to one server, or to all of them (None), misbehaves for a time.
    Way { path: usize, server: Option<usize>, mode: Mode, lasts: Duration },
    /// Every open connection on a way to one server becomes half-open.
    HalfOpen { path: usize, server: usize },
    /// Every open connection on a way to one server is closed in one direction.
    HalfClose { path: usize, server: usize, direction: Shutdown },
    /// A server stands still.
    Stop { server: usize, lasts: Duration },
    /// A server is killed, and comes back.
    Restart { server: usize, away: Duration },
    /// A server's clock jumps.
    Clock { server: usize, ahead: Duration },
    /// A server forgets the scripts, closes the connections of all subscribers, or closes all other connections.
    Command { server: usize, words: &'static [&'static str] },
    /// Nothing gets through on the first way ([`PATHS`]) for longer than the shortest lease. Contenders on other ways
    /// want the locks of contenders on the first way.
    Outage(Duration),
    /// The hash slot of this lock moves to another master.
    Move(&'static str),
    /// The master of this lock is killed, its replica takes over, and the old master comes back as a replica.
    FailOver(&'static str),
}

impl Fault {
    /// True if the fault is over only when all servers have agreed on the new master of the lock.
    pub(super) fn needs_all_servers(&self) -> bool {
        matches!(self, Fault::Move(_) | Fault::FailOver(_))
    }
}

impl Field {
    pub(super) fn new(servers: Servers, chance: &mut Chance) -> Field {
        let durable = chance.percent(if servers == Servers::One { 50 } else { 25 });
        let kind = match servers {
            Servers::One => Field::masters(1, durable),
            Servers::Three => Field::masters(3, durable),
            Servers::Five => Field::masters(5, durable),
            Servers::Sentinel => Kind::Sentinel(Sentinels::failing_over(1)),
            Servers::Cluster => Kind::Cluster(Box::new(Cluster::with_replicas()), chance.percent(50)),
            Servers::Local => Kind::Local(Directory::new()),
        };
        let durable = durable || !matches!(servers, Servers::One | Servers::Three | Servers::Five);
        Field { kind, durable, forgot_at: None, remembers_until: i64::MAX }
    }

    fn masters(count: usize, durable: bool) -> Kind {
        let arguments = if durable { Redis::DURABLE } else { &[] };
        let servers: Vec<Redis> = (0..count).map(|_| Redis::with_clock(arguments, 3_600)).collect();
        let way = |_| servers.iter().map(|server| Proxy::new(server, Mode::Pass)).collect();
        let (paths, clocks) = ((0..PATHS).map(way).collect(), Directory::new());
        for (number, ahead) in CLOCKS.iter().enumerate() {
            std::fs::write(clocks.path().join(number.to_string()), ahead.to_ne_bytes()).unwrap();
        }
        Kind::Masters { servers, paths, clocks }
    }

    /// The variables of a contender name the servers, or its way to them. For masters, they also set the quarantine,
    /// and the clock of the contender's host; for Sentinels or a Cluster, the number of replicas.
    pub(super) fn environment(&self, contender: usize) -> Vec<(&'static str, String)> {
        let forgotten = if self.durable { 0 } else { LONGEST.as_millis() };
        let quarantine = ("REDLOCK_QUARANTINE", format!("{forgotten}ms"));
        let replicas = ("REDLOCK_REPLICAS", "1".to_owned());
        match &self.kind {
            Kind::Masters { paths, clocks, .. } => {
                let clock = clocks.path().join((contender / PATHS % CLOCKS.len()).to_string());
                let clock = [("LD_PRELOAD", other_clocks().to_owned()), ("CLOCK_FILE", clock)];
                let clock = clock.map(|(name, file)| (name, file.to_str().unwrap().to_owned()));
                let urls: Vec<String> = paths[contender % PATHS].iter().map(Proxy::url).collect();
                [("REDLOCK_REDIS", urls.join(",")), quarantine].into_iter().chain(clock).collect()
            }
            Kind::Sentinel(service) => vec![("REDLOCK_REDIS", service.url()), replicas],
            Kind::Cluster(cluster, _) => vec![("REDLOCK_REDIS", cluster.url()), replicas],
            Kind::Local(_) => vec![("REDLOCK_REDIS", format!("local:{}", self.local().display()))],
        }
    }

    /// The socket of the only server, if it is durable. Other libraries know no quarantine, so they may only share a
    /// server that forgets nothing.
    pub(super) fn only(&self) -> Option<PathBuf> {
        match &self.kind {
            Kind::Masters { servers, .. } if servers.len() == 1 && self.durable => Some(servers[0].socket()),
            _ => None,
        }
    }

    fn local(&self) -> PathBuf {
        let Kind::Local(directory) = &self.kind else { unreachable!() };
        directory.path().join("l")
    }

    /// The faults of an attack of this length, each with its time from the attack's start.
    pub(super) fn plan(&self, chance: &mut Chance, length: Duration) -> Vec<(Duration, Fault)> {
        let mut plan = Vec::new();
        let lasts = SHORTEST * 5 / 4;
        let has_ways = matches!(self.kind, Kind::Masters { .. });
        let outages: Vec<Duration> =
            (1..).map(|n| lasts * 2 * n).take_while(|&at| has_ways && at + lasts < length).collect();
        plan.extend(outages.iter().map(|&at| (at, Fault::Outage(lasts))));
        let mut at = ms(300);
        if let Kind::Masters { servers, .. } = &self.kind
            && !self.durable
            && servers.len() > 1
        {
            // A quorum of the servers restarts, and forgets all leases, during an outage of the first way, so that a
            // holder on that way cannot ask the servers meanwhile.
            let during = outages.first().map(|&at| at + lasts / 4);
            let forget = |server| (during.unwrap_or(length / 2), Fault::Restart { server, away: ms(50) });
            plan.extend((0..=servers.len() / 2).map(forget));
        }
        while at < length {
            let fault = self.fault(chance);
            // On the first way, no `Fault::Way` may overlap with an outage, because its end would end the outage.
            let in_outage = outages.iter().any(|&start| at + lasts > start && at < start + lasts);
            if !(in_outage && matches!(fault, Fault::Way { path: 0, .. })) {
                plan.push((at, fault));
            }
            at += match self.kind {
                Kind::Masters { .. } => chance.time(50, 900),
                _ => chance.time(300, 2500),
            };
        }
        plan.sort_by_key(|one| one.0);
        plan
    }

    fn fault(&self, chance: &mut Chance) -> Fault {
        match &self.kind {
            Kind::Masters { servers, .. } => self.fault_of_masters(chance, servers.len()),
            Kind::Local(_) => match chance.below(3) {
                0 => Fault::Stop { server: 0, lasts: chance.time(50, 1500) },
                _ => Fault::Restart { server: 0, away: Duration::ZERO },
            },
            Kind::Sentinel(_) => match chance.below(6) {
                0 => Fault::FailOver("x1"),
                1 => Fault::Stop { server: 0, lasts: chance.time(10, 300) },
                _ => Fault::Command { server: 0, words: chance.one_of(COMMANDS) },
            },
            Kind::Cluster(_, moves) => match chance.below(if *moves { 4 } else { 6 }) {
                0 if *moves => Fault::Move(chance.one_of(&["x1", "x2", "slots"])),
                0 => Fault::FailOver(chance.one_of(&["x1", "x2", "slots"])),
                1 => Fault::Stop { server: 0, lasts: chance.time(10, 400) },
                _ => Fault::Command { server: 0, words: chance.one_of(COMMANDS) },
            },
        }
    }

    fn fault_of_masters(&self, chance: &mut Chance, count: usize) -> Fault {
        let server = usize::try_from(chance.below(count as u64)).unwrap();
        let path = usize::try_from(chance.below(PATHS as u64)).unwrap();
        let modes = [
            (3, Mode::Delay(chance.time(1, 200))),
            (2, Mode::BlackHole),
            (3, Mode::LoseReplies),
            (2, Mode::Cut),
            (1, Mode::Drip(ms(2))),
            (2, Mode::HalfReply),
            (2, Mode::Reset),
            (2, Mode::Hold(Instant::now(), chance.time(200, 3000))),
        ];
        let indices: Vec<(u64, usize)> = modes.iter().enumerate().map(|(at, mode)| (mode.0, at)).collect();
        match chance.weighted(&[(10, 'w'), (3, 'h'), (3, 'f'), (3, 's'), (2, 'r'), (6, 'c'), (3, 'k')]) {
            'w' => {
                let all = chance.percent(25);
                let mode = modes[chance.weighted(&indices)].1.clone();
                Fault::Way { path, server: (!all).then_some(server), mode, lasts: chance.time(20, 2500) }
            }
            'h' => Fault::HalfOpen { path, server },
            'f' => {
                let direction = chance.one_of(&[Shutdown::Read, Shutdown::Write]);
                Fault::HalfClose { path, server, direction }
            }
            's' => Fault::Stop { server, lasts: chance.time(20, 1000) },
            // Most restarts of a server that forgets its keys are left out: each begins a quarantine, and too many
            // would keep the server in quarantine for ever.
            'r' if !self.durable && chance.percent(75) => Fault::HalfOpen { path, server },
            'r' => Fault::Restart { server, away: chance.time(0, 800) },
            'c' => Fault::Clock { server, ahead: chance.time(0, u64::try_from(ALLOWANCE.as_millis()).unwrap()) },
            _ => Fault::Command { server, words: chance.one_of(COMMANDS) },
        }
    }

    /// Carries out a fault. Returns how long it lasts, and what ends it, if anything has to.
    pub(super) fn strike(&mut self, fault: &Fault) -> Option<(Duration, Undo)> {
        match (fault, &mut self.kind) {
            (Fault::Way { path, server, mode, lasts }, Kind::Masters { paths, .. }) => {
                let mode = match mode {
                    Mode::Hold(_, delay) => Mode::Hold(Instant::now() + *delay, Duration::ZERO),
                    other => other.clone(),
                };
                let hit = |at: &usize| server.is_none_or(|server| server == *at);
                (0..paths[*path].len()).filter(hit).for_each(|at| paths[*path][at].set(mode.clone()));
                return Some((*lasts, Undo::Way { path: *path, server: *server }));
            }
            (Fault::HalfOpen { path, server }, Kind::Masters { paths, .. }) => paths[*path][*server].half_open(),
            (Fault::HalfClose { path, server, direction }, Kind::Masters { paths, .. }) => {
                paths[*path][*server].half_close(*direction);
            }
            (Fault::Clock { server, ahead }, Kind::Masters { servers, .. }) => servers[*server].clock().set(*ahead),
            (Fault::Stop { server, lasts }, _) => {
                let pid = self.pid(*server)?;
                send(pid, Signal::SIGSTOP);
                return Some((*lasts, Undo::Resume(pid)));
            }
            (Fault::Restart { server, away }, Kind::Masters { servers, .. }) => {
                if !self.durable {
                    self.remembers_until = self.remembers_until.min(history::now());
                }
                servers[*server].kill();
                return Some((*away, Undo::Start(*server)));
            }
            (Fault::Restart { .. }, Kind::Local(_)) => {
                send(self.pid(0)?, Signal::SIGKILL);
            }
            (Fault::Command { server, words }, _) => {
                if let Some(server) = self.server(*server) {
                    let _ = server.try_query::<redis::Value>(words);
                }
            }
            (Fault::Outage(lasts), Kind::Masters { paths, .. }) => {
                paths[0].iter().for_each(|way| way.set(Mode::BlackHole));
                return Some((*lasts, Undo::Way { path: 0, server: None }));
            }
            (Fault::Move(lock), Kind::Cluster(cluster, _)) => {
                cluster.reshard(&format!("redlock:{lock}"));
            }
            (Fault::FailOver(lock), _) => self.fail_over(lock),
            _ => unreachable!("{fault:?} is not for these servers"),
        }
        None
    }

    pub(super) fn undo(&mut self, undo: Undo) {
        match (undo, &mut self.kind) {
            (Undo::Resume(pid), _) => send(pid, Signal::SIGCONT),
            (Undo::Way { path, server }, Kind::Masters { paths, .. }) => {
                let hit = |at: &usize| server.is_none_or(|server| server == *at);
                (0..paths[path].len()).filter(hit).for_each(|at| paths[path][at].set(Mode::Pass));
            }
            (Undo::Start(server), Kind::Masters { servers, .. }) => {
                servers[server].restart();
                self.forgot_at = Some(Instant::now());
            }
            _ => unreachable!(),
        }
    }

    fn server(&self, number: usize) -> Option<&Redis> {
        match &self.kind {
            Kind::Masters { servers, .. } => servers.get(number).filter(|one| alive(one.pid()) && !stopped(one.pid())),
            Kind::Sentinel(service) => service.servers.iter().find(|one| is_master(one)),
            Kind::Cluster(cluster, _) => cluster.0.iter().find(|one| is_master(one)),
            Kind::Local(_) => None,
        }
    }

    fn pid(&self, number: usize) -> Option<u32> {
        match &self.kind {
            Kind::Local(directory) => local_servers(directory.path()).first().copied(),
            _ => self.server(number).map(Redis::pid).filter(|&pid| alive(pid) && !stopped(pid)),
        }
    }

    /// Whether this process is a server of `local:`, which a call of redlock has started.
    pub(super) fn has(&self, pid: u32) -> bool {
        matches!(&self.kind, Kind::Local(directory) if local_servers(directory.path()).contains(&pid))
    }

    fn fail_over(&mut self, lock: &str) {
        match &mut self.kind {
            Kind::Sentinel(service) => {
                let has_replica = |one: &Redis| is_master(one) && has_replica(one);
                let Some(old) = service.servers.iter().position(has_replica) else { return };
                service.servers[old].kill();
                let new = service.fails_over_from(old);
                let port = service.servers[new].port().to_string();
                service.servers[old].restart();
                service.servers[old].command(&["REPLICAOF", "127.0.0.1", &port]);
            }
            Kind::Cluster(cluster, _) => {
                let key = format!("redlock:{lock}");
                let old = cluster.owner(&key);
                if !has_replica(&cluster.0[old]) {
                    return;
                }
                cluster.0[old].kill();
                cluster.owner(&key);
                cluster.0[old].restart();
                let back = || cluster.0[old].info("master_link_status") == "up";
                eventually(SOON * 3, "the old master is a replica", || {
                    cluster.0[old].info("role") == "slave" && back()
                });
            }
            _ => unreachable!(),
        }
    }

    /// Whether one node decides: a server, a service of Sentinels or a Cluster.
    pub(super) fn is_one(&self) -> bool {
        !matches!(&self.kind, Kind::Masters { servers, .. } if servers.len() > 1)
    }

    /// How long it takes from now until all servers vote again: one that has forgotten leases has no vote at first.
    pub(super) fn until_all_vote(&self) -> Duration {
        let quarantine = LONGEST + ms(1100);
        let forgot_at = self.forgot_at.filter(|_| !self.durable);
        forgot_at.map_or(Duration::ZERO, |since| quarantine.saturating_sub(since.elapsed()))
    }

    /// The keys that are left on the servers, apart from those that outlive their lock (`outlives`).
    pub(super) fn left(&self) -> Vec<String> {
        let servers: Vec<&Redis> = match &self.kind {
            Kind::Masters { servers, .. } => servers.iter().collect(),
            Kind::Sentinel(service) => service.servers.iter().filter(|one| is_master(one)).collect(),
            Kind::Cluster(cluster, _) => cluster.0.iter().filter(|one| is_master(one)).collect(),
            Kind::Local(_) => return self.left_locally(),
        };
        let keys = servers.iter().flat_map(|server| server.keys_without_history());
        keys.filter(|key| key.contains("redlock:") && !outlives(key)).collect()
    }

    fn left_locally(&self) -> Vec<String> {
        let url = format!("unix://{}", self.local().join("redis.sock").display());
        let Ok(mut connection) = redis::Client::open(url).and_then(|client| client.get_connection()) else {
            return vec!["a server that cannot be asked".to_owned()];
        };
        let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
        keys.into_iter().filter(|key| !outlives(key)).collect()
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Undo {
    Way { path: usize, server: Option<usize> },
    Resume(u32),
    Start(usize),
}

const COMMANDS: &[&[&str]] =
    &[&["CLIENT", "KILL", "TYPE", "normal"], &["CLIENT", "KILL", "TYPE", "pubsub"], &["SCRIPT", "FLUSH"]];

/// Whether this key outlives its lock: a counter of fencing tokens, the register of --newest, or history.
fn outlives(key: &str) -> bool {
    let (_, last) = key.split_once('\u{1f}').unwrap_or_default();
    let lasting = ["fence", "fences", "newest", "runs", "visits", "errors", "open", "ends"];
    lasting.contains(&last) || last.starts_with("log")
}

fn is_master(server: &Redis) -> bool {
    alive(server.pid())
        && !stopped(server.pid())
        && server.try_query::<String>(&["INFO", "replication"]).is_ok_and(|text| text.contains("role:master"))
}

/// Whether this server has a replica in step. Without one, a fail-over loses all leases, a case that README excludes.
fn has_replica(server: &Redis) -> bool {
    server.try_query::<String>(&["INFO", "replication"]).is_ok_and(|text| text.contains("state=online"))
}

/// The process ids of all servers of `local:` below this directory, in which the standard input of each is a file.
fn local_servers(directory: &Path) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has_lock = |pid: &u32| {
        let input = std::fs::read_link(format!("/proc/{pid}/fd/0")).unwrap_or_default();
        input.starts_with(directory) && name(*pid) != "redlock" && alive(*pid)
    };
    pids.filter(has_lock).collect()
}

impl Drop for Field {
    fn drop(&mut self) {
        if let Kind::Local(directory) = &self.kind {
            let path = directory.path().to_owned();
            eventually(SOON, "no server of local: is left", || {
                let all = local_servers(&path);
                all.iter().for_each(|&pid| {
                    send(pid, Signal::SIGKILL);
                    send(pid, Signal::SIGCONT);
                });
                all.is_empty()
            });
        }
    }
}
