//! The checks: small functions that judge the facts about the nodes. They ask no server.

use super::facts::Facts;
use super::finding::Harm::{Fail, NoVote, Unknown, Warn};
use super::finding::{CheckResult, Problem};
use super::permissions::{OPTIONAL, rule};
use crate::lock::{Holder, Quarantine, Status};
use crate::redis::{Address, Deployment, Fault, Local, SentinelView};
use crate::text::{first_of, human};
use std::path::PathBuf;
use std::time::Duration;

/// The facts about the configuration, and about the locks that were found, for all checks.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    pub(crate) addresses: &'a [Address],
    pub(crate) prefix: &'a str,
    /// The effective timeout for a lease of the default ttl.
    pub(crate) node_timeout: Duration,
    /// The number of replicas that have to confirm a lease.
    pub(crate) replicas: u32,
    pub(crate) quarantine: Quarantine,
    /// True if no server was configured.
    pub(crate) is_default: bool,
    /// The files with a password or a key that every user may read or write.
    pub(crate) exposed: Vec<PathBuf>,
    /// The locks under the prefix, or the reason why they cannot be listed.
    pub(crate) locks: Result<LockFacts, String>,
}

#[derive(Debug, Default)]
pub(crate) struct LockFacts {
    /// The names of locks that never expire.
    eternal: Vec<String>,
    /// The names of locks whose runs cannot be read.
    unread: Vec<String>,
    /// Why the runs of the first of these locks cannot be read.
    why: Option<String>,
    /// The longest ttl or remaining time of any lease that was found.
    longest: Duration,
}

impl LockFacts {
    pub(crate) fn add(&mut self, status: &Status) {
        let add = |names: &mut Vec<String>, is: bool| names.extend(is.then(|| format!("{:?}", status.name)));
        add(&mut self.eternal, status.never_expires());
        add(&mut self.unread, status.history_error.is_some());
        let why = status.history_error.as_ref().map(ToString::to_string);
        self.why = self.why.take().or(why);
        self.longest = status.holders().iter().map(Holder::longest).fold(self.longest, Duration::max);
    }
}

impl Setup<'_> {
    fn has_quarantine(&self) -> bool {
        !self.quarantine.length.is_zero()
    }
}

/// A check of one server of a node. The last argument has the facts about all other servers that were reached: the
/// servers of this node and of the other nodes.
type CheckOfNode = fn(&Facts, &Setup, &[&Facts]) -> CheckResult;

pub(super) const OF_A_NODE: [(&str, CheckOfNode); 13] = [
    ("connection", connection),
    ("kind", kind),
    ("role", role),
    ("identity", identity),
    ("version", version),
    ("eviction", eviction),
    ("memory", memory),
    ("persistence", persistence),
    ("disk", disk),
    ("uptime", uptime),
    ("clock", clock),
    ("replicas", replicas),
    ("scripts", scripts),
];

/// A check of the configuration, or of all locks together.
type CheckOfAll = fn(&Setup) -> CheckResult;

pub(super) const OF_ALL: [(&str, CheckOfAll); 6] = [
    ("redis", redis),
    ("secrets", secrets),
    ("number of nodes", number),
    ("quarantine", quarantine),
    ("expiry", expiry),
    ("log", log),
];

/// The largest acceptable difference between two clocks, in ms. (--once-per and check use the servers' clocks.)
const CLOCKS_MS: u64 = 5_000;
/// The largest acceptable lag of a replica, in seconds.
const LAG: u64 = 10;
/// The free space, in bytes, that the server of `local:` needs on its disk, to start and to write leases.
const ROOM: u64 = 1_000_000;
/// A finding lists at most this many names.
const NAMES: usize = 3;

pub(super) fn unreached(fault: &Fault) -> CheckResult {
    Err(NoVote.problem(&format!("the node {fault}; it does not count towards the quorum"), &fault.advice().1))
}

