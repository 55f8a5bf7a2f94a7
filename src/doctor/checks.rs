//! The checks: small functions from the facts about a node to what they mean for locks. No I/O.

use super::facts::Facts;
use super::permissions::{OF_SHAPES, OPTIONAL, rule};
use super::{CheckResult, Practice, Problem};
use crate::redis::{Deployment, Fault, Local, SentinelView};
use crate::text::human;
use std::time::Duration;

/// A check of one node; the last argument is the other nodes that were reached.
type CheckOfNode = fn(&Facts, &Practice, &[&Facts]) -> CheckResult;

pub(super) const OF_A_NODE: [(&str, CheckOfNode); 12] = [
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
    ("replicas", replicas),
    ("permissions", permissions),
];

/// A check of all nodes together.
type CheckOfAll = fn(&Practice) -> CheckResult;

pub(super) const OF_ALL: [(&str, CheckOfAll); 5] = [
    ("redis", redis),
    ("number of nodes", number),
    ("node timeout", node_timeout),
    ("quarantine", quarantine),
    ("expiry", expiry),
];

/// Largest acceptable replica lag, in seconds.
const LAG: u64 = 10;
/// The room on the disk of `local:` that a server needs to start and to write leases, in bytes.
const ROOM: u64 = 1_000_000;
/// The number of names that a finding lists.
const NAMES: usize = 3;

fn fail_if(wrong: bool, detail: impl Into<String>, advice: impl Into<String>) -> Result<(), Problem> {
    if wrong { Err(Problem::fail(detail, advice)) } else { Ok(()) }
}

/// Fails if the node grants no locks.
fn no_vote_if(wrong: bool, detail: impl Into<String>, advice: impl Into<String>) -> Result<(), Problem> {
    if wrong { Err(Problem::no_vote(detail, advice)) } else { Ok(()) }
}

fn warn_if(wrong: bool, detail: impl Into<String>, advice: impl Into<String>) -> Result<(), Problem> {
    if wrong { Err(Problem::warn(detail, advice)) } else { Ok(()) }
}

/// The finding for a node that cannot be asked at all.
pub(super) fn unreached(fault: &Fault) -> CheckResult {
    Err(Problem::no_vote(format!("the node {fault}; it does not count towards the quorum"), fault.advice().1))
}

/// The server of `local:`, seen from its directory.
pub(super) fn local(server: &Local) -> CheckResult {
    let directory = server.directory().display();
    if !server.is_ours() {
        return Ok("owned by another user, who starts it".to_owned());
    }
    let install = server.missing_server();
    no_vote_if(install.is_some(), "neither redis-server nor valkey-server is installed", install.unwrap_or_default())?;
    let Some(room) = server.room() else {
        return Err(Problem::no_vote(format!("this user may not write to {directory}"), "use local:/DIR"));
    };
    let advice = format!("free some space there, or use local:/DIR on another disk; see {}", server.log().display());
    no_vote_if(room < ROOM, format!("the disk of {directory} is full: no lock can be taken"), advice)?;
    Ok(if server.is_unused() { "never started; the first lock starts it" } else { "its server can be started" }
        .to_owned())
}

/// The Sentinels of one service.
pub(super) fn sentinels(views: &[(String, Result<SentinelView, Fault>)]) -> CheckResult {
    let answers: Vec<(&String, &SentinelView)> =
        views.iter().filter_map(|(name, view)| Some((name, view.as_ref().ok()?))).collect();
    let named = |(name, view): &(&String, &SentinelView)| format!("{name} names {}", view.primary);
    if let [one, others @ ..] = answers.as_slice()
        && let Some(other) = others.iter().find(|(_, view)| view.primary != one.1.primary)
    {
        let detail = format!("{}, {}: a lock can have two holders", named(one), named(other));
        return Err(Problem::fail(detail, "wait for the failover to end, or correct what these Sentinels monitor"));
    }
    if let Some((name, why)) = answers.iter().find_map(|(name, view)| Some((name, view.no_quorum.as_ref()?))) {
        let detail = format!("{name} cannot fail over: {why}");
        return Err(Problem::fail(detail, "start the other Sentinels, or lower the quorum of this service"));
    }
    let silent: Vec<String> =
        views.iter().filter_map(|(name, view)| Some(format!("{name} {}", view.as_ref().err()?))).collect();
    let (all, detail) = (views.len(), silent.join(", "));
    let advice = "start it again, or correct --redis";
    fail_if(silent.len() > (all - 1) / 2, format!("{detail}: no failover without most Sentinels"), advice)?;
    warn_if(!silent.is_empty(), detail, advice)?;
    Ok(format!("{all}, which agree on the primary"))
}

