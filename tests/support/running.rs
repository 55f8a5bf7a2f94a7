//! A call that is under way: a test can read its output line by line, send it signals, and wait for its end.

use super::{
    Directory, Ended, Finished, Pattern, SOON, Test, cannot_start, descendants, eventually, name, send, tagged,
};
use nix::sys::signal::Signal;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A call under way. Dropping it kills the call and all processes that it started.
#[derive(Debug)]
pub(crate) struct Running {
    test: Test,
    directory: Arc<Directory>,
    child: Child,
    started: Instant,
    stdout: Output,
    stderr: Output,
    ended: Option<(Ended, Duration)>,
}

impl Running {
    #[track_caller]
    pub(super) fn new(mut command: Command, input: Option<Vec<u8>>, test: Test) -> Running {
        let started = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| cannot_start(&command, &error));
        if let (Some(mut pipe), Some(input)) = (child.stdin.take(), input) {
            // An error is dropped, because a call may end without reading all of its standard input.
            std::thread::spawn(move || drop(pipe.write_all(&input)));
        }
        let stdout = Output::new(child.stdout.take());
        let stderr = Output::new(child.stderr.take());
        let directory = test.directory();
        Running { test, directory, child, started, stdout, stderr, ended: None }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn tag(&self) -> &str {
        self.test.tag()
    }

    /// All live processes of this call, orphans included, but without the first process.
    pub(crate) fn others(&self) -> Vec<u32> {
        let mut pids = tagged(self.tag());
        pids.retain(|pid| *pid != self.pid());
        pids
    }

    /// Waits until this `run` has forked the keeper, which it does before it asks any server; returns the keeper's pid.
    #[track_caller]
    pub(crate) fn keeper(&self) -> u32 {
        let find = || {
            let mut below = descendants(self.pid()).into_iter();
            below.find(|&pid| name(pid) == "redlock-keeper")
        };
        super::eventually(SOON, "it has a keeper", || find().is_some());
        find().unwrap()
    }

    /// All live processes of this call except redlock and its keeper.
    pub(crate) fn job(&self) -> Vec<u32> {
        let mut pids = self.others();
        pids.retain(|&pid| name(pid) != "redlock-keeper");
        pids
    }

    /// Waits until no process has the call's standard output open; false if this takes longer than `deadline`.
    pub(crate) fn output_closes(&self, deadline: Duration) -> bool {
        self.stdout.ends(deadline)
    }

    pub(crate) fn send(&self, signal: Signal) {
        assert!(self.ended.is_none(), "a signal for a process that has ended");
        send(self.pid(), signal);
    }

    /// The next line of standard output, without the line break.
    #[track_caller]
    pub(crate) fn stdout_line(&self) -> String {
        self.line(&self.stdout, "standard output")
    }

    /// The next line of standard error, without the line break.
    #[track_caller]
    pub(crate) fn stderr_line(&self) -> String {
        self.line(&self.stderr, "standard error")
    }

    /// As [`Running::stderr_line`], which must match `expected`.
    #[track_caller]
    pub(crate) fn says(&self, expected: impl Into<Pattern>) -> String {
        self.expected(&self.stderr, "standard error", &expected.into())
    }

    /// As [`Running::stdout_line`], which must match `expected`.
    #[track_caller]
    pub(crate) fn prints(&self, expected: impl Into<Pattern>) -> String {
        self.expected(&self.stdout, "standard output", &expected.into())
    }

    #[track_caller]
    fn expected(&self, output: &Output, what: &str, expected: &Pattern) -> String {
        let line = self.line(output, what);
        assert!(expected.matches(&line), "{what}\nexpected: {expected:?}\n    line: {line:?}\n{}", self.so_far());
        line
    }

    #[track_caller]
    fn line(&self, output: &Output, what: &str) -> String {
        match output.line(SOON) {
            Some(line) => line,
            None => panic!("no line on {what}\n{}", self.so_far()),
        }
    }

    /// All of standard error since the start, whether the test has read it or not.
    pub(crate) fn all_stderr(&self) -> String {
        self.stderr.all()
    }

    /// All of standard output since the start, whether the test has read it or not.
    pub(crate) fn all_stdout(&self) -> String {
        self.stdout.all()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.poll().is_some()
    }

    fn poll(&mut self) -> Option<(Ended, Duration)> {
        if self.ended.is_none() {
            let status = self.child.try_wait().unwrap()?;
            self.ended = Some((ended(status), self.started.elapsed()));
        }
        self.ended
    }

    #[track_caller]
    pub(crate) fn wait(&mut self, deadline: Duration) -> Ended {
        let start = Instant::now();
        loop {
            if let Some((ended, _)) = self.poll() {
                return ended;
            }
            assert!(start.elapsed() < deadline, "still runs after {deadline:?}\n{}", self.so_far());
            std::thread::sleep(Duration::from_millis(if start.elapsed() < Duration::from_millis(50) { 1 } else { 4 }));
        }
    }

    /// As [`Running::finish`], but first waits until none of the call's processes is left.
    #[track_caller]
    pub(crate) fn finish_whole(mut self) -> Finished {
        self.wait(self.test.expected.deadline);
        eventually(SOON, "nothing that it has started is left", || self.others().is_empty());
        self.finish()
    }