/// Judges whether the server of `local:` can be started.
pub(super) fn local(server: &Local) -> CheckResult {
    let directory = server.directory().display();
    if !server.is_ours() {
        return Ok("the directory belongs to another user, who starts the server".to_owned());
    }
    Local::program().map_err(|missing| NoVote.problem(&missing, "install Redis or Valkey"))?;
    let Some(room) = server.room() else {
        return Err(NoVote.problem(&format!("this user may not write to {directory}"), "use local:/DIR"));
    };
    let detail = format!("the disk of {directory} is full: no lock can be taken");
    let advice = format!("free some space there, or use local:/DIR on another disk; see {}", server.log().display());
    NoVote.when(room < ROOM, &detail, &advice)?;
    Ok("its server can be started".to_owned())
}

pub(super) fn sentinels(views: &[(String, Result<SentinelView, Fault>)]) -> CheckResult {
    let answers: Vec<(&String, &SentinelView)> =
        views.iter().filter_map(|(name, view)| Some((name, view.as_ref().ok()?))).collect();
    let named = |(name, view): &(&String, &SentinelView)| format!("{name} names {}", view.primary);
    if let [one, others @ ..] = answers.as_slice()
        && let Some(other) = others.iter().find(|(_, view)| view.primary != one.1.primary)
    {
        let detail = format!("{}, {}: a lock can have two holders", named(one), named(other));
        return Err(Fail.problem(&detail, "wait for the failover to end, or correct what these Sentinels monitor"));
    }
    if let Some((name, why)) = answers.iter().find_map(|(name, view)| Some((name, view.no_quorum.as_ref()?))) {
        let detail = format!("{name} cannot fail over: {why}");
        return Err(Fail.problem(&detail, "start the other Sentinels, or lower the quorum of this service"));
    }
    let silent: Vec<String> =
        views.iter().filter_map(|(name, view)| Some(format!("{name} {}", view.as_ref().err()?))).collect();
    let all = views.len();
    let harm = if silent.len() > (all - 1) / 2 { Fail } else { Warn };
    let detail = format!("{}: a failover needs most of the {all} Sentinels", silent.join(", "));
    harm.when(!silent.is_empty(), &detail, "start the silent Sentinels again, or correct --redis")?;
    Ok(format!("{all}, which agree on the primary"))
}

fn connection(node: &Facts, setup: &Setup, _: &[&Facts]) -> CheckResult {
    let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1000.0);
    let (median, worst) = (node.round_trips[node.round_trips.len() / 2], node.round_trips[node.round_trips.len() - 1]);
    let how = if node.address.is_tls() { "by TLS, " } else { "" };
    let figures = format!("{how}round trip {}, worst {}", ms(median), ms(worst));
    let most = human(setup.node_timeout);
    let detail = format!("{figures}; after {most} a request counts as failed");
    let advice = "set --node-timeout and a longer --ttl, or move Redis closer";
    Warn.when(worst > setup.node_timeout / 2, &detail, advice)?;
    Ok(format!("{figures} (limit {most})"))
}

fn kind(node: &Facts, _: &Setup, _: &[&Facts]) -> CheckResult {
    let address = &node.address;
    let advice = format!("use redis+sentinel://{address}/SERVICE");
    NoVote.when(node.is_sentinel(), "this is a Sentinel, which keeps no locks itself", &advice)?;
    let is_cluster = node.info.number("cluster_enabled")? > 0;
    let to_cluster = matches!(address.deployment(), Deployment::Cluster(_));
    let detail = "this is one node of a Cluster, and it holds only the locks in its own slots";
    Fail.when(is_cluster && !to_cluster, detail, &format!("use redis+cluster://{address}"))?;
    Fail.when(to_cluster && !is_cluster, "this is not a Cluster", "use redis://")?;
    if !is_cluster {
        return Ok("a server on its own".to_owned());
    }
    let (state, slots) = (node.cluster.get("cluster_state")?, node.cluster.number("cluster_slots_ok")?);
    let advice = "run redis-cli --cluster check, then --cluster fix";
    let detail = format!("the Cluster is down (cluster_state:{state}): no lock can be taken");
    NoVote.when(state != "ok", &detail, advice)?;
    let others = "names that hash to the others cannot be locked";
    NoVote.when(slots < 16384, &format!("the Cluster serves only {slots} of 16384 slots: {others}"), advice)?;
    let moving = node.moving.clone()?;
    let detail =
        format!("slot {} is being moved: no lock in it can be taken until the move ends", first_names(&moving));
    NoVote.when(!moving.is_empty(), &detail, "unless a move is in progress, run redis-cli --cluster fix")?;
    Ok("a Cluster, all slots served".to_owned())
}

