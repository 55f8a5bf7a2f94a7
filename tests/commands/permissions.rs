//! Users and passwords: the message names a missing right, and a password may be replaced while a job runs.

use crate::support::{
    Line, Redis, SOON, Test, acquire, any, eventually, is_renewed, loss, message, ms, redlock, release, teach_scripts,
    when,
};

const KEY: &str = "redlock:backup";

/// A URL of this server with the user `locks`, and no password in it.
fn as_user(redis: &Redis) -> String {
    redis.tcp_url().replace("redis://", "redis://locks@")
}

/// Takes all other passwords from the user.
#[track_caller]
fn set_password(redis: &Redis, password: &str) {
    let password = format!(">{password}");
    redis.command(&["ACL", "SETUSER", "locks", "on", "~*", "&*", "+@all", "resetpass", &password]);
}

#[test]
fn a_command_that_is_missing_is_reported() {
    let redis = Redis::with_tcp(&[]);
    teach_scripts(&redis);
    let held = acquire(&redis, "held");
    for (missing, arguments) in [
        ("evalsha", &["acquire", "--name", "backup"][..]),
        ("set", &["acquire", "--name", "backup"]),
        ("hset", &["run", "--name", "backup", "--wait", "--", "echo", "started"]),
        ("zadd", &["run", "--name", "held", "--wait", "--", "echo", "started"]),
        ("subscribe", &["acquire", "--name", "held", "--wait"]),
        ("pexpire", &["extend", "held", "--token", &held]),
        ("del", &["release", "held", "--token", &held]),
        ("hgetall", &["status", "held"]),
        ("scan", &["status"]),
    ] {
        set_password(&redis, "pw");
        redis.command(&["ACL", "SETUSER", "locks", &format!("-{missing}")]);
        let test = Test::new(as_user(&redis).as_str()).env("REDLOCK_PASSWORD", "pw").args(arguments).status(78);
        let said = when("NOPERM", |text| {
            let last = text.lines().last().unwrap_or_default();
            last.contains("NOPERM") && last.ends_with("redlock doctor prints the ACL rule it needs")
        });
        test.stdout(any()).stderr(said).run();
    }
    release(&redis, "held", &held);
}

#[test]
fn a_take_that_is_refused_halfway_leaves_no_lock() {
    let redis = Redis::with_tcp(&[]);
    for missing in ["del", "hset", "exists"] {
        set_password(&redis, "pw");
        redis.command(&["ACL", "SETUSER", "locks", &format!("-{missing}")]);
        for arguments in [&["acquire", "backup", "--ttl", "5m"][..], &["run", "backup", "--ttl", "5m", "--", "true"]] {
            let test = Test::new(as_user(&redis).as_str()).env("REDLOCK_PASSWORD", "pw").args(arguments);
            test.fails(78, ["\"backup\"", "NOPERM"]).run();
            eventually(SOON, "no lock is left", || !redis.exists(KEY));
        }
    }
}

#[test]
fn keys_and_channels_that_are_missing_are_reported() {
    let redis = Redis::with_tcp(&[]);
    acquire(&redis, "held");
    for (rules, arguments, name) in [
        (["resetkeys", "~redlock:*"], &["acquire", "--name", "backup"][..], "\"backup\""),
        (["resetchannels", "&{other:*"], &["acquire", "--name", "held", "--wait"], "\"held\""),
    ] {
        set_password(&redis, "pw");
        redis.command(&["ACL", "SETUSER", "locks", rules[0], rules[1]]);
        let test = Test::new(as_user(&redis).as_str()).env("REDLOCK_PASSWORD", "pw").args(arguments);
        test.fails(78, [name, "NOPERM"]).run();
    }
}

