//! `local:`, one server for each directory. The first call that needs the server starts it, and the server does not
//! depend on this call. If it is killed, the next request of any call starts it again.

use crate::support::{
    Directory, Ended, Pattern, Redis, SOON, Terminal, Test, Where, acquire, acquire_for, alive, any, descendants,
    eventually, like, loss, message, ms, name, perhaps, redlock, release, send, status, status_line, when,
};
use nix::sys::signal::Signal;
use nix::unistd::{Pid, Uid, chown, getsid};
use std::fs;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A place for servers of `local:`, which are killed when it is dropped.
struct Place {
    root: Directory,
}

impl Where for Place {
    fn urls(&self) -> Vec<String> {
        vec![format!("local:{}", self.path().display())]
    }
}

impl Place {
    fn new() -> Place {
        Place { root: Directory::new() }
    }

    fn path(&self) -> PathBuf {
        self.root.path().join("l")
    }

    /// The pids of all of them.
    fn servers(&self) -> Vec<u32> {
        let mut all = have_lock(self.root.path());
        // A redlock that is about to become a server does not count yet.
        all.retain(|&pid| name(pid) != "redlock");
        all
    }

    /// The only server; fails the test if there is none, or more than one.
    #[track_caller]
    fn server(&self) -> u32 {
        let servers = self.servers();
        assert_eq!(servers.len(), 1, "{servers:?}");
        servers[0]
    }

    #[track_caller]
    fn kill(&self) -> u32 {
        let pid = self.server();
        send(pid, Signal::SIGKILL);
        eventually(SOON, "the server is dead", || !alive(pid));
        pid
    }

    /// A place whose directory exists already, with this mode.
    fn made(mode: u32) -> Place {
        let place = Place::new();
        fs::create_dir(place.path()).unwrap();
        fs::set_permissions(place.path(), Permissions::from_mode(mode)).unwrap();
        place
    }

    #[track_caller]
    fn is_refused(&self, status: i32, message: Pattern) {
        redlock(self, "acquire backup").status(status).stderr(message).run();
        assert!(self.servers().is_empty());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.path().join("log")).unwrap_or_default());
        }
        eventually(SOON, "nothing is left", || {
            let all = have_lock(self.root.path());
            all.iter().for_each(|&pid| send(pid, Signal::SIGKILL));
            all.is_empty()
        });
    }
}

/// Every process whose standard input is a file `lock` somewhere below this directory.
fn have_lock(directory: &Path) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has_lock = |pid: &u32| {
        let input = fs::read_link(format!("/proc/{pid}/fd/0")).unwrap_or_default();
        input.starts_with(directory) && input.file_name().is_some_and(|name| name == "lock" || name == "lock (deleted)")
    };
    pids.filter(has_lock).collect()
}

#[test]
fn the_first_call_starts_a_server_and_later_ones_find_it() {
    let place = Place::new();
    let token = acquire(&place, "backup");
    let server = place.server();
    assert_eq!(status(&place, "backup")["state"], "held");
    release(&place, "backup", &token);
    redlock(&place, "run -q backup -- true").run();
    redlock(&place, "status").stderr(message(["no lock is held"])).run();
    assert_eq!(place.server(), server);
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(place.path()), mode(place.path().join("redis.sock"))), (0o700, 0o700));
}