fn role(node: &Facts, _: &Setup, _: &[&Facts]) -> CheckResult {
    let reported = |name| node.info.get(name).unwrap_or("?");
    let detail = "it is loading its data, and answers no request yet";
    NoVote.when(reported("loading") == "1", detail, "try again in a moment")?;
    let (role, primary) = (node.info.get("role")?, format!("{}:{}", reported("master_host"), reported("master_port")));
    let advice = "use its primary, or redis+sentinel:// to find it";
    let detail = format!("a writable replica of {primary}: it grants locks beside its primary");
    Fail.when(role != "master" && reported("slave_read_only") == "0", &detail, advice)?;
    let detail = format!("a replica of {primary}: a replica cannot grant locks");
    NoVote.when(role != "master", &detail, advice)?;
    Ok("a primary".to_owned())
}

fn identity(node: &Facts, _: &Setup, others: &[&Facts]) -> CheckResult {
    let detail =
        "connections to this address reach different servers: a lock can have as many holders as there are servers";
    let advice =
        "name one server, or each as a node of its own: --redis URL,URL,URL; no balancer, no name of several servers";
    Fail.when(node.run_ids.len() > 1, detail, advice)?;
    // A replica shares the replication id of its primary.
    let id = node.info.get("master_replid")?;
    if let Some(other) = others.iter().find(|other| other.info.get("master_replid").is_ok_and(|theirs| theirs == id)) {
        let detail = format!(
            "{} is the same server by another name, or its replica: one failure costs both votes",
            other.address
        );
        return Err(Fail.problem(&detail, "name independent primaries, each once"));
    }
    Ok("one server, and no other node is the same server or its replica".to_owned())
}

fn version(node: &Facts, _: &Setup, _: &[&Facts]) -> CheckResult {
    let (name, version, least) = match node.info.get("valkey_version") {
        Ok(version) => ("Valkey", version, [7, 2]),
        Err(_) => ("Redis", node.info.get("redis_version")?, [6, 2]),
    };
    let what = format!("{name} {version}");
    let advice = format!("use {name} {}.{} or later", least[0], least[1]);
    let number: Option<Vec<u32>> = version.split('.').take(2).map(|part| part.parse().ok()).collect();
    let Some(number) = number else {
        return Err(Unknown.problem(&format!("INFO reports {what}, which is not a version"), &advice));
    };
    NoVote.when(number[..] < least[..], &format!("{what} is too old for redlock's scripts"), &advice)?;
    Ok(what)
}

fn eviction(node: &Facts, _: &Setup, _: &[&Facts]) -> CheckResult {
    let (limit, policy) = (node.info.number("maxmemory")?, node.info.get("maxmemory_policy")?);
    let detail = format!("maxmemory-policy {policy}: a held lock can be evicted, and then taken by another process");
    let advice = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf";
    Fail.when(limit > 0 && policy != "noeviction", &detail, advice)?;
    let why = if limit == 0 { "no maxmemory" } else { "noeviction" };
    Ok(format!("no lock is evicted ({why})"))
}