#[test]
fn a_server_without_scripts_is_reported_in_one_line() {
    for (renamed, arguments) in [
        ("EVALSHA", &["acquire", "--name", "backup"][..]),
        ("EVAL", &["run", "--name", "backup", "--wait", "--", "echo", "started"]),
        ("EVAL", &["status", "backup"]),
        // The server's error inside a script does not name the command.
        ("HSET", &["acquire", "--name", "backup"]),
        ("TIME", &["acquire", "--name", "backup"]),
    ] {
        let redis = Redis::with(&["--rename-command", renamed, ""]);
        let said = message(["refused: ", "nknown ", renamed, "do not rename or disable"]);
        Test::new(&redis).args(arguments).status(78).stdout(any()).stderr(said).run();
    }
}

#[test]
fn a_waiter_does_without_subscribe() {
    let redis = Redis::with(&["--rename-command", "SUBSCRIBE", ""]);
    let token = acquire(&redis, "backup");
    let waiter = redlock(&redis, "run -q backup --wait 20s -- echo started").stdout("started\n").spawn();
    eventually(SOON, "in line", || redis.exists("{redlock:backup}:\u{1f}queue"));
    release(&redis, "backup", &token);
    waiter.finish();
}

#[test]
fn connections_are_known_by_their_name() {
    let redis = Redis::start();
    teach_scripts(&redis);
    let job = redlock(&redis, "run -q backup -- sleep 1000").any_end().spawn();
    let clients = || redis.query::<String>(&["CLIENT", "LIST"]);
    eventually(SOON, "a client with this name", || clients().contains(" name=redlock "));
    drop(job);
    // A user without the right to CLIENT can take and release locks all the same.
    redis.command(&["ACL", "SETUSER", "default", "-client"]);
    let token = acquire(&redis, "other");
    release(&redis, "other", &token);
}

/// Closes all connections apart from the test's.
fn cut(redis: &Redis) {
    redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    redis.command(&["CLIENT", "KILL", "TYPE", "pubsub"]);
}

#[test]
fn a_job_and_a_waiter_outlive_a_new_password() {
    let (redis, directory) = (Redis::with_tcp(&[]), crate::support::Directory::new());
    let file = directory.file("password", "first\n");
    set_password(&redis, "first");
    let call = |line: &str| redlock(as_user(&redis).as_str(), line).env("REDLOCK_PASSWORD_FILE", &file);
    let mut job = call("run -q backup --ttl 6s -- sleep 7").spawn();
    eventually(SOON, "acquired", || redis.exists(KEY));
    let waiter = Line::join(&redis, call("run -q backup --wait -- true"));
    let token = redis.get(KEY);
    set_password(&redis, "second");
    cut(&redis);
    std::thread::sleep(ms(400)); // refused meanwhile
    std::fs::write(&file, "").unwrap();
    std::thread::sleep(ms(100)); // half written
    std::fs::write(&file, "second\n").unwrap();
    is_renewed(&redis);
    assert!(!job.has_ended(), "{}", job.all_stderr());
    assert_eq!(redis.get(KEY), token);
    job.finish();
    waiter.finish();
}

#[test]
fn a_password_that_is_refused_for_good_ends_the_job_before_its_lease() {
    let (redis, directory) = (Redis::with_tcp(&[]), crate::support::Directory::new());
    let file = directory.file("password", "first\n");
    set_password(&redis, "first");
    let test = Test::new(as_user(&redis).as_str()).env("REDLOCK_PASSWORD_FILE", &file);
    let job = test.args(["run", "-q", "--name", "backup", "--ttl", "6s", "--", "sleep", "1000"]).status(76);
    let job =
        job.stderr(loss(["WRONGPASS", "before the lease could expire; check both; the password is from "])).spawn();
    eventually(SOON, "acquired", || redis.exists(KEY));
    set_password(&redis, "second");
    cut(&redis);
    job.finish();
    // A new call fails at once, with --wait too.
    for wait in [None, Some("--wait")] {
        let test = Test::new(as_user(&redis).as_str()).env("REDLOCK_PASSWORD_FILE", &file).status(78);
        test.args(["acquire", "other"]).args(wait).stderr(message(["WRONGPASS", "check both"])).run();
    }
}

