//! Reads keys from the terminal on standard input: each key at once, without waiting for the end of a line.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, read, tcgetpgrp};
use std::io::{Stdin, stdin};
use std::os::fd::{AsFd, BorrowedFd};

/// A terminal that hands over each key at once and does not show it. Ctrl-C and Ctrl-Z still send signals.
#[derive(Debug)]
pub(crate) struct Keyboard {
    stdin: Stdin,
    before: Termios,
}

impl AsFd for Keyboard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stdin.as_fd()
    }
}

impl Keyboard {
    /// Makes the terminal hand over each key. None if standard input is no terminal, or already hands over each key,
    /// because another program then reads the keys.
    pub(crate) fn open() -> Option<Keyboard> {
        let before = tcgetattr(stdin()).ok().filter(|before| before.local_flags.contains(LocalFlags::ICANON))?;
        let keys = Keyboard { stdin: stdin(), before };
        keys.take();
        Some(keys)
    }

    /// A second handle of the same keyboard, for another thread.
    pub(crate) fn handle(&self) -> Keyboard {
        Keyboard { stdin: stdin(), before: self.before.clone() }
    }

    /// Makes the terminal hand over each key. May be called again after [`Keyboard::give_back`].
    pub(crate) fn take(&self) {
        let mut with_keys = self.before.clone();
        with_keys.local_flags -= LocalFlags::ICANON | LocalFlags::ECHO;
        self.set(&with_keys);
    }

    pub(crate) fn give_back(&self) {
        self.set(&self.before);
    }

    /// True if this key has been pressed since the last call. Always false in the background: there, another program
    /// gets the keys.
    pub(crate) fn has(&self, key: u8) -> bool {
        let has_input = || poll(&mut [PollFd::new(self.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO) == Ok(1);
        let mut keys = [0; 64];
        while self.is_foreground() && has_input() {
            match read(self, &mut keys) {
                Ok(0) | Err(_) => return false,
                Ok(count) if keys[..count].contains(&key) => return true,
                Ok(_) => {}
            }
        }
        false
    }

    /// Sets the terminal's attributes, but not from the background, where the terminal belongs to another program,
    /// mostly the shell.
    fn set(&self, attributes: &Termios) {
        if self.is_foreground() {
            let _ = tcsetattr(self, SetArg::TCSANOW, attributes);
        }
    }

    fn is_foreground(&self) -> bool {
        tcgetpgrp(self).is_ok_and(|group| group == getpgrp())
    }
}
