//! `redlock doctor`: the tests make servers unfit for locks in many ways, and doctor must find every fault.

use crate::support::{
    Cluster, Directory, Mode, Proxy, Redis, SOON, Sentinels, Test, Tls, Where, acquire_for, any, eventually, free_port,
    like, ms, redlock, when,
};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Every write is on disk before the answer, so doctor finds nothing to complain of.
const DURABLE: [&str; 4] = ["--appendonly", "yes", "--appendfsync", "always"];

/// The JSON object of `redlock doctor`.
struct Checkup(Value);

impl Checkup {
    #[track_caller]
    fn of(test: Test, status: i32) -> Checkup {
        let ended = test.args(["doctor", "--format", "json"]).status(status).stdout(any()).run();
        assert!(!ended.stdout.contains("s3cret"), "{}", ended.stdout);
        Checkup(ended.json())
    }

    fn all(&self) -> impl Iterator<Item = &Value> {
        self.0["checks"].as_array().unwrap().iter()
    }

    /// The names of the checks with this verdict.
    fn that(&self, verdict: &str) -> Vec<&str> {
        let such = self.all().filter(|found| found["verdict"] == verdict);
        such.map(|found| found["check"].as_str().unwrap()).collect()
    }

    /// The advice of the check of the scripts.
    fn advice(&self) -> &str {
        self.all().find(|found| found["check"] == "scripts").unwrap()["advice"].as_str().unwrap()
    }

    /// `check` must have this verdict at least once, and each time with these words. No other check may fail.
    #[track_caller]
    fn says(&self, verdict: &str, check: &str, words: &[&str]) {
        let found: Vec<&Value> =
            self.all().filter(|found| found["check"] == check && found["verdict"] == verdict).collect();
        assert!(!found.is_empty(), "no {verdict} of {check}: {:#}", self.0);
        for found in found {
            let text = format!("{} {}", found["detail"], found["advice"]);
            assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
            assert!(verdict == "ok" || found["advice"].is_string(), "no advice: {text}");
        }
        let fails = self.that("fail");
        let expected = if verdict == "fail" { vec![check] } else { vec![] };
        assert!(fails.iter().all(|one| expected.contains(one)), "{fails:?}: {:#}", self.0);
    }
}

#[track_caller]
fn fails(test: Test, check: &str, words: &[&str]) {
    Checkup::of(test, 69).says("fail", check, words);
}

#[track_caller]
fn warns(test: Test, check: &str, words: &[&str]) {
    Checkup::of(test, 0).says("warn", check, words);
}

#[track_caller]
fn approves(test: Test, check: &str, words: &[&str]) {
    Checkup::of(test, 0).says("ok", check, words);
}

/// A call with the default quarantine.
fn with_quarantine(servers: &(impl Where + ?Sized)) -> Test {
    Test::new(servers).env_remove("REDLOCK_QUARANTINE")
}

#[test]
fn what_is_well_takes_one_line() {
    let redis = Redis::with(&DURABLE);
    let configured: Vec<String> = redis.query(&["CONFIG", "GET", "*"]);
    let said = "setting  redis unix://<any> (REDLOCK_REDIS)\nRedis is ready for locks: 19 ok.\n";
    redlock(&redis, "doctor").stdout(like(said)).run();
    redlock(&redis, "doctor -q").run();
    let all = when("all checks and settings", |text: &str| {
        let begins = |start| text.lines().filter(|line| line.starts_with(start)).count();
        (begins("setting  "), begins("ok       ")) == (11, 19) && text.ends_with("ready for locks: 19 ok.\n")
    });
    redlock(&redis, "doctor -v").stdout(all).run();
    assert_eq!(Checkup::of(Test::new(&redis), 0).that("ok").len(), 19);
    assert!(redis.keys_without_history().is_empty());
    assert_eq!(redis.query::<Vec<String>>(&["CONFIG", "GET", "*"]), configured);

    // In a restart these servers forget their leases, which the quarantine makes harmless, so doctor does not warn.
    let servers = Redis::aged(3, 3600);
    let said = "setting  redis <any>\nRedis is ready for locks: <n> ok.\n";
    with_quarantine(&servers).arg("doctor").stdout(like(said)).run();
}

