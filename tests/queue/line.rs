//! The output of a waiter: a live line in the foreground of a terminal that can erase a line, one plain line elsewhere,
//! and nothing with -q.

use crate::support::{
    Line, Redis, SOON, Terminal, Test, any, eventually, free_port, like, message, myself, redlock, release,
};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex};

/// Shows only what redlock writes to it.
#[derive(Debug)]
struct Screen {
    written: Arc<Mutex<Vec<u8>>>,
}

impl Screen {
    /// A terminal of 200 columns, and the file by which a process writes to it.
    fn new() -> (Screen, File) {
        Screen::of_width(200)
    }

    fn of_width(columns: u16) -> (Screen, File) {
        let size = Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let (mut master, slave) = (File::from(pty.master), File::from(pty.slave));
        let written = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&written);
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            // The read fails when no process has `slave` open any more.
            while let Ok(length @ 1..) = master.read(&mut chunk) {
                sink.lock().unwrap().extend_from_slice(&chunk[..length]);
            }
        });
        (Screen { written }, slave)
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// The lines that can be seen. A control sequence that is unknown here fails the test.
    fn screen(&self) -> Vec<String> {
        let (mut lines, mut row, mut column) = (vec![Vec::new()], 0, 0);
        let text: Vec<char> = self.written().chars().collect();
        let mut at = 0;
        while at < text.len() {
            match text[at] {
                '\r' => column = 0,
                '\n' => {
                    row += 1;
                    if row == lines.len() {
                        lines.push(Vec::new());
                    }
                }
                '\u{1b}' => {
                    let end =
                        (at + 2..text.len()).find(|&end| text[end].is_ascii_alphabetic()).unwrap_or(text.len() - 1);
                    let number: String = text[at + 2..end].iter().collect();
                    match text[end] {
                        'K' if number == "2" => lines[row].clear(),
                        'K' => lines[row].truncate(column),
                        'A' => row -= number.parse().unwrap_or(1).min(row),
                        'J' => lines.truncate(row + 1),
                        'm' | 'h' | 'l' => {}
                        other => panic!("an unknown sequence: {number:?}{other}"),
                    }
                    at = end;
                }
                letter => {
                    if lines[row].len() <= column {
                        lines[row].resize(column + 1, ' ');
                    }
                    lines[row][column] = letter;
                    column += 1;
                }
            }
            at += 1;
        }
        let lines = lines.iter().map(|line| line.iter().collect::<String>());
        let mut lines: Vec<String> = lines.map(|line| line.trim_end().to_owned()).collect();
        lines.retain(|line| !line.is_empty());
        lines
    }

    /// Waits until exactly one line can be seen, which matches this pattern, and returns it.
    #[track_caller]
    fn shows(&self, line: &str) -> String {
        let (pattern, mut seen) = (like(line), Vec::new());
        let deadline = std::time::Instant::now() + SOON;
        while std::time::Instant::now() < deadline {
            seen = self.screen();
            if let [line] = seen.as_slice()
                && pattern.matches(line)
            {
                return line.clone();
            }
            std::thread::sleep(crate::support::ms(5));
        }
        panic!("expected {pattern:?}, shown {seen:?}\n{:?}", self.written());
    }
}

/// Takes the lock with a label; returns the token, and redlock's words about the holder.
fn labelled(redis: &Redis) -> (String, String) {
    let token = Test::new(redis).args(["acquire", "--name", Line::NAME, "--label", "nightly"]).token();
    let (user, host) = myself();
    (token, format!("held by {user}@{host} (nightly)"))
}

fn waiter(redis: &Redis) -> Test {
    Test::new(redis).args(["acquire", "--name", Line::NAME, "--wait"]).env("TERM", "xterm").stdout(any())
}

#[test]
fn on_a_terminal_a_live_line_shows_who_holds_it_and_the_place_and_vanishes_at_the_end() {
    let redis = Redis::start();
    let (token, holder) = labelled(&redis);
    let first = Line::join(&redis, Line::waiter(&redis));
    let (screen, slave) = Screen::new();
    let second = Line::join(&redis, waiter(&redis).arg("10m").at_terminal(slave));
    screen.shows(&format!("redlock: waiting up to 10m for \"backup\", 2nd in line; {holder}"));
    // redlock redraws the line every second.
    screen.shows(&format!("redlock: waiting <n>s of 10m for \"backup\", 2nd in line; {holder}"));
    release(&redis, Line::NAME, &token);
    let next = first.finish().token();
    let (user, host) = myself();
    screen.shows(&format!("redlock: waiting <n>s of 10m for \"backup\", 1st in line; held by {user}@{host}"));
    release(&redis, Line::NAME, &next);
    second.finish();
    eventually(SOON, "the line is erased", || screen.screen().is_empty());
}

