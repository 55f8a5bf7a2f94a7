//! The checks: each a small function from what a node tells to what that means for locks. No I/O.

use super::facts::Facts;
use super::permissions::{OPTIONAL, rule};
use super::{Checked, Practice, Trouble};
use crate::redis::{Fault, Place};
use crate::text::human;
use std::time::Duration;

/// Looks at one node, beside the others that were reached.
type Look = fn(&Facts, &Practice, &[&Facts]) -> Checked;

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

/// Looks at how all nodes are used together.
type LookAtAll = fn(&Practice) -> Checked;

pub(super) const OF_ALL: [(&str, LookAtAll); 3] =
    [("number of nodes", number), ("node time-out", node_timeout), ("quarantine", quarantine)];

/// Clocks that differ by less are not worth a word, in ms.
const SKEW: i64 = 1000;
/// A replica that has been silent for longer lags behind, in seconds.
const LAG: u64 = 10;

fn fail_if(wrong: bool, detail: impl Into<String>, advice: impl Into<String>) -> Result<(), Trouble> {
    if wrong { Err(Trouble::fail(detail, advice)) } else { Ok(()) }
}

fn warn_if(wrong: bool, detail: impl Into<String>, advice: impl Into<String>) -> Result<(), Trouble> {
    if wrong { Err(Trouble::warn(detail, advice)) } else { Ok(()) }
}

/// A node that cannot be asked at all.
pub(super) fn unreached(fault: &Fault) -> Checked {
    Err(Trouble::fail(format!("{fault}: it has no vote"), fault.advice().1))
}

fn connection(node: &Facts, practice: &Practice, _: &[&Facts]) -> Checked {
    let ms = |time: Duration| format!("{:.2}ms", time.as_secs_f64() * 1000.0);
    let (median, worst) = (node.round_trips[node.round_trips.len() / 2], node.round_trips[node.round_trips.len() - 1]);
    let how = if node.address.is_tls() { "by TLS, " } else { "" };
    let figures = format!("{how}a request takes {}, {} at worst", ms(median), ms(worst));
    let most = human(practice.node_timeout);
    let advice = "give --node-timeout and a longer --ttl, or bring Redis nearer";
    warn_if(worst > practice.node_timeout / 2, format!("{figures}, and after {most} it counts as failed"), advice)?;
    Ok(format!("{figures}, of {most}"))
}

fn kind(node: &Facts, _: &Practice, _: &[&Facts]) -> Checked {
    let address = &node.address;
    let advice = format!("use redis+sentinel://{address}/SERVICE");
    fail_if(node.is_sentinel(), "this is a Sentinel, which keeps no locks itself", advice)?;
    let (is_cluster, to_cluster) =
        (node.info.number("cluster_enabled")? > 0, matches!(address.place(), Place::Cluster(_)));
    let advice = format!("use redis+cluster://{address}");
    let detail = "this is one node of a Cluster, and it holds only the locks in its own slots";
    fail_if(is_cluster && !to_cluster, detail, advice)?;
    fail_if(to_cluster && !is_cluster, "this is not a Cluster", "use redis://")?;
    if !is_cluster {
        return Ok("a server on its own".to_owned());
    }
    let (state, slots) = (node.cluster.get("cluster_state")?, node.cluster.number("cluster_slots_ok")?);
    let advice = "run redis-cli --cluster check, then --cluster fix";
    fail_if(state != "ok", format!("the Cluster is down (cluster_state:{state}): no lock can be taken"), advice)?;
    let others = "names that hash to the others cannot be locked";
    fail_if(slots < 16384, format!("the Cluster serves only {slots} of 16384 slots: {others}"), advice)?;
    Ok("a Cluster, all slots served".to_owned())
}

fn role(node: &Facts, _: &Practice, _: &[&Facts]) -> Checked {
    let told = |name| node.info.get(name).unwrap_or("?");
    fail_if(told("loading") == "1", "it loads its data, and serves nothing meanwhile", "wait until it has")?;
    let (role, primary) = (node.info.get("role")?, format!("{}:{}", told("master_host"), told("master_port")));
    let detail = format!("a replica of {primary}, which cannot grant locks");
    fail_if(role != "master", detail, "give its primary, or use redis+sentinel:// to find it")?;
    Ok("a primary".to_owned())
}