fn memory(node: &Facts, _: &Setup, _: &[&Facts]) -> CheckResult {
    let (limit, used) = (node.info.number("maxmemory")?, node.info.number("used_memory")?);
    let size = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    if limit == 0 {
        return Ok(format!("{} used, no limit", size(used)));
    }
    let figures = format!("{} used, limit {}", size(used), size(limit));
    let advice = "raise maxmemory, or use a separate server for locks";
    Warn.when(used >= limit / 10 * 9, &format!("{figures}: when its memory is full, no lock can be taken"), advice)?;
    Ok(figures)
}

fn persistence(node: &Facts, setup: &Setup, _: &[&Facts]) -> CheckResult {
    let is_durable = || Ok(node.appendfsync.clone()? == "always" && node.unsynced_rewrite.clone()? == "no");
    if node.info.number("aof_enabled")? > 0 && is_durable()? {
        return Ok("every write is on disk before it is answered: a restart forgets no lock".to_owned());
    }
    let (length, single) = (setup.quarantine.length, setup.addresses.len() == 1);
    let advice = match &node.unsynced_rewrite {
        Ok(yes) if yes == "yes" => {
            "set appendonly yes, appendfsync always and no-appendfsync-on-rewrite no, or set --quarantine to the longest lease"
        }
        _ => "set appendonly yes and appendfsync always, or set --quarantine to the longest lease",
    };
    let detail = "a restart can lose locks; only redlock run and --while-pid re-acquire their lock";
    Warn.when(length.is_zero() && single, detail, advice)?;
    let detail = "a restart can lose locks, and with --quarantine 0 others can take them at once";
    Fail.when(length.is_zero(), detail, advice)?;
    Ok(format!("a restart can lose locks; the quarantine of {} covers that", human(length)))
}

fn disk(node: &Facts, _: &Setup, _: &[&Facts]) -> CheckResult {
    let advice = "see the server's log: is the disk full, or the directory not writable?";
    for (field, what) in [
        ("aof_last_write_status", "the last write to the AOF failed"),
        ("aof_last_bgrewrite_status", "the last rewrite of the AOF failed"),
        ("rdb_last_bgsave_status", "the last snapshot failed"),
    ] {
        Warn.when(node.info.get(field)? != "ok", what, advice)?;
    }
    Ok("the last writes succeeded".to_owned())
}

fn uptime(node: &Facts, setup: &Setup, _: &[&Facts]) -> CheckResult {
    let up = node.info.number("uptime_in_seconds").map_err(|unreported| match setup.has_quarantine() {
        true => NoVote.problem(
            "its uptime is unknown: redlock refuses a node whose restart could not be noticed",
            "allow INFO (ACL rule +info), or use --quarantine 0 if no lease can be lost",
        ),
        false => unreported,
    })?;
    let up = Duration::from_secs(up);
    let left = setup.quarantine.left(Some(up));
    let (up, rest) = (human(up), human(left));
    let detail = format!("started {up} ago: it may have forgotten leases, and is not ready for another {rest}");
    NoVote.when(!left.is_zero(), &detail, "wait, or lower --quarantine to the longest lease, if that is shorter")?;
    Ok(format!("up for {up}"))
}

/// Compares the server's clock with this machine's clock and with the clocks of the other servers.
fn clock(node: &Facts, _: &Setup, others: &[&Facts]) -> CheckResult {
    let advice = "let this user run TIME (ACL rule +time)";
    let ahead = node.ahead_ms.ok_or_else(|| Unknown.problem("TIME is refused", advice))?;
    let advice = "synchronize the clocks (NTP): --once-per, log and check use the servers' clocks";
    let side = if ahead > 0 { "ahead of" } else { "behind" };
    let detail = format!("its clock is {} {side} this machine's", human(Duration::from_millis(ahead.unsigned_abs())));
    Warn.when(ahead.unsigned_abs() > CLOCKS_MS, &detail, advice)?;
    let far = |other: &&&Facts| other.ahead_ms.is_some_and(|other| other.abs_diff(ahead) > CLOCKS_MS);
    if let Some(other) = others.iter().find(far) {
        return Err(Warn.problem(&format!("its clock differs from that of {}", other.address), advice));
    }
    Ok(format!("within {}ms of this machine's", ahead.unsigned_abs() + 1))
}