fn connection(node: &Facts, practice: &Practice, _: &[&Facts]) -> CheckResult {
    let ms = |time: Duration| format!("{:.2} ms", time.as_secs_f64() * 1000.0);
    let (median, worst) = (node.round_trips[node.round_trips.len() / 2], node.round_trips[node.round_trips.len() - 1]);
    let how = if node.address.is_tls() { "by TLS, " } else { "" };
    let figures = format!("{how}round trip {}, worst {}", ms(median), ms(worst));
    let most = human(practice.node_timeout);
    let advice = "set --node-timeout and a longer --ttl, or move Redis closer";
    warn_if(worst > practice.node_timeout / 2, format!("{figures}; after {most} a request counts as failed"), advice)?;
    Ok(format!("{figures} (limit {most})"))
}

fn kind(node: &Facts, _: &Practice, _: &[&Facts]) -> CheckResult {
    let address = &node.address;
    let advice = format!("use redis+sentinel://{address}/SERVICE");
    no_vote_if(node.is_sentinel(), "this is a Sentinel, which keeps no locks itself", advice)?;
    let (is_cluster, to_cluster) =
        (node.info.number("cluster_enabled")? > 0, matches!(address.deployment(), Deployment::Cluster(_)));
    let advice = format!("use redis+cluster://{address}");
    let detail = "this is one node of a Cluster, and it holds only the locks in its own slots";
    fail_if(is_cluster && !to_cluster, detail, advice)?;
    fail_if(to_cluster && !is_cluster, "this is not a Cluster", "use redis://")?;
    if !is_cluster {
        return Ok("a server on its own".to_owned());
    }
    let (state, slots) = (node.cluster.get("cluster_state")?, node.cluster.number("cluster_slots_ok")?);
    let advice = "run redis-cli --cluster check, then --cluster fix";
    no_vote_if(state != "ok", format!("the Cluster is down (cluster_state:{state}): no lock can be taken"), advice)?;
    let others = "names that hash to the others cannot be locked";
    no_vote_if(slots < 16384, format!("the Cluster serves only {slots} of 16384 slots: {others}"), advice)?;
    let moving = node.moving.clone()?;
    let detail = format!("slot {} is being moved: its locks cannot be taken until that ends", listed(&moving));
    no_vote_if(!moving.is_empty(), detail, "unless a move is in progress, run redis-cli --cluster fix")?;
    Ok("a Cluster, all slots served".to_owned())
}

fn role(node: &Facts, _: &Practice, _: &[&Facts]) -> CheckResult {
    let told = |name| node.info.get(name).unwrap_or("?");
    no_vote_if(
        told("loading") == "1",
        "it is still loading its data, and serves nothing until then",
        "try again in a moment",
    )?;
    let (role, primary) = (node.info.get("role")?, format!("{}:{}", told("master_host"), told("master_port")));
    let detail = format!("a replica of {primary}, which cannot grant locks");
    no_vote_if(role != "master", detail, "use its primary, or redis+sentinel:// to find it")?;
    Ok("a primary".to_owned())
}