fn identity(node: &Facts, _: &Practice, others: &[&Facts]) -> Checked {
    // The one with the same value has another's name, if there is one.
    let same = |name| {
        let ours = node.info.get(name)?;
        Ok(others.iter().find(|other| other.info.get(name).is_ok_and(|theirs| theirs == ours)))
    };
    if let Some(other) = same("run_id")? {
        let detail = format!("{} is the same server by another name: it would have two votes", other.address);
        return Err(Trouble::fail(detail, "name each server once"));
    }
    // A replica has the replication id of its primary.
    if let Some(other) = same("master_replid")? {
        let detail = format!("it and {} replicate the same data: one data loss loses both votes", other.address);
        return Err(Trouble::fail(detail, "use independent primaries"));
    }
    Ok("no other node is the same server, or its copy".to_owned())
}

fn version(node: &Facts, _: &Practice, _: &[&Facts]) -> Checked {
    let keydb = node.info.get("executable").is_ok_and(|path| path.contains("keydb"));
    let (name, version, least) = match (node.info.get("valkey_version"), node.info.get("dragonfly_version")) {
        (Ok(version), _) => ("Valkey", version, [7, 2]),
        (_, Ok(version)) => ("Dragonfly", version, [0, 0]),
        _ if keydb => ("KeyDB", node.info.get("redis_version")?, [0, 0]),
        _ => ("Redis", node.info.get("redis_version")?, [6, 2]),
    };
    let what = format!("{name} {version}");
    warn_if(least == [0, 0], format!("redlock is not tested with {what}"), "use Redis or Valkey")?;
    let number: Vec<u32> = version.split('.').map(|part| part.parse().unwrap_or_default()).collect();
    let advice = format!("use {name} {}.{} or later", least[0], least[1]);
    fail_if(number[..] < least[..], format!("{what} is too old for redlock's scripts"), advice)?;
    Ok(what)
}

fn eviction(node: &Facts, _: &Practice, _: &[&Facts]) -> Checked {
    let (limit, policy) = (node.info.number("maxmemory")?, node.info.get("maxmemory_policy")?);
    let detail = format!("maxmemory-policy {policy}: a lock that is held can be dropped, and taken by another");
    let advice = "CONFIG SET maxmemory-policy noeviction, and the same in redis.conf";
    fail_if(limit > 0 && policy != "noeviction", detail, advice)?;
    let why = if limit == 0 { "there is no maxmemory" } else { "noeviction" };
    Ok(format!("no lock is evicted: {why}"))
}

fn memory(node: &Facts, _: &Practice, _: &[&Facts]) -> Checked {
    let (limit, used) = (node.info.number("maxmemory")?, node.info.number("used_memory")?);
    let size = |bytes: u64| match bytes {
        0..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    };
    if limit == 0 {
        return Ok(format!("{} are used, without a limit", size(used)));
    }
    let figures = format!("{} of {} are used", size(used), size(limit));
    let advice = "a larger maxmemory, or a server for the locks alone";
    fail_if(used >= limit, format!("{figures}: no lock can be taken"), advice)?;
    warn_if(used >= limit / 10 * 9, format!("{figures}: when it is full, no lock can be taken"), advice)?;
    Ok(figures)
}

fn persistence(node: &Facts, practice: &Practice, _: &[&Facts]) -> Checked {
    if node.info.number("aof_enabled")? > 0 && node.config.get("appendfsync")? == "always" {
        return Ok("every write is on disk before it is answered: a restart forgets no lock".to_owned());
    }
    let (length, single) = (practice.quarantine.length(), practice.addresses.len() == 1);
    let advice = "set appendonly yes and appendfsync always, or --quarantine to the longest lease";
    let detail = "a restart can lose locks; only redlock run takes its own again";
    warn_if(length.is_zero() && single, detail, advice)?;
    let detail = "a restart can forget locks, and with --quarantine 0 others get them at once";
    fail_if(length.is_zero(), detail, advice)?;
    Ok(format!("a restart can forget locks, which the quarantine of {} makes up for", human(length)))
}

