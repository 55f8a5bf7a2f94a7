//! Servers that refuse, hang, drip, lie or go away in the middle. A call that cannot do its work ends in time, says why
//! in one clear line, and leaves nothing behind. Its status is 69. (Some servers' errors, and some of this machine's, have
//! the status 64 or 78.) A running job goes on over a new connection, or is dead before its lease can expire.

use crate::support::{
    Directory, Line, Mode, Proxy, Redis, SOON, Test, Tls, UNPRIVILEGED, Where, acquire, alive, eventually, free_port,
    in_the_end, is_renewed, job, loss, message, ms, redlock, release, teach_scripts, when,
};
use nix::libc;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

/// With this node timeout a call takes at most `AT_MOST`, even on a busy machine: it asks, waits for a recovery, and
/// undoes its request.
const TIMEOUT: &str = "300ms";
const AT_MOST: Duration = SOON;

/// Those that talk to Redis, apart from log and doctor.
fn commands() -> Vec<Vec<&'static str>> {
    vec![
        vec!["acquire", "--name", "backup"],
        vec!["acquire", "--name", "backup", "--wait", "400ms"],
        vec!["run", "--name", "backup", "--", "echo", "started"],
        vec!["run", "--name", "backup", "--wait", "400ms", "--", "echo", "started"],
        vec!["extend", "backup", "--token", "t"],
        vec!["release", "backup", "--token", "t"],
        vec!["release", "backup", "--force"],
        vec!["stop", "backup"],
        vec!["status", "backup"],
        vec!["status"],
        vec!["wait", "backup", "--timeout", "400ms"],
    ]
}

/// Each command must end with 69 in time, and name the node.
#[track_caller]
fn all_fail(url: &str, node: &str) {
    for arguments in commands() {
        fails(url, node, &arguments);
    }
}

#[track_caller]
fn fails(url: &str, node: &str, arguments: &[&str]) {
    let test = Test::new(url).args(["--node-timeout", TIMEOUT]).args(arguments).status(69).within(AT_MOST);
    let stdout = when("nothing from a job", |text| !text.contains("started"));
    test.stdout(stdout).stderr(in_the_end(arguments, message([node]))).run();
}

/// All cases at once, to save time: redlock repeats a failed release for up to five seconds.
fn side_by_side<T: Send>(cases: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            let check = &check;
            scope.spawn(move || check(case));
        }
    });
}

/// Paths and permissions that no waiting mends: a call ends at once, even one that may wait for hours.
#[test]
fn what_this_machine_refuses_for_good_ends_a_wait() {
    let (redis, directory) = (Redis::start(), Directory::new());
    let here = |name: &str| directory.path().join(name).display().to_string();
    directory.file("file", "");
    let _datagrams = UnixDatagram::bind(here("datagrams")).unwrap();
    symlink("circle", here("circle")).unwrap();
    let socket = redis.socket();
    symlink(&socket, here("closed")).unwrap();
    let too_long = format!("unix:///{}", "x".repeat(200));
    let wait = ["run", "backup", "--wait", "2h", "--", "echo", "started"];
    for (path, why, advice) in [
        (here("file"), "is not a socket (ENOTSOCK)", "check --redis"),
        (here(""), "is not a socket (ENOTSOCK)", "check --redis"),
        (here("datagrams"), "is a socket of another kind (EPROTOTYPE)", "unixsocket"),
        (here("file/socket"), "has a file in its path", "check --redis"),
        (here("circle"), "in a circle (ELOOP)", "check --redis"),
    ] {
        Test::new(format!("unix://{path}").as_str()).args(wait).fails(78, [why, advice]).run();
    }
    Test::new(too_long.as_str()).args(wait).fails(78, ["at most 107 bytes (ENAMETOOLONG)", "shorter"]).run();
    let sandboxed = Test::new(&redis).args(wait).refusing(libc::SYS_connect);
    sandboxed.fails(78, ["may not be connected to on this machine (EPERM)", "sandbox"]).run();
    std::fs::set_permissions(&socket, Permissions::from_mode(0o000)).unwrap();
    for line in ["status", "acquire backup --wait 2h", "run backup --wait 2h -- echo started"] {
        let is_root = nix::unistd::geteuid().is_root();
        let as_user: &[&str] = if is_root { &UNPRIVILEGED } else { &[] };
        let test = Test::program(&redis, if is_root { "setpriv" } else { "env" }).args(as_user).arg("redlock");
        test.args(line.split(' ')).fails(78, ["may not be connected to by this user (EACCES)", "unixsocketperm"]).run();
    }
}

