//! A redlock.conf that redlock has no right to read, or that another user may have written, is no failure if flags or
//! variables name the nodes. A password file may be a pipe or a terminal.

use crate::support::{Redis, Test, UNPRIVILEGED, acquire, any, message, redlock, when};
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

fn unreadable(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "REDLOCK_REDIS=redis://127.0.0.1:1\n").unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
}

/// Whose redlock.conf cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Users,
    Systems,
}

/// A call that is not allowed to read this redlock.conf, and has no other setting. None if this machine does not allow
/// a mount namespace.
fn call(which: Which, arguments: &[&str]) -> Option<Test> {
    let root = nix::unistd::geteuid().is_root();
    let redlock = env!("CARGO_BIN_EXE_redlock");
    match which {
        Which::Users => {
            let test = if root { Test::of("setpriv").args(UNPRIVILEGED).arg(redlock) } else { Test::bare() };
            unreadable(&test.directory().path().join(".config/redlock/redlock.conf"));
            Some(test.args(arguments))
        }
        Which::Systems => {
            // redlock runs in a mount namespace of its own, with another /etc.
            let mut options = vec!["-m"];
            if !root {
                options.push("-r");
            }
            let probe = Command::new("unshare").args(&options).arg("true").output().unwrap();
            if !probe.status.success() {
                eprintln!("not tried: this machine lets nobody make a mount namespace");
                return None;
            }
            let test = Test::of("unshare").args(&options);
            let etc = test.directory().path().join("etc");
            unreadable(&etc.join("redlock.conf"));
            for file in ["passwd", "group", "hosts", "nsswitch.conf", "resolv.conf", "ld.so.cache"] {
                let _ = fs::copy(Path::new("/etc").join(file), etc.join(file));
            }
            let script = "mount --bind etc /etc && exec setpriv \"$@\"";
            Some(test.args(["sh", "-c", script, "sh"]).args(UNPRIVILEGED).arg(redlock).args(arguments))
        }
    }
}

#[test]
fn a_file_that_may_not_be_read_is_not_needed_where_the_nodes_are_given() {
    let redis = Redis::start();
    let url = redis.url();
    for which in [Which::Users, Which::Systems] {
        for by_flag in [true, false] {
            let call = |arguments: &[&str]| {
                // --redis follows the subcommand, because at the end of the line it would be an argument of the job of
                // `run`.
                let (first, rest) = arguments.split_first().unwrap();
                let flag: &[&str] = if by_flag { &["--redis", &url] } else { &[] };
                let test = call(which, &[&[*first], flag, rest].concat())?;
                Some(if by_flag { test } else { test.env("REDLOCK_REDIS", &url) })
            };
            let Some(test) = call(&["acquire", "--name", "backup"]) else {
                break;
            };
            let token = test.token();
            for (arguments, status) in [
                (&["status", "backup"][..], 0),
                (&["status"], 0),
                (&["status", "-q", "backup"], 75),
                (&["extend", "-q", "backup", "--token", &token], 0),
                (&["release", "-q", "backup", "--token", &token], 0),
                (&["wait", "-q", "backup"], 0),
                (&["run", "-q", "--name", "backup", "--", "sh", "-c", "exit 5"], 5),
            ] {
                call(arguments).unwrap().status(status).stdout(any()).run();
            }
        }
    }
}

#[test]
fn verbose_says_which_file_was_left_out() {
    let redis = Redis::start();
    acquire(&redis, "backup");
    for which in [Which::Users, Which::Systems] {
        if let Some(test) = call(which, &["status", "-v", "--redis", &redis.url(), "backup"]) {
            let said = when("the file", |text| text.contains("redlock.conf"));
            test.stdout(any()).stderr(said).run();
        }
    }
}

#[test]
fn without_nodes_a_file_that_may_not_be_read_is_not_guessed_away() {
    // The file may name the nodes, so a lock on another Redis would not be the same lock.
    for which in [Which::Users, Which::Systems] {
        for line in ["acquire --name backup", "run -q -E 0 --name backup -- true", "wait -q backup", "status -q backup"]
        {
            let words: Vec<&str> = line.split(' ').collect();
            if let Some(test) = call(which, &words) {
                test.env("REDIS_URL", "redis://127.0.0.1:1").fails(64, ["redlock.conf"]).run();
            }
        }
    }
}

const NOBODY: u32 = 65534;

/// A call of redlock on no server, whose home has this redlock.conf.
fn with_file(text: &str) -> (Test, PathBuf) {
    let test = Test::bare();
    let file = test.directory().path().join(".config/redlock/redlock.conf");
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    fs::write(&file, text).unwrap();
    (test, file)
}

/// Only root can give files away; says what is not tried otherwise.
fn is_root() -> bool {
    let root = nix::unistd::geteuid().is_root();
    if !root {
        eprintln!("not tried: another user's file, for this user is not root");
    }
    root
}