#[test]
fn a_user_has_one_in_the_state_directory_of_each_machine() {
    let place = Place::new();
    for (variable, below) in [("XDG_STATE_HOME", "redlock"), ("HOME", ".local/state/redlock")] {
        let home = place.root.path().join(variable);
        let test = redlock("local:", "acquire backup").env("XDG_STATE_HOME", "relative");
        test.env(variable, &home).stdout(like("<token>\n")).run();
        let machines: Vec<_> = fs::read_dir(home.join(below)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(machines.len(), 1, "{machines:?}");
        assert_eq!(have_lock(&machines[0]).len(), 1, "{machines:?}");
    }
}

#[test]
fn fifty_calls_at_once_start_one_server() {
    let place = Place::new();
    let call = |_| {
        redlock(&place, "acquire -q backup --ttl 1m").any_end().stdout(any()).stderr(perhaps(["is held by"])).spawn()
    };
    let calls: Vec<_> = (0..50).map(call).collect();
    let statuses: Vec<_> = calls.into_iter().map(|call| call.finish()).collect();
    let got = statuses.iter().filter(|finished| finished.ended == Ended::Status(0)).count();
    let held = statuses.iter().filter(|finished| finished.ended == Ended::Status(75)).count();
    assert_eq!((got, held), (1, 49), "{statuses:?}");
    let starts = fs::read_to_string(place.path().join("log")).unwrap();
    let pids: std::collections::HashSet<_> = starts.lines().filter_map(|line| line.split(':').next()).collect();
    assert_eq!(pids, [place.server().to_string().as_str()].into(), "{starts}");
}

#[test]
fn it_has_shared_locks_and_slots() {
    crate::lock::claims::work(&Place::new());
}

#[test]
fn a_lease_outlives_a_server_that_is_killed() {
    let place = Place::new();
    let token = acquire_for(&place, "backup", "5m");
    let killed = place.kill();
    let seen = status(&place, "backup");
    assert_eq!((&seen["state"], &seen["holders"][0]["token_prefix"]), (&"held".into(), &token[..8].into()));
    assert_ne!(place.server(), killed);
    place.kill();
    release(&place, "backup", &token);
}

#[test]
fn the_server_has_nothing_of_the_call_that_started_it() {
    let place = Place::new();
    // `Test` checks that the output closes when the script ends.
    let script = "exec 9> nine; token=$(redlock acquire backup) && cut -d ' ' -f 6 /proc/$$/stat";
    let callers = Test::sh(&place, script).env("SECRET", "s3cret").stdout(like("<n>\n")).run().stdout;
    let server = place.server();
    let session = getsid(Some(Pid::from_raw(server.cast_signed()))).unwrap();
    assert_ne!(session.to_string(), callers.trim());
    assert_ne!(status_line(server, "PPid"), Some(std::process::id().to_string()));
    assert_eq!(fs::read(format!("/proc/{server}/environ")).unwrap(), b"");
    let open = fs::read_dir(format!("/proc/{server}/fd")).unwrap().map(|entry| entry.unwrap().path());
    let files = open.filter_map(|path| fs::read_link(path).ok()).filter(|target| target.is_absolute());
    let foreign: Vec<_> =
        files.filter(|file| !file.starts_with(place.path()) && !file.starts_with("/dev/null")).collect();
    assert_eq!(foreign, Vec::<PathBuf>::new());
}

#[test]
fn no_end_of_a_run_ends_the_server_that_it_started() {
    let run =
        |place: &Place, script: &str| redlock(place, "run -q backup --ttl 4s --node-timeout 2s -- sh -c").arg(script);
    let place = Place::new();
    run(&place, "exit 7").status(7).run();
    let server = place.server();

    // The run loses its lease.
    let job = run(&place, "echo ready; sleep 1000").status(76).stderr(loss(["before the lease could expire"])).spawn();
    job.prints("ready");
    send(server, Signal::SIGSTOP);
    job.finish();
    send(server, Signal::SIGCONT);
    assert_eq!(place.server(), server);

    // Redlock or its keeper is killed, in a call that has started the server.
    for keeper in [false, true] {
        let place = Place::new();
        let mut job = run(&place, "echo ready; sleep 1000").any_end().spawn();
        job.prints("ready");
        let server = place.server();
        send(if keeper { job.keeper() } else { job.pid() }, Signal::SIGKILL);
        job.wait(SOON);
        eventually(SOON, "no job is left", || job.others().is_empty());
        assert_eq!(place.server(), server);
    }
}

#[test]
fn ctrl_c_ends_the_job_and_not_the_server() {
    let place = Place::new();
    let terminal = Terminal::bash(&place);
    terminal.enters("redlock run -q --name backup -- sh -c \"echo rea''dy; exec sleep 1000\"");
    terminal.shows("ready\r\n");
    let server = place.server();
    terminal.types("\x03");
    terminal.prompts();
    assert_eq!((terminal.status(), place.server()), (130, server));
}

#[test]
fn a_running_job_starts_its_server_again_and_does_not_become_its_parent() {
    let place = Place::new();
    let (reader, writer) = std::io::pipe().unwrap();
    let run = |name: &str| Test::new(&place).args(["run", "-q", "--name", name, "--ttl", "6s"]);
    let script = ["--", "sh", "-c", "echo ready; cat"];
    let job = run("backup").args(script).stdin_from(reader).spawn();
    job.prints("ready");
    let waiter = run("backup").args(["--wait", "--", "true"]).spawn();
    eventually(SOON, "it waits", || status(&place, "backup")["waiting"] == 1);
    let killed = place.kill();
    eventually(SOON, "another one runs", || place.servers().len() == 1);
    assert_ne!(place.server(), killed);
    for redlock in [job.pid(), waiter.pid()] {
        let below = || descendants(redlock).contains(&place.server());
        eventually(SOON, "the server is not below redlock", || !below());
    }
    assert_eq!(status(&place, "backup")["state"], "held");
    // The lease is renewed in this time.
    std::thread::sleep(ms(3500));
    drop(writer);
    job.finish();
    waiter.finish();
    // The signals that redlock blocks are not blocked for the server.
    let server = place.server();
    assert_eq!(status_line(server, "SigBlk").as_deref(), Some("0000000000000000"));
    send(server, Signal::SIGTERM);
    eventually(SOON, "SIGTERM ends the server", || place.servers().is_empty());
}

#[test]
fn a_server_that_a_job_has_started_is_no_part_of_the_job() {
    let (outer, place) = (Redis::start(), Place::new());
    // The job also deletes `lock`, the file by which redlock knows the server, as a job that cleans up may do.
    let start = format!("redlock acquire -q other --ttl 1m --redis {}", place.urls()[0]);
    let inner = format!("{start}; rm {}", place.path().join("lock").display());
    let job = |rest: &str| {
        let options = ["run", "-q", "backup", "--whole", "--ttl", "10m", "--kill-after", "300ms", "--", "sh", "-c"];
        Test::new(&outer).args(options).arg(format!("{inner}; echo ready; {rest}"))
    };
    // The job ends by itself.
    job("exit 3").status(3).stdout(like("<token>\nready\n")).run();
    let mut server = place.server();
    // Four ways to end the job: by a signal, by the keeper, by redlock after the keeper's death, by the keeper after
    // redlock's death.
    for end in ["a signal", "a loss", "no keeper", "no redlock"] {
        place.kill();
        let mut job = job("sleep 1000").any_end().stdout(any()).stderr(any()).spawn();
        job.prints("ready");
        server = place.server();
        match end {
            "a signal" => send(job.pid(), Signal::SIGTERM),
            "a loss" => {
                outer.command(&["DEL", "redlock:backup"]);
                // With its connection closed, redlock renews at once.
                outer.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
            }
            "no keeper" => send(job.keeper(), Signal::SIGKILL),
            _ => send(job.pid(), Signal::SIGKILL),
        }
        job.wait(SOON);
        eventually(SOON, "no job is left", || job.others().iter().all(|&pid| pid == server));
        assert_eq!(place.servers(), [server], "{end}");
    }
    assert!(alive(server));
}

#[test]
fn a_daemon_of_a_job_that_looks_like_a_server_is_killed_with_its_lease() {
    let redis = Redis::start();
    // Each daemon has its own lock as standard input, its directory open, and a session without a leader. The second
    // one listens on the server's socket, too.
    let listens = "socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, sockaddr_un(q(redis.sock))); listen(S, 9); sleep 1000";
    for (daemon, file) in [("sleep 1000", "lock"), (&format!("perl -MSocket -e \"{listens}\""), "redis.sock")] {
        let daemon = format!("setsid -f sh -c '( flock -n 0; exec {daemon} ) <>lock 9<. & exit 0'");
        let options = ["run", "-q", "backup", "--ttl", "10m", "--kill-after", "1ms", "--", "sh", "-c"];
        let script = format!("{daemon}; while [ ! -e {file} ]; do sleep 0.01; done; echo ready; sleep 1000");
        let mut job = Test::new(&redis).args(options).arg(script).any_end().stdout(any()).stderr(any()).spawn();
        job.prints("ready");
        redis.command(&["DEL", "redlock:backup"]);
        redis.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        job.wait(SOON);
        assert_eq!(job.others(), [0; 0]);
    }
}

#[test]
fn a_call_that_is_killed_while_the_server_starts_leaves_no_mess() {
    for delay in 0..10 {
        let place = Place::new();
        let mut call = redlock(&place, "run -q backup -- true").any_end().spawn();
        std::thread::sleep(ms(delay));
        send(call.pid(), Signal::SIGKILL);
        call.wait(SOON);
        let token = acquire_for(&place, "other", "1m");
        place.server();
        release(&place, "other", &token);
    }
}

#[test]
fn a_signal_ends_the_wait_for_a_server_that_does_not_come() {
    let place = Place::made(0o700);
    let lock = fs::File::create(place.path().join("lock")).unwrap();
    lock.lock().unwrap();
    for arguments in [["acquire", "backup", "-q"].as_slice(), &["run", "-q", "backup", "--", "true"]] {
        let mut call = Test::new(&place).args(arguments).signal(Signal::SIGTERM).spawn();
        std::thread::sleep(ms(200));
        assert!(!call.has_ended());
        call.send(Signal::SIGTERM);
        call.finish();
    }
    // No server is started beside the process that holds the lock on the file.
    place.is_refused(69, message(["has lost its socket", "l/redis.sock"]));
}

#[test]
fn nothing_that_is_removed_lets_a_second_server_in() {
    let place = Place::new();
    let token = acquire_for(&place, "backup", "1m");
    for file in ["lock", "redis.sock"] {
        fs::remove_file(place.path().join(file)).unwrap();
    }
    let socket = place.path().join("redis.sock");
    let way_out = format!("pkill -f unixsocket:{}", socket.display());
    let calls = [["acquire", "backup"], ["status", "backup"]].map(|arguments| {
        let test = Test::new(&place).args(arguments).status(69);
        test.stderr(message(["has lost its socket", &socket.display().to_string(), &way_out])).spawn()
    });
    calls.into_iter().for_each(|call| drop(call.finish()));
    let killed = place.server();
    let (program, arguments) = way_out.split_once(' ').unwrap();
    assert!(Command::new(program).args(arguments.split(' ')).status().unwrap().success());
    eventually(SOON, "it has ended", || !alive(killed));
    release(&place, "backup", &token);
}

#[test]
fn looking_starts_nothing_and_creates_nothing() {
    let place = Place::new();
    let looks = [
        &["status"][..],
        &["status", "backup", "-q"],
        &["status", "a", "b"],
        &["wait", "backup"],
        &["log", "backup"],
        &["doctor"],
    ];
    for arguments in looks {
        Test::new(&place)
            .args(arguments)
            .stdout(any())
            .stderr(perhaps(["no lock is held", "is known on", "no such run"]))
            .run();
        assert!(!place.path().exists(), "{arguments:?}");
    }
    for arguments in [&["check"][..], &["check", "backup"]] {
        Test::new(&place).args(arguments).status(1).stderr(message(["nothing to check"])).run();
        assert!(!place.path().exists(), "{arguments:?}");
    }
    assert_eq!(status(&place, "backup")["state"], "free");
    redlock("local:", "status backup").env("HOME", "/nonexistent").stdout(like("backup  free\n<lines>")).run();
    assert!(!Path::new("/nonexistent").exists());
    redlock("local:", "acquire backup").env("HOME", "/proc").fails(69, ["/proc/.local/state/redlock"]).run();
}

#[test]
fn a_server_that_cannot_start_is_reported_with_its_log() {
    let place = Place::made(0o700);
    fs::write(place.path().join("appendonlydir"), "").unwrap();
    fs::create_dir(place.path().join("appendonly.aof")).unwrap();
    let log = place.path().join("log");
    place.is_refused(69, message(["local:", "exited at once", &format!("see {}", log.display())]));
    assert!(fs::metadata(log).unwrap().len() > 0);
}

#[test]
fn what_is_not_a_file_in_place_of_its_own_is_refused_at_once() {
    for name in ["log", "lock"] {
        let place = Place::made(0o700);
        let path = place.path().join(name);
        let refused = |why: &str| place.is_refused(69, message(["local:", &format!("{}: {why}", path.display())]));
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        refused("it is not a regular file");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/null", &path).unwrap();
        refused("it is not a regular file");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused("is a directory");
    }
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    for mode in [0o777, 0o720, 0o702, 0o1777] {
        let place = Place::made(mode);
        let path = place.path().display().to_string();
        place.is_refused(78, message(["not safe", &format!("others may write to {path}; chmod go-w {path}")]));
    }
    // Nor may others be able to replace it.
    let place = Place::new();
    fs::create_dir_all(place.root.path().join("open")).unwrap();
    fs::set_permissions(place.root.path().join("open"), Permissions::from_mode(0o777)).unwrap();
    let url = format!("local:{}", place.root.path().join("open/l").display());
    redlock(url.as_str(), "acquire backup").fails(78, ["not safe", "open; chmod go-w"]).run();
    assert!(!place.root.path().join("open/l").exists());
    // If all users may write to the directory above, another user could have made this directory.
    let place = Place::made(0o755);
    if !may_change_users() {
        return;
    }
    chown(&place.path(), Some(NOBODY), None).unwrap();
    let path = place.path().display().to_string();
    place.is_refused(78, message(["not safe", &format!("{path} belongs to another user (uid 65534)"), "local:/DIR"]));
}

/// A call that root makes with another user's directory on the way, which leads to a directory of root's.
#[track_caller]
fn is_not_followed(place: &Place, url: &str, home: Option<&Path>) {
    let roots = place.root.path().join("roots");
    for line in ["acquire backup", "status backup", "run backup -- true", "doctor"] {
        let test = redlock(url, line);
        let test = if let Some(home) = home { test.env("HOME", home) } else { test };
        test.status(78).stdout(any()).stderr(message(["not safe", "belongs to another user (uid 65534)"])).run();
    }
    assert_eq!(fs::read_dir(&roots).unwrap().count(), 0, "nothing is made there");
    assert!(have_lock(place.root.path()).is_empty());
}

#[test]
fn root_follows_no_link_of_another_user_and_starts_nothing_below_another_users_home() {
    if !may_change_users() {
        return;
    }
    let place = Place::new();
    let at = |name: &str| place.root.path().join(name);
    let give_away = |path: &Path| std::os::unix::fs::lchown(path, Some(65534), Some(65534)).unwrap();
    fs::create_dir(at("roots")).unwrap();
    // A link, the directory itself and one above it, in a directory for all, as /tmp is.
    std::os::unix::fs::symlink(at("roots"), place.path()).unwrap();
    give_away(&place.path());
    is_not_followed(&place, &place.urls()[0], None);
    is_not_followed(&place, &format!("{}/below", place.urls()[0]), None);
    // sudo -E keeps HOME: the state directory below leads to root's.
    let home = at("home");
    fs::create_dir_all(home.join(".local")).unwrap();
    std::os::unix::fs::symlink(at("roots"), home.join(".local/state")).unwrap();
    for path in [home.join(".local/state"), home.join(".local"), home.clone()] {
        give_away(&path);
        is_not_followed(&place, "local:", Some(&home));
    }
    fs::remove_file(home.join(".local/state")).unwrap();
    is_not_followed(&place, "local:", Some(&home));
    assert!(!home.join(".local/state").exists());
    // A link of root's own leads where it says.
    fs::remove_file(place.path()).unwrap();
    std::os::unix::fs::symlink("roots", place.path()).unwrap();
    acquire(&place, "backup");
    assert!(at("roots/redis.sock").exists());
}

const NOBODY: Uid = Uid::from_raw(65534);

fn may_change_users() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("not tried: another user's directory, for this user is not root");
    }
    root
}