#[test]
fn nobody_listens() {
    let address = format!("127.0.0.1:{}", free_port());
    let nobody = [(format!("redis://{address}"), &*address), ("unix:///no/such/socket".into(), "/no/such/socket")];
    side_by_side(nobody, |(url, node)| all_fail(&url, node));
}

#[test]
fn a_server_that_hangs_closes_resets_or_drips() {
    let redis = Redis::start();
    let plain = [Mode::BlackHole, Mode::Cut, Mode::HalfReply, Mode::Reset, Mode::Drip(ms(100))];
    // Failures of the TLS handshake.
    let by_tls = [Mode::BlackHole, Mode::Cut, Mode::Garbage(vec![0x16; 7])];
    let plain = plain.map(|mode| (mode, "redis://")).into_iter();
    side_by_side(plain.chain(by_tls.map(|mode| (mode, "rediss://"))), |(mode, scheme)| {
        let proxy = Proxy::new(&redis, mode);
        all_fail(&proxy.url().replace("redis://", scheme), &proxy.address());
    });
}

#[test]
fn a_stopped_server() {
    let redis = Redis::with_tcp(&[]);
    redis.pause();
    all_fail(&redis.tcp_url(), &redis.address());
    redis.resume();
    eventually(SOON, "nothing left", || redis.keys_without_history().is_empty());
}

#[test]
fn a_server_that_talks_garbage() {
    let redis = Redis::start();
    let nested = "*1\r\n".repeat(5_000);
    let garbage = [
        &b"garbage\r\n"[..],
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n",
        b"\0\0\0\0\r\n",
        b"\r\n\r\n",
        b"$9999999999\r\nx",
        b"*100000000000\r\n",
        b"%1\r\n+a\r\n+b\r\n",
        nested.as_bytes(),
    ];
    side_by_side(garbage, |garbage| {
        let proxy = Proxy::new(&redis, Mode::Garbage(garbage.to_vec()));
        for number in [0, 2, 4, 5, 8, 10] {
            fails(&proxy.url(), &proxy.address(), &commands()[number]);
        }
    });
}

#[test]
fn what_is_met_is_named_with_what_to_do_about_it() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let script = "script: 5677, on @user_script:12.";
    let unknown =
        "'EVALSHA', with args beginning with: '3ad005195c3a8e4a185f69cd6125e4c5a125395f' '6' 'redlock:backup' ";
    for (reply, status, said) in [
        (
            format!("READONLY You can't write against a read only replica. {script}"),
            69,
            "is a read-only replica (READONLY); point --redis at its primary",
        ),
        (
            "MOVED 866 10.0.0.2:7001".to_owned(),
            64,
            "is one node of a Cluster, and the lock belongs to another (MOVED); use redis+cluster://",
        ),
        (
            "CLUSTERDOWN Hash slot not served".to_owned(),
            69,
            "belongs to a Cluster that is down (CLUSTERDOWN); try again when the Cluster is up",
        ),
        (
            format!("ERR unknown command {unknown}"),
            78,
            "refused: unknown command 'EVALSHA'; redlock needs this command: do not rename or disable it; \
             for a Sentinel use redis+sentinel://HOST:PORT/SERVICE",
        ),
        (
            "LOADING Redis is loading the dataset in memory".to_owned(),
            69,
            "is still loading its data (LOADING); try again in a moment",
        ),
        (
            "DENIED Redis is running in protected mode because protected mode is enabled and no password".to_owned(),
            78,
            "is in protected mode and serves its own host only (DENIED); give it a password, or set protected-mode no",
        ),
        ("ERR max number of clients reached".to_owned(), 69, "has too many clients already; raise its maxclients"),
        (
            "NOAUTH Authentication required.".to_owned(),
            78,
            "requires a password (NOAUTH); set REDLOCK_PASSWORD or use --password-file",
        ),
        (
            "NOPERM no permission to run 'evalsha'".to_owned(),
            78,
            "refused: NOPERM no permission to run 'evalsha'; redlock doctor prints the ACL rule it needs",
        ),
    ] {
        proxy.set(Mode::Garbage(format!("-{reply}\r\n").into_bytes()));
        let test = redlock(&proxy, "acquire backup").status(status);
        test.stderr(format!("redlock: \"backup\": {} {said}\n", proxy.address())).run();
    }
    let page = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n".to_vec();
    for (mode, said) in [
        // A TLS port closes a connection without TLS.
        (Mode::Cut, "closed the connection; is Redis running there, or is it a TLS port (rediss://)?"),
        (Mode::Garbage(page), "sent something other than a Redis reply (it cannot be parsed); is the address right?"),
    ] {
        proxy.set(mode);
        let test = redlock(&proxy, "acquire backup").status(69);
        test.stderr(format!("redlock: \"backup\": {} {said}\n", proxy.address())).run();
    }
}

