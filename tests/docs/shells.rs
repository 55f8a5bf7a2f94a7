//! Completions as a person gets them: the real shells in a terminal, in which the tests press TAB.

use crate::support::{Redis, SOON, Terminal, acquire_for, eventually, like, ms, needs, redlock};
use std::fs;
use std::time::Instant;

const BASH_COMPLETION: &str = "/usr/share/bash-completion/bash_completion";
const CTRL_A: &str = "\x01";

/// Pairs of a typed line and the words of this line after TAB: each word stands in `<>`.
const COMPLETED: [(&str, &str); 48] = [
    ("redlock stat", "<redlock><status>"),
    ("redlock completions z", "<redlock><completions><zsh>"),
    // TAB completes the names of locks, but only where the subcommand takes one.
    ("redlock status bac", "<redlock><status><backup:db1>"),
    ("redlock status backup:d", "<redlock><status><backup:db1>"),
    ("redlock status my", "<redlock><status><my lock>"),
    ("redlock release ba", "<redlock><release><backup:db1>"),
    ("redlock extend --name ba", "<redlock><extend><--name><backup:db1>"),
    ("redlock wait --timeout 5s ba", "<redlock><wait><--timeout><5s><backup:db1>"),
    ("redlock acquire --name=ba", "<redlock><acquire><--name=backup:db1>"),
    ("redlock run --wait -q ba", "<redlock><run><--wait><-q><backup:db1>"),
    ("redlock --prefix other: status o", "<redlock><--prefix><other:><status><one>"),
    ("redlock --redis unix:///none status ba", "<redlock><--redis><unix:///none><status><ba>"),
    ("redlock run -n ba", "<redlock><run><-n><backup:db1>"),
    ("redlock status x my", "<redlock><status><x><my lock>"),
    ("redlock log x --since 1d -n 5 ba", "<redlock><log><x><--since><1d><-n><5><backup:db1>"),
    ("redlock release x my", "<redlock><release><x><my>"),
    ("redlock doctor ba", "<redlock><doctor><ba>"),
    // Behind `help`, TAB completes subcommands, but no names of locks.
    ("redlock help stat", "<redlock><help><status>"),
    ("redlock help ba", "<redlock><help><ba>"),
    // TAB completes options and their values, but only those that the subcommand accepts.
    ("redlock run x --on-l", "<redlock><run><x><--on-lost>"),
    ("redlock run x --on-lost st", "<redlock><run><x><--on-lost><stop>"),
    ("redlock run x --sig", "<redlock><run><x><--signal>"),
    ("redlock run x --signal K", "<redlock><run><x><--signal><KILL>"),
    ("redlock status --format=j", "<redlock><status><--format=json>"),
    ("redlock status --password-file fi", "<redlock><status><--password-file><file>"),
    ("redlock --tls-ca fi", "<redlock><--tls-ca><file>"),
    ("redlock status --tls-key fi", "<redlock><status><--tls-key><file>"),
    ("redlock status --format e", "<redlock><status><--format><e>"),
    ("redlock status --format p", "<redlock><status><--format><prometheus>"),
    ("redlock acquire x --format e", "<redlock><acquire><x><--format><env>"),
    ("redlock run x --form", "<redlock><run><x><--form>"),
    ("redlock status --lab", "<redlock><status><--lab>"),
    ("redlock run x --ttl fi", "<redlock><run><x><--ttl><fi>"),
    ("redlock run x --redis fi", "<redlock><run><x><--redis><fi>"),
    // Here TAB adds nothing: no file, no program, and no `-` (zsh would add the `-` where only options may follow).
    ("redlock status fi", "<redlock><status><fi>"),
    ("redlock release x ", "<redlock><release><x>"),
    ("redlock completions zsh ", "<redlock><completions><zsh>"),
    ("redlock acquire x -- redloc", "<redlock><acquire><x><--><redloc>"),
    // Behind the lock's name, TAB completes the job: first `--`, then the command and the command's arguments.
    ("redlock run x ", "<redlock><run><x><-->"),
    ("redlock run x --ttl 5s -- redloc", "<redlock><run><x><--ttl><5s><--><redlock>"),
    ("redlock run x -- ./jo", "<redlock><run><x><--><./job>"),
    ("redlock run x --redis=redis://a:1 -- cat fi", "<redlock><run><x><--redis=redis://a:1><--><cat><file>"),
    ("redlock run 'my lock' -- cat fi", "<redlock><run><my lock><--><cat><file>"),
    ("redlock run --name x ", "<redlock><run><--name><x><-->"),
    ("redlock run --name=x --name ba", "<redlock><run><--name=x><--name><backup:db1>"),
    ("redlock run --name x --name=y ", "<redlock><run><--name><x><--name=y><-->"),
    ("redlock run --name a:b --name c -- cat fi", "<redlock><run><--name><a:b><--name><c><--><cat><file>"),
    ("redlock run --name x -- cat fi", "<redlock><run><--name><x><--><cat><file>"),
];