#[test]
fn what_is_wrong_comes_first_with_how_to_mend_it() {
    let redis = Redis::with(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let said = "fail     <node>  eviction: maxmemory-policy allkeys-lru: <any>\n         CONFIG SET maxmemory-policy noeviction<any>\n\
        warn     <node>  persistence: a restart can lose locks<any>\n         set appendonly yes<any>\n\
        setting  redis <any>\n\
        Redis is not ready for locks: 1 fail, 1 warn, 17 ok.\n";
    redlock(&redis, "doctor").status(69).stdout(like(said)).run();
    let fails = like("fail     <node>  eviction: <any>\n         <any>\n");
    redlock(&redis, "doctor -q").status(69).stdout(fails).run();
    redis.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    approves(Test::new(&redis), "eviction", &["noeviction"]);
}

#[test]
fn each_setting_is_reported_with_its_source() {
    let redis = Redis::with_tcp(&["--requirepass", "s3cret"]);
    let directory = std::sync::Arc::new(Directory::new());
    let file = directory.path().join(".config/redlock/redlock.conf");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, "# for all\nREDLOCK_QUARANTINE=1m\n").unwrap();
    let url = redis.tcp_url().replace("redis://", "redis://:s3cret@");
    let test = || Test::bare().in_directory(&directory).env("REDIS_URL", &url).args(["--prefix", "a b:"]);
    // The server has just been started, so its quarantine is not over.
    let said = Checkup::of(test(), 69);
    let setting = |name: &str| {
        let found = said.0["settings"].as_array().unwrap().iter().find(|setting| setting["name"] == name).unwrap();
        [&found["value"], &found["from"]].map(|text| text.as_str().unwrap().to_owned())
    };
    assert_eq!(setting("redis"), [format!("redis://…@{}", redis.address()), "REDIS_URL".to_owned()]);
    assert_eq!(setting("prefix"), ["a b:", "--prefix"]);
    let place = format!("{}, line 2: REDLOCK_QUARANTINE", file.display());
    assert_eq!(setting("quarantine"), ["1m", &place]);
    assert_eq!(setting("replicas"), ["0", "the default"]);
    let line = like(format!(
        "redlock: redis redis://…@{} (REDIS_URL), prefix \"a b:\" (--prefix), quarantine 0 (--quarantine)\n",
        redis.address()
    ));
    test().args(["status", "-v", "--quarantine", "0", "x"]).stdout(any()).stderr(line).run();
}

