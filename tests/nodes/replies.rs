//! Error replies, known and unknown: a lasting error ends a call with 78. An unknown error counts as temporary, since
//! proxies, modules and later versions have errors of their own.

use crate::support::{Mode, Proxy, Redis, SOON, Test, any, eventually, perhaps, redlock, when};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const KEY: &str = "redlock:backup";

const FOR_GOOD: [&str; 9] = [
    "NOAUTH Authentication required.",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "NOPERM this user has no permissions to run the 'evalsha' command",
    "NOPERM this user has no permissions to access one of the keys used as arguments",
    "ERR The user executing the script can't run this command or subcommand script: 12, on @user_script:5.",
    "ERR unknown command 'EVALSHA', with args beginning with: 'x'",
    "ERR Unknown Redis command called from script script: 12, on @user_script:5.",
    "ERR AUTH <password> called without any password configured for the default user.",
    "DENIED Redis is running in protected mode because protected mode is enabled",
];

const HEALS: [&str; 36] = [
    "LOADING Redis is loading the dataset in memory",
    "READONLY You can't write against a read only replica.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "OOM command not allowed when used memory > 'maxmemory'.",
    "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "NOREPLICAS Not enough good replicas to write.",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "UNKILLABLE Sorry the script already executed write commands against the dataset.",
    "CLUSTERDOWN The cluster is down",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "ASK 1234 127.0.0.1:1",
    "ERR max number of clients reached",
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    "upstream failure",
    "no upstream host",
    "ERR server closed connection",
    "ERR Connection timed out",
    "NOTREADY the cluster is not ready",
    "FAILOVER a failover is in progress",
    "IOERR error writing to the append-only file",
    "INPROG Failover already in progress",
    "NOQUORUM not enough nodes",
    "NOMASTERLINK Can't SYNC while not connected with my master",
    "NOTBUSY No scripts in execution right now.",
    "EXECABORT Transaction discarded because of previous errors.",
    "CROSSSLOT Keys in request don't hash to the same slot",
    "BUSYKEY Target key name already exists.",
    "STALE the replica lags behind",
    "THROTTLED too many requests",
    "QUOTA the daily quota is used up",
    "TIMEOUT the shard did not answer",
    "rate limit exceeded, try again later",
    "backend is draining",
    "ERR internal error",
    "ERR",
    "Ein unbekannter Fehler",
];