/// A terminal whose shell has read redlock's completions, and has a function `show`, which prints its arguments.
fn terminal(redis: &Redis, shell: &str) -> Terminal {
    let terminal = Terminal::editing(redis, shell);
    let home = terminal.directory();
    fs::write(home.path().join("file"), "").unwrap();
    home.program("job", "");
    terminal.enters(match shell {
        "bash" => "show() { printf '<%s>' \"$@\"; echo '<end''>'; }; source <(redlock completions bash)",
        "zsh" => {
            "show() { printf '<%s>' \"$@\"; echo '<end''>'; }; \
             autoload -U compinit; compinit -u -D; source <(redlock completions zsh)"
        }
        _ => "function show; printf '<%s>' $argv; echo '<end''>'; end; redlock completions fish | source",
    });
    terminal.enters("show ready");
    terminal.shows("<ready><end>");
    terminal
}

/// Returns the words that are on the line after TAB.
fn completed(terminal: &Terminal, line: &str) -> String {
    terminal.types(line);
    terminal.types("\t");
    terminal.types(CTRL_A);
    terminal.enters("show ");
    terminal.shows("<redlock>");
    let rest = terminal.shows("<end>");
    format!("<redlock>{}", rest.trim_end_matches("<end>"))
}

/// Checks that TAB turns `line` into the words `expected`. For up to 10 s, types the line again and again: on a busy
/// machine, the shell may get the names of locks too late.
#[track_caller]
fn completes(terminal: &Terminal, line: &str, expected: &str) {
    let start = Instant::now();
    loop {
        let words = completed(terminal, line);
        if words == expected {
            return;
        }
        assert!(start.elapsed() < SOON, "{line:?} became {words:?}, not {expected:?}\n{}", terminal.all());
    }
}

/// A server with three locks, whose names the shells complete.
fn locks() -> Redis {
    let redis = Redis::start();
    acquire_for(&redis, "backup:db1", "10m");
    acquire_for(&redis, "my lock", "10m");
    redlock(&redis, "acquire one --prefix other: --ttl 10m").stdout(like("<token>\n")).run();
    redis
}

fn everything_is_completed_in(shell: &str) {
    let redis = locks();
    let terminal = terminal(&redis, shell);
    for (line, expected) in COMPLETED {
        completes(&terminal, line, expected);
    }
    let shown = terminal.all().len();
    terminal.types("redlock \t\t");
    for command in ["acquire", "completions", "extend", "release", "run", "status", "wait"] {
        eventually(SOON, command, || terminal.all().get(shown..).is_some_and(|list| list.contains(command)));
    }
}

#[test]
fn bash_completes() {
    everything_is_completed_in("bash");
}

#[test]
fn zsh_completes() {
    everything_is_completed_in("zsh");
}

#[test]
fn fish_completes() {
    everything_is_completed_in("fish");
}

/// After `--`, the shell completes the job's arguments as it does without redlock. bash needs the package
/// bash-completion for this.
#[test]
fn a_command_completes_its_own_arguments() {
    let redis = locks();
    for shell in ["bash", "zsh", "fish"] {
        let terminal = terminal(&redis, shell);
        if shell == "bash" {
            needs(BASH_COMPLETION);
            terminal.enters(&format!("source {BASH_COMPLETION}"));
        }
        let nested = "<redlock><run><a:b><--redis><redis://a:1><--><redlock><release>";
        completes(&terminal, "redlock run a:b --redis redis://a:1 -- redlock rel", nested);
        completes(
            &terminal,
            "redlock run --name a:b -- redlock status my",
            "<redlock><run><--name><a:b><--><redlock><status><my lock>",
        );
    }
}

#[test]
fn without_redis_names_are_missed_at_once_and_in_silence() {
    for shell in ["bash", "zsh", "fish"] {
        let mut redis = locks();
        let terminal = terminal(&redis, shell);
        completes(&terminal, "redlock status my", "<redlock><status><my lock>");
        // TAB must not take as long as the node timeout, which is three seconds by default with a single node.
        let at_once = || {
            let start = Instant::now();
            assert_eq!(completed(&terminal, "redlock status my"), "<redlock><status><my>");
            assert!(!terminal.all().contains("redlock: "), "{}", terminal.all());
            start.elapsed() < ms(1000)
        };
        redis.pause();
        eventually(SOON, "a Redis that does not answer is left soon", at_once);
        redis.kill();
        eventually(SOON, "a Redis that is down is left soon", at_once);
    }
}
