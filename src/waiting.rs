//! What a waiter says on standard error: on a terminal one live line, elsewhere one line at the beginning.

use crate::error::ENTERS;
use crate::lock::Waiting;
use crate::sys::signals::without_ttou;
use crate::sys::stdio;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{IsTerminal, stderr};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How often the live line is brought up to date.
const TICK: Duration = Duration::from_secs(1);

/// How long it may take to write or to clear it: who waits in line has to do with more important things.
const PATIENCE: Duration = Duration::from_millis(50);

/// The line; it is cleared when dropped.
#[derive(Debug)]
pub(crate) struct Line {
    name: String,
    quiet: bool,
    verbose: bool,
    said: bool,
    live: Option<Live>,
}

/// The thread that draws. It alone touches the terminal, which may keep it for ever (Ctrl-S): whoever waits for the lock, and
/// then has a lease to look after, only leaves word.
#[derive(Debug)]
struct Live {
    words: Sender<Word>,
    /// Its end.
    ended: Receiver<()>,
}

/// What the drawing thread is told.
#[derive(Debug)]
enum Word {
    Show(Box<Waiting>),
    /// A line that stays, above the live one.
    Say(String),
}

impl Line {
    /// A line that says nothing yet.
    pub(crate) fn new(name: &str, quiet: bool, verbose: bool) -> Line {
        Line { name: name.to_owned(), quiet, verbose, said: false, live: None }
    }

    /// Shows what is known now.
    pub(crate) fn show(&mut self, waiting: &Waiting) {
        if let Some(news) = waiting.news.as_ref().filter(|_| self.verbose) {
            self.talk(format!("redlock: {:?}: {news}", self.name));
        }
        if self.quiet {
            return;
        }
        if !stderr().is_terminal() || is_dumb() {
            if !std::mem::replace(&mut self.said, true) {
                let text = text(&self.name, waiting, Duration::ZERO);
                stdio::say_within(&format!("redlock: {text}"), PATIENCE);
            }
            return;
        }
        let name = &self.name;
        if self.live.is_none() {
            self.live = Live::start(name.clone());
        }
        if let Some(live) = &self.live {
            live.tell(Word::Show(Box::new(waiting.clone())));
        }
    }

    fn talk(&self, line: String) {
        match &self.live {
            Some(live) => live.tell(Word::Say(line)),
            None => stdio::say_within(&line, PATIENCE),
        }
    }

    /// Takes the live line away, or leaves it to a terminal that takes nothing.
    pub(crate) fn clear(&mut self) {
        if let Some(Live { words, ended }) = self.live.take() {
            drop(words);
            let _ = ended.recv_timeout(PATIENCE);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Whether the terminal cannot take back what it has shown: there, as elsewhere, a line is one for good.
fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term == "dumb")
}

impl Live {
    /// None when there is no room for a thread: then nothing is drawn.
    fn start(name: String) -> Option<Live> {
        let (words, told) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let started = thread::Builder::new().spawn(move || {
            // In the background of a terminal with `stty tostop`, too, it is only the line that is at stake.
            without_ttou(|| draw(&name, &told));
            // Nobody waits any more for a line that took too long to clear.
            let _ = end.send(());
        });
        started.is_ok().then_some(Live { words, ended })
    }

    fn tell(&self, word: Word) {
        // A thread that has failed draws nothing; that is all that it was for.
        let _ = self.words.send(word);
    }
}

/// Keeps the line up to date until nobody has anything to tell any more, and clears it.
fn draw(name: &str, told: &Receiver<Word>) {
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("redlock: {wide_msg}") {
        bar.set_style(style);
    }
    let mut known = None;
    loop {
        match told.recv_timeout(TICK) {
            Ok(Word::Show(waiting)) => known = Some((waiting, Instant::now())),
            Ok(Word::Say(line)) => bar.println(line),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if let Some((waiting, then)) = &known {
            bar.set_message(text(name, waiting, then.elapsed()));
        }
    }
    bar.finish_and_clear();
}

/// What is waited for, who has it, for how long, how much of the lease is left, and our place in line; `ago` is how old
/// that is.
fn text(name: &str, waiting: &Waiting, ago: Duration) -> String {
    let mut text = format!("waiting for {name:?}");
    if waiting.held.is_known() {
        let situation = waiting.held.situation(ago);
        let situation = situation.strip_prefix("is ").unwrap_or(&situation);
        text.push_str(&format!(", {situation}"));
    }
    match waiting.rank {
        0 => {}
        rank => text.push_str(&format!(", {rank} before us")),
    }
    if waiting.held.by_this_job {
        text.push_str(&format!("; {ENTERS}"));
    }
    if let Some(trouble) = &waiting.trouble {
        text.push_str(&format!("; {trouble}"));
    }
    text
}