#[test]
fn a_server_that_answers_something_else() {
    let redis = Redis::start();
    // These are proper replies to other questions. None of them must pass for "free", "granted" or "nothing more".
    let replies = [
        &b"+OK\r\n"[..],
        b":12\r\n",
        b"$-1\r\n",
        b"$4\r\n\xff\xfe\xfd\xfc\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*1\r\n$7\r\ngranted\r\n",
        b"*3\r\n$7\r\ngranted\r\n*0\r\n*0\r\n",
        b"*2\r\n*0\r\n*0\r\n",
    ];
    side_by_side(replies, |reply| {
        let proxy = Proxy::new(&redis, Mode::Garbage(reply.to_vec()));
        all_fail(&proxy.url(), &proxy.address());
    });
}

#[test]
fn a_server_that_answers_another_of_our_questions() {
    let redis = Redis::start();
    let extended = &b"*4\r\n$8\r\nextended\r\n:30000\r\n:1\r\n$1\r\n1\r\n"[..];
    let released = &b"*1\r\n$8\r\nreleased\r\n"[..];
    side_by_side([(extended, "extend"), (released, "release")], |(reply, not_for)| {
        let proxy = Proxy::new(&redis, Mode::Garbage(reply.to_vec()));
        for arguments in commands().iter().filter(|arguments| arguments[0] != not_for) {
            fails(&proxy.url(), &proxy.address(), arguments);
        }
    });
}

#[test]
fn control_characters_in_an_error_do_not_reach_the_terminal() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Garbage(b"-OOM \x1b[31mred\x07 bell\r\n".to_vec()));
    fails(&proxy.url(), "OOM", &["acquire", "--name", "backup"]);
}

#[test]
fn a_grant_whose_reply_was_lost_is_undone() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::LoseReplies);
    teach_scripts(&redis);
    for arguments in &commands()[..4] {
        fails(&proxy.url(), &proxy.address(), arguments);
        eventually(SOON, "undone", || !redis.exists("redlock:backup"));
    }
    eventually(SOON, "nothing is left", || redis.keys_without_history() == ["{redlock:backup}:\u{1f}fence"]);
}

#[test]
fn a_grant_that_comes_too_late_is_undone() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Delay(ms(400)));
    teach_scripts(&redis);
    fails(&proxy.url(), &proxy.address(), &["acquire", "--name", "backup"]);
    eventually(SOON, "granted and undone", || redis.keys_without_history() == ["{redlock:backup}:\u{1f}fence"]);
}

#[test]
fn a_server_that_was_stopped_keeps_nothing_of_a_call_that_has_ended() {
    let redis = Redis::start();
    let held = acquire(&redis, "held");
    teach_scripts(&redis);
    redis.pause();
    for arguments in &commands()[..4] {
        fails(&redis.url(), "", arguments);
    }
    redis.resume();
    // The requests from the time of the stop come first: the server takes up the following five after them.
    for _ in 0..5 {
        let _ = redis.keys_without_history();
    }
    assert!(!redis.exists("redlock:backup"), "{:?}", redis.keys_without_history());
    release(&redis, "held", &held);
}