#[test]
fn a_directory_that_others_may_enter_is_shared_and_its_owner_starts_the_server() {
    if !may_change_users() {
        return;
    }
    // The directory for temporary files counts as unsafe, so this place is in the root directory.
    let root = PathBuf::from(format!("/redlock-{}", std::process::id()));
    let place = Place { root: Directory::at(&root) };
    fs::create_dir(place.path()).unwrap();
    // A copy that every user can execute.
    let binary = root.join("redlock");
    // `cp` makes the copy. If this process wrote the file, a child that another test forks might still have the file
    // open for writing, and then the file could not be executed.
    assert!(Command::new("cp").args([env!("CARGO_BIN_EXE_redlock").as_ref(), &*binary]).status().unwrap().success());
    let as_nobody = || {
        let mut command = Command::new(&binary);
        command.args(["acquire", "backup"]).env("REDLOCK_REDIS", &place.urls()[0]);
        command.uid(NOBODY.as_raw()).current_dir("/");
        let output = command.output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let open = |mode| fs::set_permissions(place.path(), Permissions::from_mode(mode)).unwrap();
    open(0o750);
    let (status, said) = as_nobody();
    assert!(status == 69 && said.contains("only the owner"), "{status} {said}");
    assert!(place.servers().is_empty());
    let token = acquire(&place, "backup");
    let (status, said) = as_nobody();
    assert!(status == 75 && said.contains("is held by"), "{status} {said}");
    // The directory has been opened to every user, and so has its socket.
    open(0o755);
    redlock(&place, "status backup").fails(78, ["not safe", "every user may use", "chmod o-x"]).run();
    assert_eq!(as_nobody().0, 78);
    open(0o700);
    let (status, said) = as_nobody();
    assert!(status == 78 && said.contains("let this user into its directory"), "{status} {said}");
    release(&place, "backup", &token);
    // A server that starts in a directory that every user may enter is its owner's alone.
    open(0o755);
    place.kill();
    let token = acquire(&place, "backup");
    let socket = fs::metadata(place.path().join("redis.sock")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o700);
    let (status, said) = as_nobody();
    assert!(status == 78 && said.contains("(EACCES)"), "{status} {said}");
    release(&place, "backup", &token);
    // The directory of another user than root is shared, too, except with root.
    chown(&place.path(), Some(Uid::from_raw(65533)), None).unwrap();
    place.kill();
    fs::remove_file(place.path().join("redis.sock")).unwrap();
    open(0o750);
    let (status, said) = as_nobody();
    assert!(status == 69 && said.contains("only the owner"), "{status} {said}");
    redlock(&place, "acquire backup").fails(78, ["not safe", "belongs to another user (uid 65533)"]).run();
}

#[test]
fn without_a_server_to_start_the_message_says_what_is_missing() {
    let place = Place::new();
    let test = redlock(&place, "run backup --wait -- /bin/true").env("PATH", "/nosuch").status(69);
    test.stderr(message(["neither redis-server nor valkey-server is installed"])).run();
}

#[test]
fn what_cannot_be_is_refused() {
    let refused = |url: &str, message: Pattern| {
        Test::bare().args(["acquire", "backup", "--redis", url]).status(64).stderr(message).run();
    };
    refused("local:,redis://127.0.0.1:1", message(["local:", "one of several nodes cannot be"]));
    refused("local:here", message(["absolute: local:/"]));
    let deep = format!("local:/{}", "d".repeat(100));
    refused(&deep, message(["107 bytes"]));
    refused("local:/etc/passwd", like("redlock: local:/etc/passwd cannot be used: /etc/passwd is not a directory\n"));
    assert!(!Path::new(&deep["local:".len()..]).exists());
}

#[test]
fn the_password_of_other_servers_is_not_for_this_one() {
    let place = Place::new();
    redlock(&place, "acquire backup").env("REDLOCK_PASSWORD", "s3cret").stdout(like("<token>\n")).run();
    let token = when("a token", |text| text.len() == 33);
    redlock(&place, "acquire other").stdout(token).run();
}

/// A small file system that is mounted on this directory until the value is dropped.
struct Disk(PathBuf);

impl Disk {
    /// None if this user may not mount.
    fn at(path: PathBuf) -> Option<Disk> {
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs"]).arg(&path).output();
        let mounted = mount.is_ok_and(|mount| mount.status.success());
        if !mounted {
            eprintln!("not tried: a full disk, for this user may not mount one");
        }
        mounted.then_some(Disk(path))
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filler")).unwrap();
        while std::io::Write::write_all(&mut file, &[0; 4096]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_full_disk_is_reported_with_the_log() {
    let place = Place::made(0o700);
    let Some(disk) = Disk::at(place.path()) else { return };
    let token = acquire_for(&place, "backup", "5m");
    disk.fill();
    let log = place.path().join("log").display().to_string();
    let doctor = Test::new(&place).arg("doctor").status(69);
    let log_of_doctor = log.clone();
    doctor
        .stdout(when("full", move |said| {
            said.contains("is full: no lock can be taken") && said.contains(&log_of_doctor)
        }))
        .run();
    // A small write may still fit into the disk's last page, so several names are tried.
    let tries = (0..100).map(|number| format!("other-{number}"));
    let fails = |name: &String| {
        let test = Test::new(&place).args(["acquire", name]).any_end();
        test.stdout(any()).stderr(perhaps(["local:"])).run().ended != Ended::Status(0)
    };
    let full = tries.clone().find(fails).unwrap();
    Test::new(&place).args(["acquire", &full]).fails(69, ["local:", "exited", &log]).run();
    // Once there is room again, all is as it was.
    fs::remove_file(disk.0.join("filler")).unwrap();
    release(&place, "backup", &token);
    drop(place);
}

#[test]
fn doctor_says_where_it_is_and_how_to_stop_it() {
    let place = Place::new();
    acquire(&place, "backup");
    let stop = format!("redis-cli -s {}/redis.sock shutdown stops it", place.path().display());
    redlock(&place, "doctor").stdout(when("how to stop it", move |said| said.contains(&stop))).run();
}