fn identity(node: &Facts, _: &Practice, others: &[&Facts]) -> CheckResult {
    // The other node with the same value of this field.
    let same = |name| {
        let ours = node.info.get(name)?;
        Ok(others.iter().find(|other| other.info.get(name).is_ok_and(|theirs| theirs == ours)))
    };
    if let Some(other) = same("run_id")? {
        let detail = format!("{} is the same server by another name: it would have two votes", other.address);
        return Err(Problem::fail(detail, "name each server once"));
    }
    // A replica shares the replication id of its primary.
    if let Some(other) = same("master_replid")? {
        let detail = format!("it and {} replicate the same data: one data loss loses both votes", other.address);
        return Err(Problem::fail(detail, "use independent primaries"));
    }
    Ok("no other node is the same server, or its copy".to_owned())
}

fn version(node: &Facts, _: &Practice, _: &[&Facts]) -> CheckResult {
    let (name, version, least) = match node.info.get("valkey_version") {
        Ok(version) => ("Valkey", version, [7, 2]),
        Err(_) => ("Redis", node.info.get("redis_version")?, [6, 2]),
    };
    // A release candidate has a suffix: 8.0-rc1.
    let leading = |part: &str| part.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default().parse::<u32>().ok();
    let what = format!("{name} {version}");
    let advice = format!("use {name} {}.{} or later", least[0], least[1]);
    let Some(number) = version.split('.').take(2).map(leading).collect::<Option<Vec<u32>>>() else {
        return Err(Problem::unknown(format!("INFO reports {what}, which is not a version"), advice));
    };
    no_vote_if(number[..] < least[..], format!("{what} is too old for redlock's scripts"), advice)?;
    Ok(what)
}

fn eviction(node: &Facts, _: &Practice, _: &[&Facts]) -> CheckResult {
    let (limit, policy) = (node.info.number("maxmemory")?, node.info.get("maxmemory_policy")?);
    let detail = format!("maxmemory-policy {policy}: a held lock can be evicted, and then taken by another process");
    let advice = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf";
    fail_if(limit > 0 && policy != "noeviction", detail, advice)?;
    let why = if limit == 0 { "no maxmemory" } else { "noeviction" };
    Ok(format!("no lock is evicted ({why})"))
}

fn memory(node: &Facts, _: &Practice, _: &[&Facts]) -> CheckResult {
    let (limit, used) = (node.info.number("maxmemory")?, node.info.number("used_memory")?);
    let size = |bytes: u64| match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    };
    if limit == 0 {
        return Ok(format!("{} used, no limit", size(used)));
    }
    let figures = format!("{} used, limit {}", size(used), size(limit));
    let advice = "raise maxmemory, or use a separate server for locks";
    no_vote_if(used >= limit, format!("{figures}: no lock can be taken"), advice)?;
    warn_if(used >= limit / 10 * 9, format!("{figures}: when it is full, no lock can be taken"), advice)?;
    Ok(figures)
}

fn persistence(node: &Facts, practice: &Practice, _: &[&Facts]) -> CheckResult {
    if node.info.number("aof_enabled")? > 0 && node.config.get("appendfsync")? == "always" {
        return Ok("every write is on disk before it is answered: a restart forgets no lock".to_owned());
    }
    let (length, single) = (practice.quarantine.length(), practice.addresses.len() == 1);
    let advice = "set appendonly yes and appendfsync always, or set --quarantine to the longest lease";
    let detail = "a restart can lose locks; only redlock run re-acquires its lock";
    warn_if(length.is_zero() && single, detail, advice)?;
    let detail = "a restart can lose locks, and with --quarantine 0 others can take them at once";
    fail_if(length.is_zero(), detail, advice)?;
    Ok(format!("a restart can lose locks; the quarantine of {} covers that", human(length)))
}

fn disk(node: &Facts, _: &Practice, _: &[&Facts]) -> CheckResult {
    let failed = |name| Ok::<_, Problem>(node.info.get(name)? != "ok");
    let advice = "see the server's log: is the disk full, or the directory not writable?";
    no_vote_if(failed("aof_last_write_status")?, "the last write to the AOF failed: no lock can be taken", advice)?;
    // A failed snapshot stops writes only if snapshots are configured (redis.conf, stop-writes-on-bgsave-error).
    let says = |name, value| node.config.get(name).is_ok_and(|is| is == value);
    let goes_on = says("stop-writes-on-bgsave-error", "no") || says("save", "");
    let failed_snapshot = failed("rdb_last_bgsave_status")?;
    no_vote_if(failed_snapshot && !goes_on, "the last snapshot failed: no lock can be taken (MISCONF)", advice)?;
    let failed_rewrite = failed("aof_last_bgrewrite_status")?;
    warn_if(failed_snapshot || failed_rewrite, "the last snapshot, or the last rewrite of the AOF, failed", advice)?;
    Ok("the last writes succeeded".to_owned())
}