fn replicas(node: &Facts, setup: &Setup, _: &[&Facts]) -> CheckResult {
    let (asked, connected) = (setup.replicas, node.info.number("connected_slaves")?);
    let detail = format!("--replicas {asked}, but {connected} connected: no lock can be taken");
    NoVote.when(u64::from(asked) > connected, &detail, "lower --replicas, or add replicas")?;
    let one_lags = (0..connected).any(|number| lags(node.info.get(&format!("slave{number}")).unwrap_or_default()));
    let detail = "a replica is not in sync: a failover to it can lose leases";
    Warn.when(one_lags, detail, "check the replica's log, and the network to its primary")?;
    let fails_over = matches!(node.address.deployment(), Deployment::Sentinel { .. } | Deployment::Cluster(_));
    let advice = "use --replicas 1, or several independent primaries instead of replicas";
    Warn.when(fails_over && asked == 0, "a failover can lose the latest leases", advice)?;
    Ok(if connected == 0 { "none".to_owned() } else { format!("{connected}, in sync") })
}

/// True if the replica is not in sync. `replica`: the line about the replica in the primary's INFO.
fn lags(replica: &str) -> bool {
    let lag = replica.split(',').find_map(|field| field.strip_prefix("lag=")?.parse::<u64>().ok());
    !replica.contains("state=online") || lag.is_none_or(|lag| lag > LAG)
}

fn scripts(node: &Facts, setup: &Setup, _: &[&Facts]) -> CheckResult {
    let denied = node.denied.clone()?;
    let (lacks, keys) = (format!("this user lacks {}", denied.join(", ")), format!("{}*", setup.prefix));
    let rule = rule(node.address.username(), setup.prefix);
    let is_needed = |command: &str| !OPTIONAL.contains(&command) || command == "info" && setup.has_quarantine();
    let needs_any = denied.iter().any(|command| is_needed(command));
    NoVote.when(needs_any, &format!("{lacks}, needed by locks on {keys:?}"), &rule)?;
    let detail = format!("{lacks}: locks work, but status and log show less");
    Warn.when(!denied.is_empty(), &detail, &rule)?;
    Ok("all commands, keys and channels are allowed".to_owned())
}

fn redis(setup: &Setup) -> CheckResult {
    let address = &setup.addresses[0];
    let detail = format!("no server was configured: the locks are on {address}, for this machine alone");
    let advice = "set --redis or REDLOCK_REDIS, the same on all hosts that share locks";
    Warn.when(setup.is_default, &detail, advice)?;
    Ok("configured".to_owned())
}

fn secrets(setup: &Setup) -> CheckResult {
    let files: Vec<String> = setup.exposed.iter().map(|file| file.display().to_string()).collect();
    let detail = format!("every user of this machine can get at the password or key in {}", first_names(&files));
    let advice = format!("chgrp it to the group of those who run redlock, and chmod 640 {}", files.join(" "));
    Warn.when(!files.is_empty(), &detail, &advice)?;
    Ok("no file with a password or key is open to every user".to_owned())
}

fn first_names(names: &[String]) -> String {
    first_of(names, NAMES, names.len() as u64)
}

fn locks<'a>(setup: &'a Setup) -> Result<&'a LockFacts, Problem> {
    let unlisted = |why: &String| Unknown.problem(&format!("cannot list the leases: {why}"), "fix that first");
    setup.locks.as_ref().map_err(unlisted)
}

