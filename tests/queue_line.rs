//! What a waiter shows: one live line on a terminal, one line elsewhere.

use crate::support::{Line, Redis, SOON, Test, any, eventually, like, myself, release, when};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex};

/// A terminal that shows nothing but what was written to it.
#[derive(Debug)]
struct Terminal {
    written: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// The terminal, and what a process writes to.
    fn new() -> (Terminal, File) {
        let size = Winsize { ws_row: 24, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let (mut master, slave) = (File::from(pty.master), File::from(pty.slave));
        let written = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&written);
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            // An error is the end: nobody has the other side open any more.
            while let Ok(length @ 1..) = master.read(&mut chunk) {
                sink.lock().unwrap().extend_from_slice(&chunk[..length]);
            }
        });
        (Terminal { written }, slave)
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// The lines that can be seen, as far as the sequences that move the cursor or erase something are known here.
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

    /// Waits until one line can be seen, and it is this.
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

/// Takes the lock with a label.
fn labelled(redis: &Redis) -> (String, String) {
    let test = Test::new(redis).args(["acquire", "--name", Line::NAME, "--label", "nightly"]);
    let token = test.stdout(any()).run().token();
    let (user, host) = myself();
    (token, format!("held by {user}@{host}, pid <n> (nightly)"))
}

fn waiter(redis: &Redis) -> Test {
    Test::new(redis).args(["acquire", "--name", Line::NAME, "--wait"]).env("TERM", "xterm").stdout(any())
}

#[test]
fn on_a_terminal_a_live_line_tells_who_has_it_and_the_place_and_goes_at_the_end() {
    let redis = Redis::start();
    let (token, holder) = labelled(&redis);
    let first = Line::join(&redis, Line::waiter(&redis));
    let (terminal, slave) = Terminal::new();
    let second = Line::join(&redis, waiter(&redis).stderr_to(slave));
    let form = format!("redlock: waiting for \"backup\", {holder}, for <duration>, lease <duration> left, 1 before us");
    let seen = terminal.shows(&form);
    eventually(SOON, "it is brought up to date", || terminal.screen() != [seen.clone()]);
    terminal.shows(&form);
    release(&redis, Line::NAME, &token);
    let next = first.finish().token();
    // The first in line knows it, and who has it now.
    let (user, host) = myself();
    terminal.shows(&format!(
        "redlock: waiting for \"backup\", held by {user}@{host}, pid <n>, for <duration>, lease <duration> left"
    ));
    release(&redis, Line::NAME, &next);
    second.finish();
    eventually(SOON, "the line is gone", || terminal.screen().is_empty());
}

#[test]
fn an_interrupt_clears_the_live_line() {
    let redis = Redis::start();
    let (_, holder) = labelled(&redis);
    for run in [false, true] {
        let (terminal, slave) = Terminal::new();
        let test = if run {
            let test = Test::new(&redis).args(["run", "--name", Line::NAME, "--wait"]);
            test.args(["--", "true"]).env("TERM", "xterm")
        } else {
            waiter(&redis)
        };
        let waiter = Line::join(&redis, test.stderr_to(slave).signal(Signal::SIGTERM));
        terminal.shows(&format!("redlock: waiting for \"backup\", {holder}, for <duration>, lease <duration> left"));
        waiter.send(Signal::SIGTERM);
        waiter.finish();
        eventually(SOON, "nothing of it is left but the message", || {
            terminal.screen().iter().all(|line| line.contains("interrupted by SIGTERM"))
        });
    }
}

#[test]
fn quiet_shows_nothing_on_a_terminal() {
    let redis = Redis::start();
    let (token, _) = labelled(&redis);
    let (terminal, slave) = Terminal::new();
    let waiter = Line::join(&redis, Line::waiter(&redis).env("TERM", "xterm").stderr_to(slave));
    release(&redis, Line::NAME, &token);
    waiter.finish();
    assert_eq!(terminal.written(), "");
}

#[test]
fn elsewhere_one_line_at_the_start_is_all() {
    let redis = Redis::start();
    let (token, holder) = labelled(&redis);
    let form = format!("redlock: waiting for \"backup\", {holder}, for <duration>, lease <duration> left");
    let first = Line::join(&redis, waiter(&redis).stderr(like(format!("{form}\n"))));
    let test = waiter(&redis).stderr(when("one line", |text| text.lines().count() == 1));
    let second = Line::join(&redis, test);
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
        let (terminal, slave) = Terminal::new();
        let test = match term {
            Some(term) => waiter(&redis).env("TERM", term),
            None => waiter(&redis).env_remove("TERM"),
        };
        let test = test.stderr_to(slave).signal(Signal::SIGKILL);
        let waiter = Line::join(&redis, test);
        let form = format!("redlock: waiting for \"backup\", {holder}, for <duration>, lease <duration> left<any>");
        terminal.shows(&form);
        waiter.send(Signal::SIGKILL);
        waiter.finish();
        assert!(!terminal.written().contains('\u{1b}'));
    }
    release(&redis, Line::NAME, &token);
}