fn uptime(node: &Facts, practice: &Practice, _: &[&Facts]) -> CheckResult {
    let up = node.info.number("uptime_in_seconds").map_err(|untold| match practice.has_quarantine() {
        true => Problem::no_vote(
            "its uptime is unknown, so a restart that lost its data cannot be noticed: redlock refuses it",
            "allow INFO (ACL rule +info), or use --quarantine 0 if no lease can be lost",
        ),
        false => untold,
    })?;
    let up = Duration::from_secs(up);
    let mut quarantine = practice.quarantine;
    let told = |left| {
        let (up, left) = (human(up), human(left));
        format!("started {up} ago: it may have forgotten leases, and is not ready for another {left}")
    };
    let advice = "wait, or lower --quarantine if no lease is that long";
    let left = quarantine.left(Some(up));
    no_vote_if(!left.is_zero(), told(left), advice)?;
    // This warns only: callers that have not seen the longest lease are granted locks.
    quarantine.cover(practice.locks.as_ref().map_or(Duration::ZERO, |locks| locks.longest_lease));
    let left = quarantine.left(Some(up));
    warn_if(!left.is_zero(), told(left), advice)?;
    Ok(format!("up for {}", human(up)))
}

fn replicas(node: &Facts, practice: &Practice, _: &[&Facts]) -> CheckResult {
    let (asked, connected) = (practice.replicas, node.info.number("connected_slaves")?);
    let detail = format!("--replicas {asked}, but {connected} connected: no lock can be taken");
    no_vote_if(u64::from(asked) > connected, detail, "lower --replicas, or add replicas")?;
    if let (Ok(least), Ok(good)) =
        (node.config.number("min-replicas-to-write"), node.info.number("min_slaves_good_slaves"))
    {
        let detail = format!("min-replicas-to-write {least}, but {good} in sync: no lock can be taken (NOREPLICAS)");
        no_vote_if(good < least, detail, "bring the replicas back")?;
    }
    let lags = |number| {
        let replica = node.info.get(&format!("slave{number}")).unwrap_or_default();
        let lag = replica.rsplit_once("lag=").and_then(|(_, lag)| lag.parse::<u64>().ok());
        !replica.contains("state=online") || lag.is_none_or(|lag| lag > LAG)
    };
    let detail = "a replica is not in sync: a failover to it loses leases";
    warn_if((0..connected).any(lags), detail, "check its log, and the network between them")?;
    let fails_over = matches!(node.address.deployment(), Deployment::Sentinel { .. } | Deployment::Cluster(_));
    let advice = "use --replicas 1, or several independent primaries instead of replicas";
    warn_if(fails_over && asked == 0, "a failover can lose the latest leases", advice)?;
    Ok(if connected == 0 { "none".to_owned() } else { format!("{connected}, in sync") })
}

fn permissions(node: &Facts, practice: &Practice, _: &[&Facts]) -> CheckResult {
    let Some(denied) = node.denied.as_ref().map_err(Clone::clone)? else {
        let detail = "before Redis 7 a server cannot be asked what a user may do";
        return Err(Problem::unknown(detail, "try it: redlock run doctor -- true"));
    };
    let (lacks, keys) = (format!("this user lacks {}", denied.join(", ")), format!("{}*", practice.prefix));
    let rule = rule(node.address.username(), practice.prefix);
    let optional = |command: &str| OPTIONAL.contains(&command) && !(command == "info" && practice.has_quarantine());
    let of_shapes = |command: &str| OF_SHAPES.contains(&command);
    let needed = denied.iter().any(|command| !optional(command) && !of_shapes(command));
    no_vote_if(needed, format!("{lacks}, which locks on {keys:?} need"), &rule)?;
    let shapes = denied.iter().any(|command| of_shapes(command));
    warn_if(shapes, format!("{lacks}: locks work, but not --shared and --slots"), &rule)?;
    warn_if(!denied.is_empty(), format!("{lacks}: locks work, but status shows less"), &rule)?;
    Ok("all commands, keys and channels are allowed".to_owned())
}