/// `file` must be ignored with this reason: the nodes in it are not asked, nor is a password read for them.
#[track_caller]
fn is_ignored(redis: &Redis, change: impl Fn(&Path), why: &str) {
    let foreign = Redis::with_tcp(&["--requirepass", "s3cret"]);
    let connections = || foreign.info("total_connections_received").parse::<u64>().unwrap();
    let before = connections();
    let text = format!("REDLOCK_REDIS={}\nREDLOCK_PASSWORD=s3cret\nREDLOCK_PREFIX=theirs:\n", foreign.tcp_url());
    let call = |arguments: &[&str]| {
        let (test, file) = with_file(&text);
        change(&file);
        (test.args(arguments), file)
    };
    let said = |file: &Path| {
        let file = file.display().to_string();
        message(["ignoring", &file, why])
    };
    // Where no other source names the nodes, the lock would be on the default address.
    let (test, file) = call(&["run", "-q", "backup", "--", "echo", "started"]);
    test.status(64).stderr(message(["ignoring", &file.display().to_string(), why, "--redis"])).run();
    let (test, file) = call(&["run", "-q", "backup", "--", "true"]);
    test.env("REDIS_URL", redis.url()).stderr(said(&file)).run();
    assert!(redis.exists("{redlock:backup}:\u{1f}fence"), "the prefix is the default");
    let (test, file) = call(&["run", "-q", "--redis", &redis.url(), "backup", "--", "true"]);
    test.stderr(said(&file)).run();
    assert_eq!(connections(), before + 1, "the only connection is that of this question");
}

#[test]
fn a_file_that_another_user_may_have_written_is_ignored() {
    let redis = Redis::start();
    let mode = |mode| move |file: &Path| fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
    for open in [0o666, 0o602, 0o646] {
        is_ignored(&redis, mode(open), "others may write to ");
    }
    if !is_root() {
        return;
    }
    is_ignored(&redis, mode(0o664), "others may write to ");
    is_ignored(&redis, |file| chown(file, Some(NOBODY), Some(NOBODY)).unwrap(), "belongs to another user (uid 65534)");
    // The link is another user's, but leads to a file of root's.
    let linked = |file: &Path| {
        let own = file.with_extension("own");
        fs::rename(file, &own).unwrap();
        symlink(&own, file).unwrap();
        lchown(file, Some(NOBODY), Some(NOBODY)).unwrap();
    };
    is_ignored(&redis, linked, "belongs to another user (uid 65534)");
    let above = |file: &Path| {
        let config = file.parent().unwrap().parent().unwrap();
        fs::rename(config, config.with_file_name("theirs")).unwrap();
        symlink("theirs", config).unwrap();
        lchown(config, Some(NOBODY), Some(NOBODY)).unwrap();
    };
    is_ignored(&redis, above, "belongs to another user (uid 65534)");
}

#[test]
fn a_file_of_ones_own_or_of_root_counts_behind_links_too() {
    let redis = Redis::start();
    let text = format!("REDLOCK_REDIS={}\n", redis.url());
    for name in ["plain", "linked", "through a linked directory"] {
        let (test, file) = with_file(&text);
        let moved = match name {
            "linked" => Some(file.clone()),
            "through a linked directory" => file.parent().map(Path::to_owned),
            _ => None,
        };
        if let Some(moved) = moved {
            let elsewhere = test.directory().path().join("elsewhere");
            fs::rename(&moved, &elsewhere).unwrap();
            symlink("../".repeat(if name == "linked" { 2 } else { 1 }) + "elsewhere", &moved).unwrap();
        }
        test.args(["run", "-q", "backup", "--", "true"]).run();
    }
}

#[test]
fn help_and_completions_need_no_file() {
    for which in [Which::Users, Which::Systems] {
        for arguments in [&["--help"][..], &["--version"], &["completions", "bash"]] {
            if let Some(test) = call(which, arguments) {
                test.stdout(any()).run();
            }
        }
    }
}

#[test]
fn a_pipe_may_hold_the_password_and_what_does_not_end_keeps_nothing_waiting() {
    let redis = Redis::with(&["--requirepass", "secret"]);
    let script = "redlock status -q x --password-file <(sleep 0.2; echo secret)";
    Test::program(&redis, "bash").args(["-c", script]).run();
    // Nobody writes to this pipe, and nobody types at this terminal.
    let terminal = nix::pty::openpty(None, None).unwrap();
    let terminal = nix::unistd::ttyname(&terminal.slave).map(|path| (terminal, path)).unwrap();
    let files = [Path::new("fifo"), &terminal.1];
    let calls = files.map(|file| {
        let test = redlock(&redis, "status -q x --password-file").arg(file).status(64);
        nix::unistd::mkfifo(&test.directory().path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let file = file.display();
        test.stderr(format!("redlock: cannot read the password from {file}: it did not end within 10s\n").as_str())
            .spawn()
    });
    calls.into_iter().for_each(|call| drop(call.finish()));
}