#[test]
fn the_default_time_out_of_one_node_is_a_tenth_of_the_ttl() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::BlackHole);
    // A timeout of a third of the ttl would not pass: a third of 20 s is more than 6 s.
    for (ttl, least, most) in [("1s", 250, 10_000), ("20s", 2_000, 6_000)] {
        let finished =
            redlock(&proxy, format!("acquire backup --ttl {ttl}")).fails(69, ["timed out; is the network up?"]).run();
        assert!((ms(least)..ms(most)).contains(&finished.elapsed), "{ttl}: {:?}", finished.elapsed);
    }
}

#[test]
fn a_wait_with_a_time_ends_in_an_outage_too() {
    let mut redis = Redis::start();
    acquire(&redis, "backup");
    let test = redlock(&redis, "acquire backup --wait 700ms --node-timeout").arg(TIMEOUT);
    let waiter = test.status(69).stderr(when("a line that ends it", |text| text.ends_with('\n'))).spawn();
    waiter.says(when("waiting", |line| line.contains("backup")));
    redis.kill();
    waiter.finish();
}

#[test]
fn a_job_goes_on_over_a_new_connection_when_its_own_is_half_open() {
    let redis = Redis::start();
    let proxy = Proxy::new(&redis, Mode::Pass);
    let (job, writer) = job(&proxy, &["--ttl", "8s"], 0);
    let token = redis.get("redlock:backup");
    proxy.half_open();
    is_renewed(&redis);
    assert_eq!(redis.get("redlock:backup"), token);
    drop(writer);
    job.finish();
    assert!(!redis.exists("redlock:backup"));
}

/// The kernel has a timer for each open connection, shown in /proc/net/tcp. Returns the timers of the connections to
/// `port`: the kind, and the time left. Kind 02 checks whether a silent connection still has its other end (keepalive).
fn timers(port: u16) -> Vec<(String, Duration)> {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let timer = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (kind, ticks) = fields[5].split_once(':').unwrap();
        // An earlier server may have had this port, and its connections are in TIME_WAIT.
        let is_open = fields[3] == "01" && fields[2].ends_with(&format!(":{port:04X}"));
        is_open.then(|| (kind.to_owned(), ms(u64::from_str_radix(ticks, 16).unwrap() * 10)))
    };
    table.lines().skip(1).filter_map(timer).collect()
}

#[test]
fn the_kernel_looks_whether_a_silent_connection_still_has_its_other_end() {
    let redis = Redis::with_tcp(&[]);
    let port: u16 = redis.address().rsplit_once(':').unwrap().1.parse().unwrap();
    acquire(&redis, "backup");
    let waiter = Line::join(&redis, redlock(redis.tcp_url().as_str(), "acquire backup --wait"));
    eventually(SOON, "both connections are looked after", || {
        let timers = timers(port);
        // A request that is under way has another timer.
        timers.len() == 2 && timers.iter().all(|(kind, time)| kind == "02" && *time <= Duration::from_secs(15))
    });
    drop(waiter);
}

#[track_caller]
fn ends_before_the_lease_can_expire(servers: &dyn Where, redis: &Redis) {
    let test = redlock(servers, "run -q backup --ttl 5s --node-timeout 2s -- sh -c");
    let job = test.arg("trap '' TERM; echo $$; while :; do sleep 0.02; done").status(76);
    let job = job.stderr(loss(["timed out"])).spawn();
    let pid: u32 = job.stdout_line().parse().unwrap();
    let now = Instant::now();
    let expires = now + ms(redis.pttl("redlock:backup").cast_unsigned());
    redis.pause();
    eventually(SOON, "the job is dead", || !alive(pid));
    assert!(Instant::now() < expires, "the job lived longer than the lease");
    redis.resume();
    job.finish();
}

#[test]
fn a_job_ends_before_the_lease_on_a_stopped_server_can_expire() {
    let redis = Redis::start();
    ends_before_the_lease_can_expire(&redis, &redis);
}

#[test]
fn so_it_is_by_tls() {
    let (tls, _authority) = Tls::start();
    ends_before_the_lease_can_expire(&tls, &tls.redis);
}