    /// Waits for the end of the call. Checks the status, and the output that the test has not read. Kills the processes
    /// that the call has left behind.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Finished {
        let deadline = self.test.expected.deadline;
        let ended = self.wait(deadline);
        if self.test.expected.closes_output {
            let soon = Duration::from_secs(3);
            let open = !(self.stdout.ends(soon) && self.stderr.ends(soon));
            assert!(!open, "ended, but somebody keeps its output open\n{}", self.so_far());
        }
        let elapsed = self.ended.unwrap().1;
        let finished = Finished { ended, stdout: self.stdout.rest(), stderr: self.stderr.rest(), elapsed };
        let expected = &self.test.expected;
        let mut wrong = Vec::new();
        if let Some(expected) = expected.ended.filter(|expected| *expected != ended) {
            wrong.push(format!("  end: {ended:?}, expected {expected:?}"));
        }
        for (what, text, pattern) in
            [("stdout", &finished.stdout, &expected.stdout), ("stderr", &finished.stderr, &expected.stderr)]
        {
            if !pattern.matches(text) {
                wrong.push(format!("  {what}: {text:?}\n  expected {pattern:?}"));
            }
        }
        assert!(
            wrong.is_empty(),
            "{:?} after {elapsed:?}\n{}\n{}",
            self.test.command(),
            wrong.join("\n"),
            self.so_far()
        );
        finished
    }

    fn so_far(&self) -> String {
        format!("standard output so far: {:?}\nstandard error so far: {:?}", self.stdout.all(), self.stderr.all())
    }
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Status(code),
        (None, Some(signal)) => Ended::Signal(signal),
        (None, None) => unreachable!("neither exited nor killed"),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in tagged(self.tag()) {
            send(pid, Signal::SIGKILL);
        }
    }
}

/// The output of a pipe or a terminal. A thread reads it at once, because a call that writes much would otherwise wait
/// for the test.
#[derive(Clone, Debug)]
pub(super) struct Output(Arc<(Mutex<Buffer>, Condvar)>);

#[derive(Debug, Default)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    read: usize,
    ended: bool,
}

impl Output {
    pub(super) fn new(pipe: Option<impl Read + Send + 'static>) -> Output {
        let output = Output(Arc::new((Mutex::new(Buffer::default()), Condvar::new())));
        let Some(mut pipe) = pipe else {
            output.0.0.lock().unwrap().ended = true;
            return output;
        };
        let sink = output.clone();
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            loop {
                let length = pipe.read(&mut chunk).unwrap_or(0);
                let (buffer, changed) = &*sink.0;
                let mut buffer = buffer.lock().unwrap();
                buffer.bytes.extend_from_slice(&chunk[..length]);
                buffer.ended = length == 0;
                changed.notify_all();
                if length == 0 {
                    return;
                }
            }
        });
        output
    }

    fn line(&self, deadline: Duration) -> Option<String> {
        let (buffer, changed) = &*self.0;
        let no_line = |buffer: &mut Buffer| !buffer.ended && !buffer.bytes[buffer.read..].contains(&b'\n');
        let (mut buffer, _) = changed.wait_timeout_while(buffer.lock().unwrap(), deadline, no_line).unwrap();
        let length = buffer.bytes[buffer.read..].iter().position(|byte| *byte == b'\n')?;
        let line = String::from_utf8_lossy(&buffer.bytes[buffer.read..buffer.read + length]).into_owned();
        buffer.read += length + 1;
        Some(line)
    }

    /// Waits for `text` in the output that the test has not read yet, and returns that output up to the end of `text`.
    /// None if the deadline or the end of the output comes first.
    pub(super) fn up_to(&self, text: &str, deadline: Duration) -> Option<String> {
        let find = |buffer: &Buffer| {
            let rest = &buffer.bytes[buffer.read..];
            let mut windows = rest.windows(text.len());
            windows.position(|window| window == text.as_bytes())
        };
        let (buffer, changed) = &*self.0;
        let (mut buffer, _) = changed
            .wait_timeout_while(buffer.lock().unwrap(), deadline, |buffer| !buffer.ended && find(buffer).is_none())
            .unwrap();
        let end = buffer.read + find(&buffer)? + text.len();
        let found = String::from_utf8_lossy(&buffer.bytes[buffer.read..end]).into_owned();
        buffer.read = end;
        Some(found)
    }

    fn ends(&self, deadline: Duration) -> bool {
        let (buffer, changed) = &*self.0;
        let guard = changed.wait_timeout_while(buffer.lock().unwrap(), deadline, |buffer| !buffer.ended).unwrap().0;
        guard.ended
    }

    fn rest(&self) -> String {
        let mut buffer = self.0.0.lock().unwrap();
        let rest = String::from_utf8_lossy(&buffer.bytes[buffer.read..]).into_owned();
        buffer.read = buffer.bytes.len();
        rest
    }

    pub(super) fn all(&self) -> String {
        String::from_utf8_lossy(&self.0.0.lock().unwrap().bytes).into_owned()
    }
}
