//! A terminal with an interactive shell, as a person would have. A test types keys, and waits until the screen shows a
//! text.

use super::running::Output;
use super::{Directory, SOON, Test, Where, cannot_start, send, tagged};
use nix::errno::Errno;
use nix::libc;
use nix::pty::openpty;
use nix::sys::signal::Signal;
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::tcgetpgrp;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::Child;
use std::sync::Arc;

/// No line that a test types contains this text.
const PROMPT: &str = "%% ";

/// A terminal and its shell. Dropping it kills the shell and all processes that the shell started.
#[derive(Debug)]
pub(crate) struct Terminal {
    test: Test,
    shell: Child,
    keys: File,
    screen: Output,
}

impl Terminal {
    /// bash without a line editor, which finds redlock in PATH, and the servers in its environment.
    #[track_caller]
    pub(crate) fn bash<W: Where + ?Sized>(servers: &W) -> Terminal {
        let arguments = ["--norc", "--noprofile", "--noediting", "-i"];
        Terminal::start(Test::program(servers, "bash").args(arguments))
    }

    /// The system's own shell.
    #[track_caller]
    pub(crate) fn sh<W: Where + ?Sized>(servers: &W) -> Terminal {
        Terminal::start(Test::program(servers, "/bin/sh").arg("-i"))
    }

    /// A shell with a line editor: bash, zsh or fish. It does not read the user's configuration.
    #[track_caller]
    pub(crate) fn editing<W: Where + ?Sized>(servers: &W, shell: &str) -> Terminal {
        let prompt = format!("function fish_prompt; echo -n '{PROMPT}'; end");
        let arguments: &[&str] = match shell {
            "bash" => &["--norc", "--noprofile", "-i"],
            // The last option keeps a % in the prompt as it is.
            "zsh" => &["-f", "-i", "+o", "prompt_percent"],
            _ => &["--no-config", "-i", "-C", &prompt],
        };
        Terminal::start(Test::program(servers, shell).args(arguments))
    }

    #[track_caller]
    fn start(test: Test) -> Terminal {
        let test = test.leads_session().env("PS1", PROMPT).env("TERM", "vt100").env("ENV", "");
        let pair = openpty(None, None).unwrap();
        let mut command = test.command();
        command.stdin(pair.slave.try_clone().unwrap()).stdout(pair.slave.try_clone().unwrap()).stderr(pair.slave);
        let shell = command.spawn().unwrap_or_else(|error| cannot_start(&command, &error));
        // `command` keeps the terminal's slave side open, and until that is closed, the output does not end.
        drop(command);
        let keys = File::from(pair.master);
        let terminal = Terminal { screen: Output::new(Some(keys.try_clone().unwrap())), test, shell, keys };
        terminal.shows(PROMPT);
        terminal
    }

    /// Resizes the terminal, as if a person had dragged the window's corner.
    pub(crate) fn resize(&self, rows: u16, columns: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: TIOCSWINSZ reads one winsize.
        Errno::result(unsafe { libc::ioctl(self.keys.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) }).unwrap();
    }

    pub(crate) fn types(&self, keys: &str) {
        (&self.keys).write_all(keys.as_bytes()).unwrap();
    }

    pub(crate) fn enters(&self, line: &str) {
        self.types(&format!("{line}\n"));
    }

    /// Waits until `text` comes, and returns the output up to its end that the test has not read yet.
    #[track_caller]
    pub(crate) fn shows(&self, text: &str) -> String {
        match self.screen.up_to(text, SOON) {
            Some(shown) => shown,
            None => panic!("the terminal does not show {text:?}, but {:?}", self.all()),
        }
    }

    /// Waits for the shell's prompt, at which `shell_has_the_terminal` must be true. Returns the output up to the
    /// prompt.
    #[track_caller]
    pub(crate) fn prompts(&self) -> String {
        let shown = self.shows(PROMPT);
        assert!(self.shell_has_the_terminal(), "the shell prompts, but has no terminal: {}", self.all());
        shown
    }

    /// The status of the last command, as the shell reports it. The shell must be at its prompt.
    #[track_caller]
    pub(crate) fn status(&self) -> i32 {
        self.enters("echo status=$?.");
        self.shows("status=$?.");
        self.shows("status=");
        let status = self.shows(".");
        self.prompts();
        status.trim_end_matches('.').parse().unwrap()
    }

    /// True if the terminal's keys go to the shell, and the terminal is in its usual mode: it waits for whole lines,
    /// echoes keys, and turns Ctrl-C into a signal.
    pub(crate) fn shell_has_the_terminal(&self) -> bool {
        let flags = tcgetattr(&self.keys).unwrap().local_flags;
        self.foreground() == self.shell.id() && flags.contains(LocalFlags::ICANON | LocalFlags::ECHO | LocalFlags::ISIG)
    }

    /// The process group that the terminal's keys go to.
    pub(crate) fn foreground(&self) -> u32 {
        tcgetpgrp(&self.keys).unwrap().as_raw().cast_unsigned()
    }

    /// The shell's home directory, in which it starts.
    pub(crate) fn directory(&self) -> Arc<Directory> {
        self.test.directory()
    }

    pub(crate) fn all(&self) -> String {
        self.screen.all()
    }

    /// All live processes that the shell and its descendants have started, orphans included.
    pub(crate) fn others(&self) -> Vec<u32> {
        let mut pids = tagged(self.test.tag());
        pids.retain(|pid| *pid != self.shell.id());
        pids
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
        for pid in tagged(self.test.tag()) {
            send(pid, Signal::SIGKILL);
        }
    }
}