fn redis(practice: &Practice) -> CheckResult {
    let address = &practice.addresses[0];
    let detail = format!("no server was configured: the locks are on {address}, for this machine alone");
    warn_if(practice.is_default, detail, "set --redis or REDLOCK_REDIS, the same on all hosts that share locks")?;
    Ok("configured".to_owned())
}

/// The first names, and the number of others.
fn listed(names: &[String]) -> String {
    let first = names.iter().take(NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn expiry(practice: &Practice) -> CheckResult {
    let eternal = &practice.locks.as_ref().map_err(unlisted)?.eternal;
    let names: Vec<String> = eternal.iter().map(|name| format!("{name:?}")).collect();
    let detail = format!("these locks never expire, until they are released: {}", listed(&names));
    warn_if(!names.is_empty(), detail, "if nothing uses them any more: redlock release NAME --force")?;
    Ok("every lock under the prefix expires".to_owned())
}

fn unlisted(why: &String) -> Problem {
    Problem::unknown(format!("cannot list the leases: {why}"), "fix that first")
}

fn number(practice: &Practice) -> CheckResult {
    let nodes = practice.addresses.len();
    let may_fail = (nodes - 1) / 2;
    warn_if(nodes == 2, "2 nodes: both must answer, which is less reliable than one", "use 3 nodes, or 1")?;
    let (fewer, more) = (nodes - 1, nodes + 1);
    let detail = format!("{nodes} nodes: {may_fail} may fail, as with {fewer}");
    warn_if(nodes.is_multiple_of(2), detail, format!("use {fewer} or {more} nodes"))?;
    Ok(if nodes == 1 { "one".to_owned() } else { format!("{nodes}, of which {may_fail} may fail") })
}

fn node_timeout(practice: &Practice) -> CheckResult {
    let (given, used) = (practice.given_timeout.unwrap_or_default(), practice.node_timeout);
    let detail = format!("{} is more than half of the 30s ttl, so {} is used", human(given), human(used));
    warn_if(given > used, detail, "use a shorter --node-timeout: one node that hangs uses up the lease")?;
    Ok(format!("{} with a ttl of 30s", human(used)))
}

fn quarantine(practice: &Practice) -> CheckResult {
    let (length, fixed) = (practice.quarantine.length(), practice.quarantine.is_fixed());
    let longest = practice.locks.as_ref().map_err(unlisted)?.longest_lease;
    if length.is_zero() {
        return Ok("none: a restarted node grants locks at once".to_owned());
    }
    let (now, needed) = (human(length), human(longest));
    let advice = format!("--quarantine {needed} (REDLOCK_QUARANTINE), for all who use these nodes");
    let detail = format!("{now}, and a lease of {needed} is in use: a node that restarts may give its lock to another");
    fail_if(fixed && longest > length, detail, &advice)?;
    let detail = format!(
        "{now}, and a lease of {needed} is in use: callers that have not seen that lease use a shorter quarantine"
    );
    warn_if(longest > length, detail, &advice)?;
    Ok(format!("{now}: no lease is longer"))
}

#[cfg(test)]
mod tests {
    use super::super::Diagnosis::{self, Fail, Unknown, Warn};
    use super::super::Inventory;
    use super::super::facts::InfoFields;
    use super::*;
    use crate::lock::Locks;
    use crate::redis::Address;
    use std::rc::Rc;

    /// The facts about a healthy node, with this change.
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
            address: Address::parse(url, &Rc::default()).expect("a good URL"),
            round_trips: vec![Duration::from_millis(1)],
            info: InfoFields::of("INFO", &[&well, info].concat()),
            config: InfoFields::of("CONFIG", &[]),
            cluster: InfoFields::of("CLUSTER INFO", &[("cluster_state", "fail"), ("cluster_slots_ok", "16000")]),
            moving: Ok(Vec::new()),
            denied: Ok(Some(Vec::new())),
        }
    }

    /// The verdict of the check for the node.
    fn verdict(check: CheckOfNode, node: &Facts, others: &[&Facts]) -> Option<Diagnosis> {
        let locks = Locks::new(&[], None, None, Duration::from_secs(30));
        let practice = Practice {
            addresses: &[],
            prefix: "",
            given_timeout: None,
            node_timeout: locks.node_timeout(),
            replicas: 0,
            quarantine: locks.quarantine(),
            is_default: false,
            locks: Ok(Inventory::default()),
        };
        check(node, &practice, others).err().map(|trouble| trouble.verdict)
    }

    #[test]
    fn servers_that_the_tests_cannot_start() {
        let is = |info: &[(&str, &str)], expected| {
            assert_eq!(verdict(version, &node("redis://a", info), &[]), expected, "{info:?}");
        };
        is(&[], None);
        is(&[("redis_version", "6.2.14")], None);
        is(&[("redis_version", "6.0.16")], Some(Fail));
        is(&[("redis_version", "10.0")], None);
        is(&[("valkey_version", "8.0.1"), ("redis_version", "7.2.4")], None);
        is(&[("valkey_version", "7.0.0")], Some(Fail));
        is(&[("redis_version", "8.0-rc1")], None);
        is(&[("redis_version", "unstable")], Some(Unknown));
        let old = Facts { denied: Ok(None), ..node("redis://a", &[]) };
        assert_eq!(verdict(permissions, &old, &[]), Some(Unknown));
    }

    #[test]
    fn what_real_servers_seldom_tell() {
        let of = |check, url, info: &[(&str, &str)]| verdict(check, &node(url, info), &[]);
        let plain = "redis://a";
        assert_eq!(of(disk, plain, &[]), None);
        assert_eq!(of(disk, plain, &[("aof_last_write_status", "err")]), Some(Fail));
        assert_eq!(of(disk, plain, &[("aof_last_bgrewrite_status", "err")]), Some(Warn));
        let replica = |state| [("connected_slaves", "1"), ("slave0", state)];
        assert_eq!(of(replicas, plain, &replica("ip=::1,port=1,state=online,offset=9,lag=1")), None);
        assert_eq!(of(replicas, plain, &replica("ip=::1,port=1,state=online,offset=9,lag=11")), Some(Warn));
        assert_eq!(of(replicas, plain, &replica("ip=::1,port=1,state=wait_bgsave,offset=0,lag=0")), Some(Warn));
        assert_eq!(of(replicas, "redis+sentinel://a/s", &[]), Some(Warn));
        assert_eq!(of(kind, "redis+cluster://a", &[("cluster_enabled", "1")]), Some(Fail));
        let slots = [("cluster_state", "ok"), ("cluster_slots_ok", "16000")];
        let cluster = node("redis+cluster://a", &[("cluster_enabled", "1")]);
        let lacking = Facts { cluster: InfoFields::of("CLUSTER INFO", &slots), ..cluster };
        assert_eq!(verdict(kind, &lacking, &[]), Some(Fail));
        assert_eq!(of(kind, "redis+cluster://a", &[]), Some(Fail));
        assert_eq!(of(role, plain, &[("loading", "1"), ("role", "master")]), Some(Fail));
    }

    #[test]
    fn a_number_that_is_none_is_unknown() {
        let garbled = |name| node("redis://a", &[(name, "many")]);
        let of = |check: CheckOfNode, name| verdict(check, &garbled(name), &[]);
        assert_eq!(of(uptime, "uptime_in_seconds"), Some(Unknown));
        assert_eq!(of(memory, "maxmemory"), Some(Unknown));
        assert_eq!(of(replicas, "connected_slaves"), Some(Unknown));
    }
}