fn disk(node: &Facts, _: &Practice, _: &[&Facts]) -> Checked {
    let failed = |name| Ok::<_, Trouble>(node.info.get(name)? != "ok");
    let advice = "see the server's log: is the disk full, or the directory not writable?";
    fail_if(failed("aof_last_write_status")?, "the last write to the AOF failed: no lock can be taken", advice)?;
    // redis.conf, stop-writes-on-bgsave-error: only where snapshots are configured.
    let says = |name, value| node.config.get(name).is_ok_and(|is| is == value);
    let goes_on = says("stop-writes-on-bgsave-error", "no") || says("save", "");
    let failed_snapshot = failed("rdb_last_bgsave_status")?;
    fail_if(failed_snapshot && !goes_on, "the last snapshot failed: no lock can be taken (MISCONF)", advice)?;
    let failed_rewrite = failed("aof_last_bgrewrite_status")?;
    warn_if(failed_snapshot || failed_rewrite, "the last snapshot, or the last rewrite of the AOF, failed", advice)?;
    Ok("the last writes went well".to_owned())
}

fn uptime(node: &Facts, practice: &Practice, _: &[&Facts]) -> Checked {
    let up = Duration::from_secs(node.info.number("uptime_in_seconds")?);
    let mut quarantine = practice.quarantine;
    quarantine.cover(practice.longest_lease.clone().unwrap_or_default());
    let left = quarantine.left(Some(up));
    let detail =
        format!("started {} ago: it may have forgotten leases, and grants none for {}", human(up), human(left));
    warn_if(!left.is_zero(), detail, "wait, or lower --quarantine if no lease is that long")?;
    Ok(format!("for {}", human(up)))
}

fn replicas(node: &Facts, practice: &Practice, _: &[&Facts]) -> Checked {
    let (asked, connected) = (practice.replicas, node.info.number("connected_slaves")?);
    let detail = format!("--replicas {asked}, and {connected} connected: no lock can be taken");
    fail_if(u64::from(asked) > connected, detail, "a smaller --replicas, or more replicas")?;
    if let (Ok(least), Ok(good)) =
        (node.config.number("min-replicas-to-write"), node.info.number("min_slaves_good_slaves"))
    {
        let detail = format!("min-replicas-to-write {least}, and {good} in step: no lock can be taken (NOREPLICAS)");
        fail_if(good < least, detail, "bring the replicas back")?;
    }
    let lags = |number| {
        let replica = node.info.get(&format!("slave{number}")).unwrap_or_default();
        let lag = replica.rsplit_once("lag=").and_then(|(_, lag)| lag.parse().ok());
        !replica.contains("state=online") || lag > Some(LAG)
    };
    let detail = "a replica is not in step: a fail-over to it forgets leases";
    warn_if((0..connected).any(lags), detail, "look at its log, and at the network between them")?;
    let fails_over = matches!(node.address.place(), Place::Sentinel { .. } | Place::Cluster(_));
    let advice = "--replicas 1, or several independent primaries in the place of replicas";
    warn_if(fails_over && asked == 0, "a fail-over can forget the latest leases", advice)?;
    Ok(if connected == 0 { "none".to_owned() } else { format!("{connected}, in step") })
}

fn clock(node: &Facts, _: &Practice, others: &[&Facts]) -> Checked {
    let ahead = node.clock_ahead.clone()?;
    let by = human(Duration::from_millis(ahead.unsigned_abs()));
    let side = if ahead > 0 { "ahead of" } else { "behind" };
    let alike = others.iter().any(|other| other.clock_ahead.as_ref().is_ok_and(|it| (it - ahead).abs() <= SKEW));
    let whose = match alike {
        true => "the other nodes agree with it, so this machine's clock is wrong",
        false => "this clock is wrong, or this machine's",
    };
    let detail = format!("{by} {side} this machine's: {whose}; setting it while leases run ends them early or late");
    let doubt = i64::try_from(node.round_trips[0].as_millis() / 2).unwrap_or_default();
    warn_if(ahead.abs() > SKEW + doubt, detail, "let NTP keep all clocks, by slewing")?;
    Ok(format!("{}ms from this machine's", ahead.abs()))
}

fn permissions(node: &Facts, practice: &Practice, _: &[&Facts]) -> Checked {
    let Some(denied) = node.denied.as_ref().map_err(Clone::clone)? else {
        let detail = "before Redis 7 a server cannot be asked what a user may do";
        return Err(Trouble::unknown(detail, "try it: redlock run doctor -- true"));
    };
    let (lacks, keys) = (format!("this user lacks {}", denied.join(", ")), format!("{}*", practice.prefix));
    let rule = rule(node.address.username(), practice.prefix);
    let needed = denied.iter().any(|command| !OPTIONAL.contains(&command.as_str()));
    fail_if(needed, format!("{lacks}, which locks on {keys:?} need"), &rule)?;
    warn_if(!denied.is_empty(), format!("{lacks}: locks work, but status shows less"), &rule)?;
    Ok("all commands, keys and channels".to_owned())
}

