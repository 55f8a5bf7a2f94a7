//! redlock has no right to read redlock.conf: this is no failure if flags or variables name the nodes. A password file
//! may be a pipe or a terminal.

use crate::support::{Redis, Test, acquire, any, redlock, when};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Options of setpriv that give up root's privileges, so that the mode of a file counts; the user is still root.
const UNPRIVILEGED: [&str; 3] = ["--bounding-set=-all", "--inh-caps=-all", "--securebits=+noroot"];

/// Writes a file that nobody may read.
fn unreadable(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "REDLOCK_REDIS=redis://127.0.0.1:1\n").unwrap();
    fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
}

/// The redlock.conf that cannot be read: the user's or the system's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Users,
    Systems,
}

/// A call of redlock that is not allowed to read this redlock.conf, and has no other setting. None if this machine does
/// not allow a mount namespace.
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
                // --redis follows the subcommand: at the end of the line it would be an argument of the job of `run`.
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
                (&["status", "--exit-code", "backup"], 75),
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
    // The file may name the nodes. So redlock must not use another Redis: its lock would not be the same lock.
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