fn warn_of(names: &[String], what: &str, advice: &str) -> Result<(), Problem> {
    Warn.when(!names.is_empty(), &format!("{what}: {}", first_names(names)), advice)
}

fn expiry(setup: &Setup) -> CheckResult {
    let advice = "if nothing uses them any more: redlock release NAME --force";
    warn_of(&locks(setup)?.eternal, "these locks last until they are released", advice)?;
    Ok("every lock under the prefix expires".to_owned())
}

fn log(setup: &Setup) -> CheckResult {
    let LockFacts { unread, why, .. } = locks(setup)?;
    warn_of(unread, "the runs of these locks cannot be read", why.as_deref().unwrap_or_default())?;
    Ok("can be read".to_owned())
}

fn number(setup: &Setup) -> CheckResult {
    let nodes = setup.addresses.len();
    let (may_fail, fewer, more) = ((nodes - 1) / 2, nodes - 1, nodes + 1);
    let detail = format!("{nodes} nodes, of which {may_fail} may fail, as with {fewer}");
    Warn.when(nodes.is_multiple_of(2), &detail, &format!("use {fewer} or {more} nodes"))?;
    Ok(if nodes == 1 { "one".to_owned() } else { format!("{nodes}, of which {may_fail} may fail") })
}

fn quarantine(setup: &Setup) -> CheckResult {
    let length = setup.quarantine.length;
    let longest = locks(setup)?.longest;
    if length.is_zero() {
        return Ok("none: a restarted node grants locks at once".to_owned());
    }
    let (now, needed) = (human(length), human(longest));
    // A quarantine that is not fixed grows to cover each lease that a caller sees.
    let harm = if setup.quarantine.is_fixed { Fail } else { Warn };
    let detail =
        format!("{now}, but a lease of {needed} is in use: a restarted node may grant that lock to a second holder");
    let advice = format!("set --quarantine {needed} (REDLOCK_QUARANTINE) on all hosts that use these nodes");
    harm.when(longest > length, &detail, &advice)?;
    Ok(format!("{now}: no lease is longer"))
}

#[cfg(test)]
mod tests {
    use super::super::facts::{Lines, denied};
    use super::super::{Diagnosis, Finding};
    use super::*;
    use crate::lock::Locks;
    use crate::redis::Address;
    use std::collections::BTreeSet;
    use std::rc::Rc;

    fn report(values: &[(&str, &str)]) -> Lines {
        Lines { command: "INFO", lines: Ok(values.iter().map(|(name, value)| format!("{name}:{value}\r\n")).collect()) }
    }

    /// The facts about a healthy node, but with these values in the answer to INFO.
    fn node(url: &str, info: &[(&str, &str)]) -> Facts {
        let well = [
            ("redis_version", "7.0.15"),
            ("cluster_enabled", "0"),
            ("aof_last_write_status", "ok"),
            ("rdb_last_bgsave_status", "ok"),
            ("aof_last_bgrewrite_status", "ok"),
            ("connected_slaves", "0"),
        ];
        Facts {
            ahead_ms: Some(0),
            address: Address::parse(url, &Rc::default()).expect("a good URL"),
            round_trips: vec![Duration::from_millis(1)],
            run_ids: BTreeSet::new(),
            info: report(&[info, &well].concat()),
            appendfsync: Ok("always".to_owned()),
            unsynced_rewrite: Ok("no".to_owned()),
            cluster: report(&[("cluster_state", "fail"), ("cluster_slots_ok", "16000")]),
            moving: Ok(Vec::new()),
            denied: Ok(Vec::new()),
        }
    }

    fn verdict(check: CheckOfNode, node: &Facts, others: &[&Facts]) -> Diagnosis {
        let locks = Locks::new(&[], None, None, Duration::from_secs(30));
        let setup = Setup {
            addresses: &[],
            prefix: "",
            node_timeout: locks.node_timeout(),
            replicas: 0,
            quarantine: locks.quarantine,
            is_default: false,
            exposed: Vec::new(),
            locks: Ok(LockFacts::default()),
        };
        Finding::of((None, "", check(node, &setup, others)), false).verdict
    }