fn number(practice: &Practice) -> Checked {
    let nodes = practice.addresses.len();
    let may_fail = (nodes - 1) / 2;
    warn_if(nodes == 2, "2 nodes: both must answer, which is less reliable than one", "use 3 nodes, or 1")?;
    let (fewer, more) = (nodes - 1, nodes + 1);
    let detail = format!("{nodes} nodes: {may_fail} may fail, as with {fewer}");
    warn_if(nodes.is_multiple_of(2), detail, format!("use {fewer} or {more} nodes"))?;
    Ok(format!("{nodes}, of which {may_fail} may fail"))
}

fn node_timeout(practice: &Practice) -> Checked {
    let (given, used) = (practice.given_timeout.unwrap_or_default(), practice.node_timeout);
    let detail = format!("{} is more than half of a ttl of 30s, where {} is used", human(given), human(used));
    warn_if(given > used, detail, "a shorter --node-timeout: one node that hangs uses up the lease")?;
    Ok(format!("{} with a ttl of 30s", human(used)))
}

fn quarantine(practice: &Practice) -> Checked {
    let (length, fixed) = (practice.quarantine.length(), practice.quarantine.is_fixed());
    let cannot = |why: &String| Trouble::unknown(format!("cannot list the leases: {why}"), "fix that first");
    let longest = *practice.longest_lease.as_ref().map_err(cannot)?;
    if length.is_zero() {
        return Ok("none: a node that has restarted grants at once".to_owned());
    }
    let (now, needed) = (human(length), human(longest));
    let advice = format!("--quarantine {needed} (REDLOCK_QUARANTINE), for all who use these nodes");
    let detail = format!("{now}, and a lease of {needed} is in use: a node that restarts may give its lock to another");
    fail_if(fixed && longest > length, detail, &advice)?;
    let detail = format!("{now}, and a lease of {needed} is in use: a caller that has not seen it waits less");
    warn_if(longest > length, detail, &advice)?;
    Ok(format!("{now}: no lease is longer"))
}

#[cfg(test)]
mod tests {
    use super::super::Diagnosis::{self, Fail, Unknown, Warn};
    use super::super::facts::Fields;
    use super::*;
    use crate::lock::Lock;
    use crate::redis::Address;
    use std::rc::Rc;

    /// What a healthy node tells, with this changed.
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
            clock_ahead: Ok(0),
            info: Fields::of("INFO", &[&well, info].concat()),
            config: Fields::of("CONFIG", &[]),
            cluster: Fields::of("CLUSTER INFO", &[("cluster_state", "fail"), ("cluster_slots_ok", "16000")]),
            denied: Ok(Some(Vec::new())),
        }
    }

    /// How the check comes out for the node.
    fn verdict(check: Look, node: &Facts, others: &[&Facts]) -> Option<Diagnosis> {
        let lock = Lock::new("", "", &[], None, None, Duration::from_secs(30));
        let practice = Practice {
            addresses: &[],
            prefix: "",
            given_timeout: None,
            node_timeout: lock.node_timeout(),
            replicas: 0,
            quarantine: lock.quarantine(),
            longest_lease: Ok(Duration::ZERO),
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
        is(&[("dragonfly_version", "df-v1.21.2"), ("redis_version", "6.2.11")], Some(Warn));
        is(&[("redis_version", "6.3.4"), ("executable", "/usr/bin/keydb-server")], Some(Warn));
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
        let lacking = Facts { cluster: Fields::of("CLUSTER INFO", &slots), ..cluster };
        assert_eq!(verdict(kind, &lacking, &[]), Some(Fail));
        assert_eq!(of(kind, "redis+cluster://a", &[]), Some(Fail));
        assert_eq!(of(role, plain, &[("loading", "1"), ("role", "master")]), Some(Fail));
    }

    #[test]
    fn of_three_clocks_one_is_wrong() {
        let at = |ahead| Facts { clock_ahead: Ok(ahead), ..node("redis://a", &[]) };
        let (right, wrong) = (at(20), at(-5000));
        assert_eq!(verdict(clock, &right, &[&right, &wrong]), None);
        assert_eq!(verdict(clock, &wrong, &[&right, &right]), Some(Warn));
    }
}