fn set_mode(file: &Path, mode: u32) {
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn passwords_and_keys_that_every_user_may_read() {
    let redis = Redis::with(&["--requirepass", "s3cret", "--appendonly", "yes", "--appendfsync", "always"]);
    let directory = std::sync::Arc::new(Directory::new());
    let path = directory.path().join(".config/redlock");
    std::fs::create_dir_all(&path).unwrap();
    let (conf, password, key) =
        (path.join("redlock.conf"), directory.file("password", "s3cret\n"), directory.file("key", ""));
    let test =
        || Test::bare().in_directory(&directory).env("REDLOCK_REDIS", redis.url()).env("REDLOCK_PASSWORD", "s3cret");
    let judged = |file: &Path, call: &dyn Fn() -> Test| {
        let named = file.display().to_string();
        for (mode, is_open) in [(0o644, true), (0o604, true), (0o640, false), (0o600, false)] {
            set_mode(file, mode);
            match is_open {
                true => warns(call(), "secrets", &[&named, &format!("chmod 640 {named}")]),
                false => approves(call(), "secrets", &[]),
            }
        }
    };
    for line in ["REDLOCK_PASSWORD=s3cret", "REDLOCK_REDIS=redis://:s3cret@h", "REDLOCK_REDIS=unix:///s?pass=s3cret"] {
        std::fs::write(&conf, line).unwrap();
        judged(&conf, &test);
    }
    // A file that others may write is not read at all; it may have a password.
    set_mode(&conf, 0o666);
    let skipped = test().args(["doctor", "--format", "json"]).stdout(any()).stderr(any()).run();
    assert!(skipped.stderr.contains("ignoring ") && skipped.stdout.contains("chmod 640"), "{skipped:?}");
    std::fs::write(&conf, "REDLOCK_REDIS=redis://h\nREDLOCK_LABEL=l\n").unwrap();
    set_mode(&conf, 0o644);
    approves(test(), "secrets", &[]);
    judged(&password, &|| test().env("REDLOCK_PASSWORD_FILE", &password));
    judged(&key, &|| test().env("REDLOCK_TLS_KEY", &key).env("REDLOCK_TLS_CERT", &key));
}

#[test]
fn nodes_that_cannot_be_asked() {
    let redis = Redis::with_tcp(&["--requirepass", "s3cret"]);
    let (user, wrong) = (redis.tcp_url(), redis.tcp_url().replace("redis://", "redis://:s3cret2@"));
    fails(Test::new(user.as_str()), "connection", &["password", "--password-file"]);
    fails(Test::new(wrong.as_str()), "connection", &["WRONGPASS", "check both"]);
    let nothing = format!("redis://127.0.0.1:{}", free_port());
    fails(Test::new(nothing.as_str()), "connection", &["refused", "is the address right"]);
    let open = Redis::start();
    fails(Test::new(&format!("{}?db=99", open.url())[..]), "connection", &["no database", "check --redis"]);
    let hole = Proxy::new(&open, Mode::BlackHole);
    let test = Test::new(&hole).env("REDLOCK_NODE_TIMEOUT", "300ms");
    fails(test, "connection", &["timed out", "is the address right"]);
    let garbage = Proxy::new(&open, Mode::Garbage(b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()));
    fails(Test::new(&garbage), "connection", &["something other than a Redis reply"]);
    open.pause();
    fails(Test::new(&open).env("REDLOCK_NODE_TIMEOUT", "300ms"), "connection", &["timed out"]);
    open.resume();
}

#[test]
fn a_node_that_hangs_costs_two_time_outs_at_most() {
    let nodes: Vec<Redis> = (0..3).map(|_| Redis::with(&DURABLE)).collect();
    nodes[2].pause();
    let start = Instant::now();
    let found = Checkup::of(Test::new(&nodes).args(["--node-timeout", "3s"]), 0);
    let took = start.elapsed();
    nodes[2].resume();
    found.says("warn", "connection", &["timed out"]);
    assert!(took < ms(8_500), "{took:?}");
}

#[test]
fn a_slow_node() {
    let redis = Redis::with(&DURABLE);
    let proxy = Proxy::new(&redis, Mode::Delay(ms(550)));
    let test = || Test::new(&proxy).env("REDLOCK_NODE_TIMEOUT", "2s");
    warns(test(), "connection", &["2s", "--node-timeout"]);
}

#[test]
fn a_replica_and_a_server_given_twice() {
    let primary = Redis::with_tcp(&DURABLE);
    let port = primary.port().to_string();
    let replica = Redis::replica_of(&primary, &DURABLE);
    eventually(SOON, "the primary knows it", || primary.info("slave0").contains("state=online"));
    let said = Checkup::of(Test::new(&replica), 69);
    assert_eq!(said.that("fail"), ["role", "scripts"]);
    let role = said.all().find(|found| found["check"] == "role").unwrap().to_string();
    assert!(["a replica of 127.0.0.1", &port, "redis+sentinel://"].iter().all(|word| role.contains(word)), "{role}");
    replica.command(&["CONFIG", "SET", "replica-read-only", "no"]);
    fails(Test::new(&replica), "role", &["a writable replica of 127.0.0.1", "beside its primary"]);
    replica.command(&["CONFIG", "SET", "replica-read-only", "yes"]);
    let both = Checkup::of(Test::new(&[primary.url(), replica.url()][..]), 69);
    assert_eq!(both.that("fail"), ["identity", "role", "identity", "scripts"]);
    approves(Test::new(&primary), "replicas", &["1, in sync"]);

    for other in [primary.tcp_url().replace("127.0.0.1", "localhost"), primary.url()] {
        let twice = [primary.tcp_url(), other];
        let said = Checkup::of(Test::new(&twice[..]), 69);
        said.says("fail", "identity", &["is the same server by another name", "each once"]);
        assert_eq!(said.that("fail").len(), 2);
    }
}

#[test]
fn an_address_that_leads_to_two_servers() {
    let (one, other) = (Redis::with(&DURABLE), Redis::with(&DURABLE));
    let balancer = Proxy::new(&one, Mode::Pass);
    approves(Test::new(&balancer), "identity", &["one server"]);
    balancer.alternate_with(&other);
    fails(Test::new(&balancer), "identity", &["connections to this address reach different servers", "--redis"]);
}

#[test]
fn memory_that_is_short() {
    let redis = Redis::with(&DURABLE);
    let limit = |bytes: u64| redis.command(&["CONFIG", "SET", "maxmemory", &bytes.to_string()]);
    limit(100_000_000);
    approves(Test::new(&redis), "memory", &["used, limit 100.0 MB"]);
    redis.command(&["SETRANGE", "filler", "20000000", "x"]);
    let used: u64 = redis.info("used_memory").parse().unwrap();
    limit(used + used / 20);
    warns(Test::new(&redis), "memory", &["MB used, limit", "raise maxmemory"]);
    limit(used / 2);
    fails(Test::new(&redis), "scripts", &["OOM", "no lock can be taken"]);
}

#[test]
fn what_a_restart_forgets() {
    let redis = Redis::start();
    warns(Test::new(&redis), "persistence", &["only redlock run", "appendfsync always"]);
    redis.command(&["CONFIG", "SET", "appendonly", "yes"]);
    warns(Test::new(&redis), "persistence", &["only redlock run"]);
    redis.command(&["CONFIG", "SET", "appendfsync", "always"]);
    approves(Test::new(&redis), "persistence", &["forgets no lock"]);
    redis.command(&["CONFIG", "SET", "no-appendfsync-on-rewrite", "yes"]);
    warns(Test::new(&redis), "persistence", &["no-appendfsync-on-rewrite no"]);
    let servers = Redis::aged(3, 3600);
    fails(Test::new(&servers), "persistence", &["--quarantine 0"]);
    approves(with_quarantine(&servers), "persistence", &["the quarantine of 30s"]);
}

#[test]
fn a_snapshot_that_failed() {
    let redis = Redis::with(&["--save", "3600 1", "--enable-protected-configs", "yes"]);
    let removed = Directory::new();
    redis.command(&["CONFIG", "SET", "dir", removed.path().to_str().unwrap()]);
    drop(removed);
    redis.command(&["BGSAVE"]);
    eventually(SOON, "it has failed", || redis.info("rdb_last_bgsave_status") == "err");
    fails(Test::new(&redis), "scripts", &["MISCONF", "no lock can be taken"]);
    assert!(redis.try_query::<redis::Value>(&["SET", "a", "b"]).is_err());
    redis.command(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    warns(Test::new(&redis), "disk", &["the last snapshot", "is the disk full"]);
}

#[test]
fn a_node_that_was_started_just_now() {
    let mut servers = Redis::aged(3, 3600);
    servers[1].restart_aged(10);
    let said = Checkup::of(with_quarantine(&servers), 0);
    said.says("warn", "uptime", &["it may have forgotten leases"]);
    assert_eq!(said.that("warn"), ["uptime"]);
    // Doctor warns of a lease that is longer than the quarantine.
    servers[1].restart_aged(100);
    assert!(Checkup::of(with_quarantine(&servers), 0).that("warn").is_empty());
    acquire_for(&servers, "backup", "10m");
    assert_eq!(Checkup::of(with_quarantine(&servers), 0).that("warn"), ["quarantine"]);
    // If most nodes have no vote, no lock can be taken.
    let servers = Redis::aged(3, 5);
    let said = Checkup::of(with_quarantine(&servers), 69);
    assert_eq!(said.that("fail"), ["uptime"].repeat(3));
    said.says("fail", "uptime", &["is not ready for another 2"]);
}

#[test]
fn a_quarantine_that_is_shorter_than_a_lease() {
    let servers = Redis::aged(3, 3600);
    acquire_for(&servers, "backup", "10m");
    warns(with_quarantine(&servers), "quarantine", &["30s", "--quarantine 10m"]);
    let set = |quarantine| Test::new(&servers).env("REDLOCK_QUARANTINE", quarantine);
    fails(set("1m"), "quarantine", &["1m", "--quarantine 10m"]);
    approves(set("10m"), "quarantine", &["10m"]);
    approves(set("1m").env("REDLOCK_PREFIX", "other:"), "quarantine", &["1m"]);
}

#[test]
fn how_many_nodes_and_how_long_each_may_take() {
    let servers = Redis::aged(4, 3600);
    warns(
        with_quarantine(&servers),
        "number of nodes",
        &["4 nodes, of which 1 may fail, as with 3", "use 3 or 5 nodes"],
    );
    warns(with_quarantine(&servers.urls()[..2]), "number of nodes", &["2 nodes, of which 0 may fail"]);
    approves(with_quarantine(&servers.urls()[..3]), "number of nodes", &["1 may fail"]);
    let long = with_quarantine(&servers.urls()[..3]).env("REDLOCK_NODE_TIMEOUT", "20s");
    approves(long, "connection", &["(limit 15s)"]);
}

#[test]
fn replicas_that_are_asked_for() {
    let redis = Redis::with(&DURABLE);
    let test = Test::new(&redis).env("REDLOCK_REPLICAS", "1");
    fails(test, "replicas", &["--replicas 1, but 0 connected"]);
    redis.command(&["CONFIG", "SET", "min-replicas-to-write", "2"]);
    fails(Test::new(&redis), "scripts", &["NOREPLICAS", "no lock can be taken"]);
}

#[test]
fn a_cluster_and_a_sentinel_behind_a_plain_url() {
    let node = Redis::with_tcp(&["--cluster-enabled", "yes", "--appendonly", "yes", "--appendfsync", "always"]);
    let said = Checkup::of(Test::new(&node.tcp_url()[..]), 69);
    said.says("fail", "kind", &["node of a Cluster", &format!("use redis+cluster://{}", node.address())]);

    let (directory, port) = (Directory::new(), free_port());
    let file = directory.file("sentinel.conf", format!("port {port}\n"));
    let mut command = Command::new("redis-server");
    command.arg(&file).arg("--sentinel").current_dir(directory.path()).stdout(Stdio::null());
    let mut sentinel = crate::support::die_with_parent(&mut command).spawn().unwrap();
    eventually(SOON, "it listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let said = Checkup::of(Test::new(&format!("redis://127.0.0.1:{port}")[..]), 69);
    let of_it = said.all().filter(|found| !found["node"].is_null());
    assert_eq!(of_it.map(|found| &found["check"]).collect::<Vec<_>>(), ["kind"]);
    let kind = said.all().find(|found| found["check"] == "kind").unwrap();
    assert_eq!(kind["advice"], format!("use redis+sentinel://127.0.0.1:{port}/SERVICE"));
    sentinel.kill().unwrap();
    sentinel.wait().unwrap();
}

#[test]
fn a_plain_server_in_place_of_a_sentinel() {
    let redis = Redis::with_tcp(&[]);
    let said = Checkup::of(Test::new(&format!("redis+sentinel://{}/backups", redis.address())[..]), 69);
    said.says("fail", "connection", &["is not a Sentinel", "name the Sentinels"]);
    assert_eq!(said.that("fail"), ["connection"]);
}

/// Returns the URL of a user with these rights.
fn user(redis: &Redis, rights: &[&str]) -> String {
    let user = ["ACL", "SETUSER", "job", "reset", "on", ">s3cret"];
    redis.command(&[&user[..], rights].concat());
    redis.tcp_url().replace("redis://", "redis://job:s3cret@")
}

#[test]
fn rights_that_are_missing_and_the_rule_to_paste() {
    let redis = Redis::with_tcp(&DURABLE);
    for (rights, missing) in [
        (&["~*", "&*", "+@all", "-publish"][..], "lacks publish, needed"),
        (&["~redlock:*", "&*", "+@all"], "lacks evalsha, eval, get, set, del"),
        (&["~*", "resetchannels", "+@all"], "lacks subscribe, publish, needed"),
        (&["~*", "&*", "+@all", "-eval"], "lacks eval, needed"),
        (&["~*", "&*", "+@all", "-zpopmax", "-info"], "lacks info, zpopmax, needed"),
    ] {
        let url = user(&redis, rights);
        let said = Checkup::of(Test::new(url.as_str()), 69);
        said.says("fail", "scripts", &[missing, "ACL SETUSER job resetkeys"]);
        redis.command(&said.advice().split(' ').collect::<Vec<_>>());
        // The pasted rule allows all that locks need, but not CONFIG, so doctor does not learn of persistence.
        let said = Checkup::of(Test::new(url.as_str()), 0);
        said.says("ok", "scripts", &[]);
        assert_eq!(said.that("unknown"), ["persistence"]);
        let refused = format!("{:?}", redis.query::<redis::Value>(&["ACL", "LOG"])).to_lowercase();
        assert!(!refused.contains("cluster"), "{refused}");
    }
    let url = user(&redis, &["~*", "&*", "+@all", "-scan", "-lrange"]);
    let said = Checkup::of(Test::new(url.as_str()), 0);
    said.says("warn", "scripts", &["lacks scan, lrange: locks work, but status and log show less", "+scan +hget"]);
    assert!(redis.keys_without_history().is_empty());
}

#[test]
fn the_rule_to_paste_fits_the_prefix() {
    let redis = Redis::with_tcp(&DURABLE);
    // Each prefix, and another one that the prefix would match if it were a pattern.
    for (prefix, other) in [
        ("", None),
        ("{app}:", Some("{ape}:")),
        ("app:", Some("apple:")),
        ("team?:", Some("team1:")),
        ("a[b]:", Some("ab:")),
        ("a*:", Some("abc:")),
        ("a\\:", Some("a:")),
        ("a\\?-^]:", Some("ax-^]:")),
    ] {
        let url = user(&redis, &["~nothing", "&*", "+@all"]);
        let call = |prefix: &str| Test::new(url.as_str()).env("REDLOCK_PREFIX", prefix);
        let test = || call(prefix);
        redis.command(&Checkup::of(test(), 69).advice().split(' ').collect::<Vec<_>>());
        approves(test(), "scripts", &[]);
        test().args(["run", "-q", "backup", "--wait", "--", "true"]).run();
        if let Some(other) = other {
            call(other).args(["acquire", "backup"]).fails(78, ["NOPERM"]).run();
            call(other).args(["wait", "backup"]).fails(78, ["NOPERM"]).run();
        }
    }
}

#[test]
fn the_rule_to_paste_is_the_documented_one() {
    let redis = Redis::with_tcp(&[]);
    redis.command(&["ACL", "SETUSER", "default", "-publish"]);
    let said = Checkup::of(Test::new(&redis.tcp_url()[..]), 69);
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("man/src/redlock.man");
    let manual = std::fs::read_to_string(manual).unwrap();
    let start = manual.find("ACL SETUSER locks").unwrap();
    let words: Vec<&str> = said.advice().split(' ').collect();
    let documented: Vec<&str> = manual[start..].split_whitespace().take(words.len()).collect();
    assert_eq!(words, documented);
}

#[test]
fn what_a_server_does_not_report_is_unknown() {
    let redis = Redis::with_tcp(&DURABLE);
    for (rights, unknown) in [
        (&["-config"][..], &["persistence"][..]),
        (&["-scan"], &["quarantine", "expiry", "log"]),
        (
            &["-info", "-config"],
            &["kind", "role", "identity", "version", "eviction", "memory", "persistence", "disk", "uptime", "replicas"],
        ),
    ] {
        let url = user(&redis, &[&["~*", "&*", "+@all"], rights].concat());
        let said = Checkup::of(Test::new(url.as_str()), 0);
        assert_eq!(said.that("unknown"), unknown, "{rights:?}");
        // Doctor warns of each missing right except CONFIG, which only doctor uses.
        let asked = if rights == ["-config"] { vec![] } else { vec!["scripts"] };
        assert_eq!(said.that("warn"), asked, "{rights:?}");
        redlock(url.as_str(), "doctor")
            .stdout(when("less sure", |text: &str| text.contains("as far as could be checked")))
            .run();
    }
    let renamed = Redis::with(&["--rename-command", "EVAL", ""]);
    fails(Test::new(&renamed), "scripts", &["eval"]);
}

#[test]
fn a_way_that_leads_over_tls_sentinels_or_a_cluster() {
    let (tls, authority) = Tls::start();
    let trusting = Test::new(tls.url().as_str()).env("REDLOCK_TLS_CA", authority.certificate());
    let said = Checkup::of(trusting, 0);
    said.says("ok", "connection", &["by TLS"]);
    fails(Test::new(tls.url().as_str()), "connection", &["certificate"]);

    let plain = tls.url().replace("rediss://", "redis://");
    fails(Test::new(plain.as_str()), "connection", &["TLS"]);

    let sentinels = Sentinels::start(1);
    let of = |replicas| Test::new(sentinels.url().as_str()).env("REDLOCK_REPLICAS", replicas);
    warns(of("0"), "replicas", &["a failover can lose", "--replicas 1"]);
    approves(of("1"), "replicas", &["1, in sync"]);
    approves(of("1"), "role", &["a primary"]);

    let cluster = Cluster::start();
    let said = Checkup::of(Test::new(cluster.url().as_str()), 0);
    said.says("ok", "kind", &["a Cluster, all slots served"]);
    said.says("warn", "replicas", &["a failover can lose"]);
    let masters: std::collections::BTreeSet<&str> = said.all().filter_map(|found| found["node"].as_str()).collect();
    assert_eq!(masters.len(), 3, "{masters:?}");
    let one = &cluster.0[cluster.owner("redlock:backup")];
    one.command(&["CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"]);
    let said = Checkup::of(Test::new(cluster.url().as_str()), 69);
    said.says("fail", "eviction", &["allkeys-lru"]);
    assert_eq!(said.all().find(|found| found["verdict"] == "fail").unwrap()["node"], one.address());
}

#[test]
fn a_minority_that_is_down_or_grants_nothing() {
    let mut servers = Redis::aged(3, 3600);
    servers[0].kill();
    warns(with_quarantine(&servers), "connection", &["does not count towards the quorum"]);
    redlock(&servers, "run -q backup -- true").run();
    servers[1].command(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    Checkup::of(with_quarantine(&servers), 69);
    servers[0].restart_aged(3600);
    warns(with_quarantine(&servers), "scripts", &["NOREPLICAS"]);
    servers[2].kill();
    let said = Checkup::of(with_quarantine(&servers), 69);
    assert_eq!(said.that("fail"), ["scripts", "connection"]);
}

#[test]
fn nodes_that_refuse_info() {
    let servers = Redis::aged(3, 3600);
    servers.iter().for_each(|redis| redis.command(&["ACL", "SETUSER", "default", "-info"]));
    let urls = servers.urls();
    let said = Checkup::of(with_quarantine(&urls[..]), 69);
    assert_eq!(said.that("fail"), ["uptime", "scripts"].repeat(3));
    let said = Checkup::of(with_quarantine(&urls[..]).env("REDLOCK_QUARANTINE", "0"), 0);
    assert!(said.that("unknown").contains(&"uptime"), "{:#}", said.0);
    // A single node has a quarantine only if the caller gives one.
    let said = Checkup::of(with_quarantine(&urls[..1]).env("REDLOCK_QUARANTINE", "30s"), 69);
    assert_eq!(said.that("fail"), ["uptime", "scripts"]);
    assert!(Checkup::of(with_quarantine(&urls[..1]), 0).that("unknown").contains(&"uptime"));
}

#[test]
fn a_server_that_runs_no_scripts() {
    let redis = Redis::with(&DURABLE);
    redis.command(&["CLIENT", "PAUSE", "60000", "WRITE"]);
    let test = || Test::new(&redis).env("REDLOCK_NODE_TIMEOUT", "2s");
    fails(test(), "scripts", &["no lock can be taken", "CLIENT PAUSE"]);
    test().args(["acquire", "backup"]).fails(69, ["\"backup\"", "timed out"]).run();
    redis.command(&["CLIENT", "UNPAUSE"]);
}

#[test]
fn locks_that_never_expire() {
    let redis = Redis::with(&DURABLE);
    for name in ["a", "b", "c", "d"] {
        redis.command(&["SET", &format!("redlock:{name}"), "of another program"]);
    }
    acquire_for(&redis, "backup", "10m");
    warns(Test::new(&redis), "expiry", &["last until they are released", "and 1 more", "redlock release NAME --force"]);
    approves(Test::new(&redis).env("REDLOCK_PREFIX", "other:"), "expiry", &[]);
}

#[test]
fn a_server_that_nobody_named() {
    let said = Test::bare().arg("doctor").any_end().text();
    assert!(said.contains("warn     redis: no server was configured: the locks are on 127.0.0.1:6379"), "{said}");
    assert!(said.contains("set --redis or REDLOCK_REDIS"), "{said}");
}

#[test]
fn sentinels_that_are_dead_or_disagree() {
    let mut service = Sentinels::start(1);
    let of = |service: &Sentinels| Test::new(service.url().as_str()).env("REDLOCK_REPLICAS", "1");
    approves(of(&service), "sentinels", &["3, which agree"]);
    // One Sentinel watches a service of the same name elsewhere.
    let other = Redis::with_tcp(&[]);
    service.command(0, &["SENTINEL", "REMOVE", Sentinels::SERVICE]);
    let monitor = ["SENTINEL", "MONITOR", Sentinels::SERVICE, "127.0.0.1", &other.port().to_string(), "1"];
    service.command(0, &monitor);
    fails(of(&service), "sentinels", &[&other.address(), "a lock can have two holders"]);
    service.kill(0);
    warns(of(&service), "sentinels", &["connection refused"]);
    service.command(1, &["SENTINEL", "SET", Sentinels::SERVICE, "quorum", "4"]);
    fails(of(&service), "sentinels", &["cannot fail over", "usable Sentinels"]);
    service.command(1, &["SENTINEL", "SET", Sentinels::SERVICE, "quorum", "2"]);
    service.kill(2);
    fails(of(&service), "sentinels", &["a failover needs most of the 3 Sentinels"]);
}

#[test]
fn a_slot_that_is_stuck_halfway() {
    let cluster = Cluster::start();
    let slot: u16 = cluster.0[0].query(&["CLUSTER", "KEYSLOT", "redlock:backup"]);
    cluster.begin_move("redlock:backup", (cluster.owner("redlock:backup") + 1) % 3);
    let said = Checkup::of(Test::new(cluster.url().as_str()), 69);
    said.says("fail", "kind", &[&format!("slot {slot} is being moved"), "redis-cli --cluster fix"]);
}