    #[test]
    fn servers_that_the_tests_cannot_start() {
        let is = |info: &[(&str, &str)], expected| {
            assert_eq!(verdict(version, &node("redis://a", info), &[]), expected, "{info:?}");
        };
        is(&[], Diagnosis::Ok);
        is(&[("redis_version", "6.2.14")], Diagnosis::Ok);
        is(&[("redis_version", "6.0.16")], Diagnosis::Fail);
        is(&[("redis_version", "10.0")], Diagnosis::Ok);
        is(&[("valkey_version", "8.0.1"), ("redis_version", "7.2.4")], Diagnosis::Ok);
        is(&[("valkey_version", "7.0.0")], Diagnosis::Fail);
        is(&[("redis_version", "unstable")], Diagnosis::Unknown);
        let before_redis_7 = Fault::CannotServe("unexpected".to_owned(), "unexpected symbol near '#'".to_owned());
        let old = Facts { denied: denied(Err(before_redis_7)), ..node("redis://a", &[]) };
        assert_eq!(verdict(scripts, &old, &[]), Diagnosis::Unknown);
    }

    #[test]
    fn what_real_servers_seldom_tell() {
        let of = |check, url, info: &[(&str, &str)]| verdict(check, &node(url, info), &[]);
        let plain = "redis://a";
        assert_eq!(of(disk, plain, &[]), Diagnosis::Ok);
        assert_eq!(of(disk, plain, &[("aof_last_write_status", "err")]), Diagnosis::Warn);
        assert_eq!(of(disk, plain, &[("aof_last_bgrewrite_status", "err")]), Diagnosis::Warn);
        let replica = |state| [("connected_slaves", "1"), ("slave0", state)];
        assert_eq!(of(replicas, plain, &replica("ip=::1,port=1,state=online,offset=9,lag=1")), Diagnosis::Ok);
        assert_eq!(of(replicas, plain, &replica("ip=::1,port=1,state=online,offset=9,lag=11")), Diagnosis::Warn);
        assert_eq!(of(replicas, plain, &replica("ip=::1,port=1,state=wait_bgsave,offset=0,lag=0")), Diagnosis::Warn);
        let of_valkey_8 = replica("ip=::1,port=1,state=online,offset=9,lag=1,type=replica");
        assert_eq!(of(replicas, plain, &of_valkey_8), Diagnosis::Ok);
        assert_eq!(of(replicas, "redis+sentinel://a/s", &[]), Diagnosis::Warn);
        assert_eq!(of(kind, "redis+cluster://a", &[("cluster_enabled", "1")]), Diagnosis::Fail);
        let slots = [("cluster_state", "ok"), ("cluster_slots_ok", "16000")];
        let cluster = node("redis+cluster://a", &[("cluster_enabled", "1")]);
        let lacking = Facts { cluster: report(&slots), ..cluster };
        assert_eq!(verdict(kind, &lacking, &[]), Diagnosis::Fail);
        assert_eq!(of(kind, "redis+cluster://a", &[]), Diagnosis::Fail);
        assert_eq!(of(role, plain, &[("loading", "1"), ("role", "master")]), Diagnosis::Fail);
    }

    #[test]
    fn a_number_that_is_none_is_unknown() {
        let garbled = |name| node("redis://a", &[(name, "many")]);
        let of = |check: CheckOfNode, name| verdict(check, &garbled(name), &[]);
        assert_eq!(of(uptime, "uptime_in_seconds"), Diagnosis::Unknown);
        assert_eq!(of(memory, "maxmemory"), Diagnosis::Unknown);
        assert_eq!(of(replicas, "connected_slaves"), Diagnosis::Unknown);
    }
}
