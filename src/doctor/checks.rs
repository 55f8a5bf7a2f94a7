//! The checks: each a small function from what a node tells to a judgement. No I/O.

use super::facts::{Facts, Told};
use super::permissions::{OPTIONAL, rule};
use super::{Judgement, Practice};
use crate::redis::{Fault, Place};
use crate::text::{escaped, human};
use std::time::Duration;

/// What looks at one node, beside the others that were reached.
pub(super) type Look = fn(&Facts, &Practice, &[&Facts]) -> Told<Judgement>;

pub(super) const OF_A_NODE: [(&str, Look); 13] = [
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
    ("clock", clock),
    ("permissions", permissions),
];

/// What is about all nodes together.
pub(super) fn of_all(practice: &Practice) -> [(&'static str, Judgement); 3] {
    [
        ("number of nodes", number(practice)),
        ("node time-out", node_timeout(practice)),
        ("quarantine", quarantine(practice)),
    ]
}

/// Clocks that differ by less are not worth a word.
const SKEW: i64 = 1000;
/// A replica that has been silent for longer lags behind, in seconds.
const LAG: u64 = 10;

/// A node that cannot be asked at all.
pub(super) fn unreached(fault: &Fault) -> Judgement {
    let advice = match fault {
        Fault::Refused(..) => "check the user, its password and the certificates",
        Fault::Misconfigured(..) => "check --redis",
        Fault::TimedOut => "is it a firewall, or --node-timeout too short for this network?",
        Fault::Shortage(_) => "this machine needs more of it, not the node",
        _ => "is --redis right, and Redis running there?",
    };
    Judgement::fail(format!("{fault}: it has no vote"), advice)
}

fn connection(node: &Facts, practice: &Practice, _: &[&Facts]) -> Told<Judgement> {
    let ms = |time: &Duration| format!("{:.2}ms", time.as_secs_f64() * 1000.0);
    let (median, worst) =
        (&node.round_trips[node.round_trips.len() / 2], &node.round_trips[node.round_trips.len() - 1]);
    let how = if node.address.is_tls() { "by TLS, " } else { "" };
    let figures = format!("{how}a request takes {}, {} at worst", ms(median), ms(worst));
    let timeout = practice.node_timeout;
    Ok(match *worst > timeout / 2 {
        false => Judgement::ok(format!("{figures}, of {}", human(timeout))),
        true => Judgement::warn(
            format!("{figures}, and after {} it counts as failed", human(timeout)),
            "give --node-timeout and a longer --ttl, or bring Redis nearer",
        ),
    })
}

fn kind(node: &Facts, _: &Practice, _: &[&Facts]) -> Told<Judgement> {
    if node.info.get("sentinel_masters").is_ok() {
        let advice = format!("redis+sentinel://{}/SERVICE", node.address);
        return Ok(Judgement::fail("this is a Sentinel, which keeps no locks itself", advice));
    }
    let to_cluster = matches!(node.address.place(), Place::Cluster(_));
    Ok(match (node.info.number("cluster_enabled")? > 0, to_cluster) {
        (false, false) => Judgement::ok("a server on its own"),
        (false, true) => Judgement::fail("this is no Cluster", "give it as redis://"),
        (true, false) => {
            let advice = format!("redis+cluster://{}", node.address);
            Judgement::fail("this node of a Cluster has the locks of its own slots only", advice)
        }
        (true, true) => {
            let (state, slots) = (node.cluster.get("cluster_state")?, node.cluster.number("cluster_slots_ok")?);
            match (state, slots) {
                ("ok", 16384) => Judgement::ok("a Cluster, all slots served"),
                _ => Judgement::fail(
                    format!("a Cluster that is {state:?}, and serves {slots} of 16384 slots: the others have no locks"),
                    "redis-cli --cluster check, and fix",
                ),
            }
        }
    })
}

fn role(node: &Facts, _: &Practice, _: &[&Facts]) -> Told<Judgement> {
    if node.info.get("loading").is_ok_and(|loading| loading == "1") {
        return Ok(Judgement::fail("it loads its data, and serves nothing meanwhile", "wait until it has"));
    }
    Ok(match node.info.get("role")? {
        "master" => Judgement::ok("a primary"),
        role => {
            let primary = node.info.get("master_host").unwrap_or("?");
            let port = node.info.get("master_port").unwrap_or("?");
            Judgement::fail(
                format!("a {} of {primary}:{port}, which takes no lock", escaped(role, 20)),
                "name its primary, or redis+sentinel:// which finds it",
            )
        }
    })
}

fn identity(node: &Facts, _: &Practice, others: &[&Facts]) -> Told<Judgement> {
    let run_id = node.info.get("run_id")?;
    let same = |name, value| others.iter().find(move |other| other.info.get(name).is_ok_and(|theirs| theirs == value));
    if let Some(other) = same("run_id", run_id) {
        let detail = format!("{} is the same server by another name: it would have two votes", other.address);
        return Ok(Judgement::fail(detail, "name each server once"));
    }
    // A replica has the replication id of its primary.
    if let Some(other) = same("master_replid", node.info.get("master_replid")?) {
        let detail = format!("it and {} copy each other: what one forgets, both forget", other.address);
        return Ok(Judgement::fail(detail, "nodes are primaries that know nothing of each other"));
    }
    Ok(Judgement::ok("no other node is the same server, or its copy"))
}

fn version(node: &Facts, _: &Practice, _: &[&Facts]) -> Told<Judgement> {
    let number = |text: &str| {
        let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    };
    let keydb = node.info.get("executable").is_ok_and(|path| path.contains("keydb"));
    let (name, version, least) = match (node.info.get("valkey_version"), node.info.get("dragonfly_version")) {
        (Ok(version), _) => ("Valkey", version, Some((7, 2))),
        (_, Ok(version)) => ("Dragonfly", version, None),
        _ if keydb => ("KeyDB", node.info.get("redis_version")?, None),
        _ => ("Redis", node.info.get("redis_version")?, Some((6, 2))),
    };
    let what = format!("{name} {}", escaped(version, 20));
    Ok(match least {
        Some(least) if number(version) >= least => Judgement::ok(what),
        Some((major, minor)) => Judgement::fail(
            format!("{what} lacks what redlock's scripts call"),
            format!("{name} {major}.{minor} or later"),
        ),
        None => Judgement::warn(format!("{what}, with which redlock is not tested"), "Redis or Valkey"),
    })
}

fn eviction(node: &Facts, _: &Practice, _: &[&Facts]) -> Told<Judgement> {
    let (limit, policy) = (node.info.number("maxmemory")?, node.info.get("maxmemory_policy")?);
    Ok(match policy {
        "noeviction" => Judgement::ok("noeviction: no lock is dropped for want of memory"),
        policy if limit == 0 => Judgement::ok(format!("{policy}, but there is no maxmemory")),
        policy => Judgement::fail(
            format!("maxmemory-policy {policy}: a lock that is held can be dropped, and taken by another"),
            "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf",
        ),
    })
}

fn memory(node: &Facts, _: &Practice, _: &[&Facts]) -> Told<Judgement> {
    let (limit, used) = (node.info.number("maxmemory")?, node.info.number("used_memory")?);
    let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    let figures = format!("{} of {} are used", mb(used), mb(limit));
    let advice = "a larger maxmemory, or a server for the locks alone";
    Ok(match used * 10 {
        _ if limit == 0 => Judgement::ok(format!("{} are used, without a limit", mb(used))),
        tenfold if tenfold >= limit * 10 => Judgement::fail(format!("{figures}: no lock can be taken"), advice),
        tenfold if tenfold >= limit * 9 => {
            Judgement::warn(format!("{figures}: when it is full, no lock can be taken"), advice)
        }
        _ => Judgement::ok(figures),
    })
}

fn persistence(node: &Facts, practice: &Practice, _: &[&Facts]) -> Told<Judgement> {
    if node.info.number("aof_enabled")? > 0 && node.config.get("appendfsync")? == "always" {
        return Ok(Judgement::ok("every write is on disk before it is answered: a restart forgets no lock"));
    }
    let advice = "appendonly yes and appendfsync always, or a --quarantine as long as the longest lease";
    Ok(match (practice.quarantine.length().as_secs(), practice.addresses.len()) {
        (0, 1) => Judgement::warn(
            "a restart forgets all locks: a running redlock run takes its own again, a lease of acquire is lost",
            advice,
        ),
        (0, _) => Judgement::fail("a restart forgets locks, and with --quarantine 0 others get them at once", advice),
        (length, _) => {
            let length = human(Duration::from_secs(length));
            Judgement::ok(format!("a restart forgets locks, which the quarantine of {length} makes up for"))
        }
    })
}

fn disk(node: &Facts, _: &Practice, _: &[&Facts]) -> Told<Judgement> {
    let failed = |name| node.info.get(name).map(|status| status != "ok");
    let advice = "look at the server's log: is the disk full, or its dir not writable?";
    // redis.conf, stop-writes-on-bgsave-error: only where snapshots are configured.
    let says = |name, value| node.config.get(name).is_ok_and(|is| is == value);
    let goes_on = says("stop-writes-on-bgsave-error", "no") || says("save", "");
    Ok(if failed("aof_last_write_status")? {
        Judgement::fail("the last write to the AOF failed: no lock can be taken", advice)
    } else if failed("rdb_last_bgsave_status")? && !goes_on {
        Judgement::fail("the last snapshot failed: no lock can be taken (MISCONF)", advice)
    } else if failed("rdb_last_bgsave_status")? || failed("aof_last_bgrewrite_status")? {
        Judgement::warn("the last snapshot, or the last rewrite of the AOF, failed", advice)
    } else {
        Judgement::ok("the last writes went well")
    })
}

fn uptime(node: &Facts, practice: &Practice, _: &[&Facts]) -> Told<Judgement> {
    let up = Duration::from_secs(node.info.number("uptime_in_seconds")?);
    let mut quarantine = practice.quarantine;
    quarantine.cover(practice.longest_lease.clone().unwrap_or_default());
    let left = quarantine.left(Some(up));
    Ok(match left.is_zero() {
        true => Judgement::ok(format!("for {}", human(up))),
        false => Judgement::warn(
            format!("started {} ago: it may have forgotten leases, and grants none for {}", human(up), human(left)),
            "wait; or a shorter --quarantine, if no lease is so long",
        ),
    })
}

fn clock(node: &Facts, _: &Practice, others: &[&Facts]) -> Told<Judgement> {
    let ahead = node.clock_ahead.clone()?;
    let doubt = i64::try_from(node.round_trips[0].as_millis() / 2).unwrap_or_default();
    if ahead.abs() <= SKEW + doubt {
        return Ok(Judgement::ok(format!("{}ms from this machine's", ahead.abs())));
    }
    let by = human(Duration::from_millis(ahead.unsigned_abs()));
    let what = format!("{by} {} this machine's", if ahead > 0 { "ahead of" } else { "behind" });
    let like_it = |other: &&&Facts| other.clock_ahead.as_ref().is_ok_and(|theirs| (theirs - ahead).abs() <= SKEW);
    let whose = match others.iter().filter(like_it).count() {
        0 => "this clock is wrong, or this machine's",
        _ => "other nodes have the same time: this machine's clock is wrong",
    };
    Ok(Judgement::warn(
        format!("{what}: {whose}; a clock that is set while leases run ends them early or late"),
        "let NTP keep all clocks, by slewing",
    ))
}

fn permissions(node: &Facts, practice: &Practice, _: &[&Facts]) -> Told<Judgement> {
    let denied = node.denied.as_ref().map_err(Clone::clone)?;
    let detail = format!("this user may not use {} on {:?}", denied.join(", "), format!("{}*", practice.prefix));
    let rule = rule(node.address.username(), practice.prefix);
    Ok(match denied.iter().all(|command| OPTIONAL.contains(&command.as_str())) {
        true if denied.is_empty() => Judgement::ok("all commands, keys and channels"),
        true => Judgement::warn(format!("{detail}: locks work, but less can be told of them"), rule),
        false => Judgement::fail(format!("{detail}, which locks need"), rule),
    })
}

fn replicas(node: &Facts, practice: &Practice, _: &[&Facts]) -> Told<Judgement> {
    let connected = node.info.number("connected_slaves")?;
    if u64::from(practice.replicas) > connected {
        let detail = format!("--replicas {}, and {connected} connected: no lock can be taken", practice.replicas);
        return Ok(Judgement::fail(detail, "a smaller --replicas, or more replicas"));
    }
    let (wanted, good) = (node.config.number("min-replicas-to-write"), node.info.number("min_slaves_good_slaves"));
    if let (Ok(wanted), Ok(good)) = (wanted, good)
        && good < wanted
    {
        let detail =
            format!("min-replicas-to-write {wanted}, and {good} are in step: no lock can be taken (NOREPLICAS)");
        return Ok(Judgement::fail(detail, "bring the replicas back"));
    }
    let lags = |number| {
        let replica = node.info.get(&format!("slave{number}")).unwrap_or_default();
        let lag = replica.rsplit_once("lag=").and_then(|(_, lag)| lag.parse().ok());
        !replica.contains("state=online") || lag > Some(LAG)
    };
    let fails_over = matches!(node.address.place(), Place::Sentinel { .. } | Place::Cluster(_));
    Ok(match connected {
        count if (0..count).any(lags) => Judgement::warn(
            "a replica is not in step: a fail-over to it forgets leases",
            "look at its log, and at the network between them",
        ),
        _ if fails_over && practice.replicas == 0 => Judgement::warn(
            "a fail-over can forget the latest leases",
            "--replicas 1, or several independent primaries in the place of replicas",
        ),
        0 => Judgement::ok("none"),
        count => Judgement::ok(format!("{count}, in step")),
    })
}

fn number(practice: &Practice) -> Judgement {
    let nodes = practice.addresses.len();
    let may_fail = (nodes - 1) / 2;
    match nodes {
        1 => Judgement::ok("one: while it is down, no lock can be taken"),
        2 => Judgement::warn("2: both must answer, so that two fail more often than one", "3, or one"),
        even if even % 2 == 0 => Judgement::warn(
            format!("{even}: {may_fail} may fail, no more than with {}", even - 1),
            format!("{} or {}", even - 1, even + 1),
        ),
        odd => Judgement::ok(format!("{odd}, of which {may_fail} may fail")),
    }
}

fn node_timeout(practice: &Practice) -> Judgement {
    let (given, used) = (practice.given_timeout.unwrap_or_default(), practice.node_timeout);
    match given > used {
        true => Judgement::warn(
            format!("{} is more than half of a ttl of 30s, where {} is used", human(given), human(used)),
            "a shorter --node-timeout: one node that hangs uses up the lease",
        ),
        false => Judgement::ok(format!("{} with a ttl of 30s", human(used))),
    }
}

fn quarantine(practice: &Practice) -> Judgement {
    let length = practice.quarantine.length();
    let longest = match &practice.longest_lease {
        Ok(longest) => *longest,
        Err(why) => return Judgement::unknown(format!("the leases cannot be looked at: {why}"), "mend that first"),
    };
    let (now, needed) = (human(length), human(longest));
    match practice.quarantine {
        _ if length.is_zero() => Judgement::ok("none: a node that has restarted grants at once"),
        _ if longest <= length => Judgement::ok(format!("{now}; no lease is longer")),
        quarantine if quarantine.is_fixed() => Judgement::fail(
            format!("{now}, and a lease of {needed} is in use: a node that restarts may give its lock to another"),
            format!("--quarantine {needed} (REDLOCK_QUARANTINE), for all who use these nodes"),
        ),
        _ => Judgement::warn(
            format!("{now} by default, and a lease of {needed} is in use: who has not seen it does not wait so long"),
            format!("--quarantine {needed} (REDLOCK_QUARANTINE), for all who use these nodes"),
        ),
    }
}