#[test]
fn a_line_that_does_not_fit_is_cut_at_the_columns_of_the_terminal() {
    let redis = Redis::start();
    let (token, _) = labelled(&redis);
    let (screen, slave) = Screen::of_width(46);
    let waiter = Line::join(&redis, waiter(&redis).arg("10m").at_terminal(slave));
    // The line leaves room for the ^C that the terminal echoes, because redlock could not erase a line that wraps.
    let line = screen.shows("redlock: waiting <any> of 10m for \"backup\",<any>…");
    assert_eq!(line.chars().count(), 43, "{line}");
    release(&redis, Line::NAME, &token);
    waiter.finish();
    eventually(SOON, "the line is erased", || screen.screen().is_empty());
}

#[test]
fn in_the_background_of_a_terminal_nothing_is_drawn() {
    let redis = Redis::start();
    let (token, holder) = labelled(&redis);
    let terminal = Terminal::bash(&redis);
    terminal.enters("redlock acquire --name backup --wait &");
    terminal.shows(&format!("redlock: waiting for \"backup\", 1st in line; {holder}\r\n"));
    // In the foreground redlock would redraw the line in this time.
    terminal.enters("sleep 1.2; echo la''ter");
    terminal.shows("later\r\n");
    assert!(!terminal.all().contains('\u{1b}'), "{:?}", terminal.all());
    terminal.enters("fg");
    terminal.shows("\r\u{1b}[Kredlock: waiting ");
    release(&redis, Line::NAME, &token);
    terminal.prompts();
    assert_eq!(terminal.status(), 0);
}

#[test]
fn an_interrupt_clears_the_live_line() {
    let redis = Redis::start();
    let (_, holder) = labelled(&redis);
    for run in [false, true] {
        let (screen, slave) = Screen::new();
        let test = if run {
            let test = Test::new(&redis).args(["run", "--name", Line::NAME, "--wait"]);
            test.args(["--", "true"]).env("TERM", "xterm")
        } else {
            waiter(&redis)
        };
        let waiter = Line::join(&redis, test.at_terminal(slave).signal(Signal::SIGTERM));
        screen.shows(&format!("redlock: waiting for \"backup\", 1st in line; {holder}"));
        assert!(screen.written().contains("\u{1b}[K"), "it is drawn");
        waiter.send(Signal::SIGTERM);
        waiter.finish();
        eventually(SOON, "nothing of it is left but the message", || {
            screen.screen().iter().all(|line| line.contains("interrupted by SIGTERM"))
        });
    }
}

#[test]
fn quiet_shows_nothing_on_a_terminal() {
    let redis = Redis::start();
    let (token, _) = labelled(&redis);
    let (screen, slave) = Screen::new();
    let waiter = Line::join(&redis, Line::waiter(&redis).env("TERM", "xterm").at_terminal(slave));
    release(&redis, Line::NAME, &token);
    waiter.finish();
    assert_eq!(screen.written(), "");
}

#[test]
fn elsewhere_one_line_at_the_start_is_all() {
    let redis = Redis::start();
    let (token, holder) = labelled(&redis);
    let form = |place: &str| format!("redlock: waiting for \"backup\", {place} in line; {holder}\n");
    let first = Line::join(&redis, waiter(&redis).stderr(like(form("1st"))));
    let second = Line::join(&redis, waiter(&redis).stderr(like(form("2nd"))));
    release(&redis, Line::NAME, &token);
    let next = first.finish().token();
    release(&redis, Line::NAME, &next);
    second.finish();
}

#[test]
fn a_terminal_that_cannot_erase_gets_one_line_too() {
    let redis = Redis::start();
    let (token, holder) = labelled(&redis);
    for term in [Some("dumb"), None] {
        let (screen, slave) = Screen::new();
        let test = match term {
            Some(term) => waiter(&redis).env("TERM", term),
            None => waiter(&redis).env_remove("TERM"),
        };
        let waiter = Line::join(&redis, test.at_terminal(slave).signal(Signal::SIGTERM));
        screen.shows(&format!("redlock: waiting for \"backup\", 1st in line; {holder}"));
        waiter.send(Signal::SIGTERM);
        waiter.finish();
        assert!(!screen.written().contains('\u{1b}'));
    }
    release(&redis, Line::NAME, &token);
}