/// Calls `check` with each reply and the exit status that follows from it. Several threads share the replies.
fn with_each(check: impl Fn(&Redis, &Proxy, &'static str, i32) + Sync) {
    let replies = FOR_GOOD.iter().map(|reply| (*reply, 78)).chain(HEALS.iter().map(|reply| (*reply, 69)));
    let replies: Vec<(&'static str, i32)> = replies.collect();
    std::thread::scope(|scope| {
        for part in replies.chunks(replies.len().div_ceil(10)) {
            let check = &check;
            scope.spawn(move || {
                for (reply, status) in part {
                    let redis = Redis::start();
                    let proxy = Proxy::new(&redis, Mode::Refuse((*reply).to_owned()));
                    check(&redis, &proxy, reply, *status);
                }
            });
        }
    });
}

#[test]
fn every_command_ends_with_the_right_status_in_time() {
    with_each(|_, proxy, reply, status| {
        let token = "0123456789abcdef0123456789abcdef";
        // A lasting error ends a wait at once.
        let time = if status == 78 { "15s" } else { "100ms" };
        for arguments in [
            &["acquire", "backup"][..],
            &["run", "backup", "--", "echo", "started"],
            &["extend", "backup", "--token", token],
            &["release", "backup", "--token", token],
            &["status", "backup"],
            &["status"],
            &["wait", "backup", "--timeout", time],
            &["acquire", "backup", "--wait", time],
        ] {
            // An unknown error is shown in the server's words; but a short wait may be over before the words have come.
            let words = match reply {
                _ if arguments.contains(&"100ms") => "",
                "upstream failure" | "no upstream host" | "ERR server closed connection" | "backend is draining" => {
                    reply
                }
                _ => "",
            };
            let test = Test::new(proxy).args(arguments).status(status).stdout(any());
            let said = when(format!("{reply}: a line with {words:?}"), move |text| {
                text.lines().all(|line| line.starts_with("redlock: ")) && text.contains(words) && !text.is_empty()
            });
            test.stderr(said).within(Duration::from_secs(10)).run();
        }
    });
}

#[test]
fn a_waiter_gets_the_lock_when_the_server_is_itself_again() {
    with_each(|redis, proxy, reply, status| {
        let test = Test::new(proxy).args(["run", "backup", "--wait", "20s", "--", "echo", "started"]);
        if status == 78 {
            test.fails(78, ["\"backup\""]).run();
            return;
        }
        let waiter = test.stdout("started\n").stderr(perhaps(["trying again", "acquired"])).spawn();
        eventually(SOON, reply, || !waiter.all_stderr().is_empty());
        proxy.set(Mode::Pass);
        waiter.finish();
        eventually(SOON, "released", || !redis.exists(KEY));
    });
}

#[test]
fn no_reply_costs_a_job_that_gets_better_ones_in_time() {
    with_each(|redis, proxy, reply, _| {
        proxy.set(Mode::Pass);
        let (reader, writer) = std::io::pipe().unwrap();
        let test = Test::new(proxy).args(["run", "backup", "--ttl", "6s"]).stdin_from(reader);
        let said = perhaps(["acquired", "cannot renew", "renewed"]);
        let job = test.args(["--", "sh", "-c", "echo ready; read line || :"]).stderr(said).spawn();
        job.prints("ready");
        proxy.set(Mode::Refuse(reply.to_owned()));
        eventually(SOON, reply, || job.all_stderr().contains("cannot renew"));
        proxy.set(Mode::Pass);
        eventually(SOON, reply, || job.all_stderr().contains("renewed \"backup\" again"));
        drop(writer);
        job.finish();
        assert!(!redis.exists(KEY));
    });
}

#[test]
fn a_take_that_was_executed_and_answered_with_an_error_is_withdrawn() {
    for reply in [HEALS[12], HEALS[13], HEALS[15]] {
        let redis = Redis::start();
        crate::support::teach_scripts(&redis);
        let proxy = Proxy::new(&redis, Mode::Misreport(reply.to_owned()));
        Test::new(&proxy).args(["acquire", "backup"]).fails(69, ["\"backup\""]).run();
        eventually(SOON, reply, || !redis.exists(KEY));
    }
}

#[test]
fn a_wait_for_replicas_that_is_unblocked_heals_and_leaves_no_lock() {
    let redis = Redis::start();
    let arguments = ["acquire", "backup", "--replicas", "1", "--node-timeout", "10s", "--ttl", "1m"];
    let call = Test::new(&redis).args(arguments).fails(69, ["\"backup\"", "UNBLOCKED"]).spawn();
    let blocked = || {
        let clients: String = redis.query(&["CLIENT", "LIST"]);
        let client = clients.lines().find(|client| client.contains("cmd=wait")).map(str::to_owned);
        client.and_then(|client| client.strip_prefix("id=")?.split(' ').next().map(str::to_owned))
    };
    eventually(SOON, "it waits for a replica", || blocked().is_some());
    assert!(redis.exists(KEY));
    redis.command(&["CLIENT", "UNBLOCK", &blocked().unwrap(), "ERROR"]);
    call.finish();
    eventually(SOON, "withdrawn", || !redis.exists(KEY));
}

/// A full server sends its error unasked, and closes the connection at once, often before the request has come.
#[test]
fn a_server_with_too_many_clients_is_reported_as_such() {
    let redis = Redis::with_tcp(&["--maxclients", "10"]);
    let mut others = Vec::new();
    // Other connections, from the server's start, will close soon. So the test waits until it has ten of its own.
    eventually(SOON, "it is full", || {
        let mut other = UnixStream::connect(redis.socket()).unwrap();
        let mut answer = [0; 5];
        let is_answered = other.write_all(b"PING\r\n").and_then(|()| other.read_exact(&mut answer)).is_ok();
        if is_answered && answer == *b"+PONG" {
            others.push(other);
        }
        others.len() == 10
    });
    for url in [redis.url(), redis.tcp_url(), redis.tcp_url().replace("redis://", "redis://:s3cret@")] {
        let calls = (0..3).flat_map(|_| ["run backup -- true", "run backup --wait 500ms -- true", "status", "doctor"]);
        for call in calls {
            let said = when("too many clients alone", |text| {
                text.contains("has too many clients already") && !text.contains("closed the connection")
            });
            let test = redlock(url.as_str(), call).status(69);
            if call == "doctor" { test.stdout(said) } else { test.stderr(said) }.run();
        }
    }
}