#[test]
fn a_refused_password_is_reported_with_its_source() {
    let (redis, directory) = (Redis::with_tcp(&[]), crate::support::Directory::new());
    set_password(&redis, "right");
    let (url, file) = (as_user(&redis), directory.file("password", "wrong\n"));
    let with_password = url.replace("locks@", "locks:wrong@");
    let settings = format!("REDLOCK_REDIS={url}\nREDLOCK_PASSWORD=wrong\n");
    let by_file = Test::bare();
    let conf = by_file.directory().path().join(".config/redlock/redlock.conf");
    std::fs::create_dir_all(conf.parent().unwrap()).unwrap();
    std::fs::write(&conf, settings).unwrap();
    let file = file.to_str().unwrap();
    for (test, from) in [
        (Test::new(url.as_str()).env("REDLOCK_PASSWORD", "wrong"), "REDLOCK_PASSWORD".to_owned()),
        (Test::new(url.as_str()).env("REDLOCK_PASSWORD_FILE", file), format!("{file} (REDLOCK_PASSWORD_FILE)")),
        (Test::new(url.as_str()).args(["--password-file", file]), format!("{file} (--password-file)")),
        (Test::new(with_password.as_str()), "the URL in REDLOCK_REDIS".to_owned()),
        (Test::bare().args(["--redis", &with_password]), "the URL in --redis".to_owned()),
        (by_file, format!("{}, line 2: REDLOCK_PASSWORD", conf.display())),
    ] {
        let said = format!("(WRONGPASS); check both; the password is from {from}\n");
        test.args(["acquire", "backup"]).status(78).stderr(when(said.clone(), move |text| text.ends_with(&said))).run();
    }
}

#[test]
fn a_line_feed_at_the_end_of_a_variable_does_not_count() {
    let redis = Redis::with_tcp(&[]);
    set_password(&redis, "s3cret");
    for end in ["\n", "\r\n"] {
        let url = format!("{}{end}", as_user(&redis));
        let test = Test::bare().env("REDLOCK_REDIS", url).env("REDLOCK_PASSWORD", format!("s3cret{end}"));
        let test = test.env("REDLOCK_NODE_TIMEOUT", format!("2s{end}")).env("REDLOCK_PREFIX", format!("app:{end}"));
        test.args(["run", "-q", "backup", "--", "true"]).run();
    }
}

#[test]
fn a_password_from_a_pipe_is_kept_for_the_next_connection() {
    let redis = Redis::with_tcp(&[]);
    set_password(&redis, "s3cret");
    let script = "exec redlock run -q --name backup --ttl 4s --password-file <(echo s3cret) -- sleep 5";
    let job = Test::program(as_user(&redis).as_str(), "bash").args(["-c", script]).spawn();
    eventually(SOON, "acquired", || redis.exists(KEY));
    cut(&redis);
    job.finish();
}

#[test]
fn a_node_that_refuses_the_password_leaves_no_part_of_the_lock_in_the_way() {
    let nodes = [Redis::with_tcp(&[]), Redis::with_tcp(&[])];
    set_password(&nodes[0], "new");
    set_password(&nodes[1], "old");
    let directory = crate::support::Directory::new();
    let file = directory.file("password", "new\n");
    let urls = [as_user(&nodes[0]), as_user(&nodes[1])];
    let test = Test::new(&urls[..]).args(["acquire", "-q", "backup", "--wait", "--ttl", "60s", "--quarantine", "0"]);
    let test = test.args(["--password-file", file.to_str().unwrap()]).status(78);
    test.stderr(message(["WRONGPASS", "check both"])).run();
    // The first node has granted the try, which was undone.
    assert!(nodes[0].exists("{redlock:backup}:\u{1f}fence"));
    assert!(!nodes[0].exists(KEY));
}