#[test]
fn who_only_waits_until_it_is_free_has_no_place_in_line() {
    let redis = Redis::start();
    let (token, holder) = labelled(&redis);
    let first = Line::join(&redis, Line::waiter(&redis));
    let watcher = Test::new(&redis).args(["wait", Line::NAME, "--timeout", "1m"]).spawn();
    watcher.says(like(format!("redlock: waiting up to 1m for \"backup\"; {holder}")));
    release(&redis, Line::NAME, &token);
    let next = first.finish().token();
    release(&redis, Line::NAME, &next);
    watcher.finish();
}

#[test]
fn a_redis_that_is_down_is_reported_once_at_once() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let waits = |command: &[&str]| Test::new(url.as_str()).args(command).status(69);
    let down = "127.0.0.1:<n> is unreachable (connection refused)";
    for command in [
        &["acquire", "backup", "--wait", "1500ms"][..],
        &["acquire", "-v", "backup", "--wait", "1500ms"],
        &["run", "backup", "--wait", "1500ms", "--", "true"],
        &["wait", "backup", "--timeout", "1500ms"],
    ] {
        let name = if command[0] == "run" { "\"backup\" did not run" } else { "\"backup\"" };
        let said = format!("redlock: {name}: {down}; is the address right, and is Redis running there?\n");
        let waiter = waits(command).stderr(like(said)).spawn();
        if command.contains(&"-v") {
            waiter.says(like("redlock: redis redis://127.0.0.1:<n> (REDLOCK_REDIS)"));
        }
        waiter.says(like(format!("redlock: \"backup\": {down}; trying again")));
        waiter.finish();
    }
    waits(&["acquire", "-q", "backup", "--wait", "600ms"]).stderr(message(["is unreachable"])).run();
}

#[test]
fn on_a_terminal_the_line_says_that_redis_is_down() {
    let url = format!("redis://127.0.0.1:{}", free_port());
    let (screen, slave) = Screen::new();
    let test = redlock(url.as_str(), "acquire backup --wait 1m").env("TERM", "xterm");
    let waiter = test.at_terminal(slave).signal(Signal::SIGTERM).spawn();
    let down = "127.0.0.1:<n> is unreachable (connection refused)";
    let (said, live) = (
        like(format!("redlock: \"backup\": {down}; trying again")),
        like(format!("redlock: waiting <n>s of 1m for \"backup\"; {down}")),
    );
    eventually(SOON, "both lines", || match screen.screen().as_slice() {
        [first, second] => said.matches(first) && live.matches(second),
        _ => false,
    });
    waiter.send(Signal::SIGTERM);
    waiter.finish();
}

#[test]
fn how_long_it_took_is_reported_with_what_was_acquired() {
    let redis = Redis::start();
    let (token, _) = labelled(&redis);
    let run = Test::new(&redis).args(["run", Line::NAME, "--wait", "--", "true"]).spawn();
    run.says(like("redlock: waiting <any>"));
    release(&redis, Line::NAME, &token);
    run.says(like("redlock: acquired \"backup\" on <node> after <duration> in line, <any>, lease 30s"));
    run.finish();
    let (token, _) = labelled(&redis);
    let acquire = Test::new(&redis).args(["acquire", Line::NAME, "--wait", "-v"]).stdout(any()).spawn();
    acquire.says(like("redlock: redis <any>"));
    acquire.says(like("redlock: waiting <any>"));
    release(&redis, Line::NAME, &token);
    acquire.says(like("redlock: acquired \"backup\" on <node> after <duration> in line, fencing token <n>"));
    acquire.finish();
}

#[test]
fn wait_that_is_interrupted_takes_its_line_away() {
    let redis = Redis::start();
    labelled(&redis);
    let (screen, slave) = Screen::new();
    let test = Test::new(&redis).args(["wait", Line::NAME, "--format", "json"]).env("TERM", "xterm");
    let waiter = test.at_terminal(slave).stdout(any()).signal(Signal::SIGINT).spawn();
    screen.shows("redlock: waiting <any>");
    waiter.send(Signal::SIGINT);
    let object = waiter.finish().json();
    assert_eq!((&object["outcome"], &object["status"]), (&"interrupted".into(), &130.into()));
    screen.shows("redlock: interrupted by SIGINT");
}
