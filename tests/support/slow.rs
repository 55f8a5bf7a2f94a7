//! A program that starts as late as a test wants, like a program on a slow network file system.

use super::Directory;
use nix::libc;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// A shell script that starts late. The test's process has a lease of the kernel on the script's file (fcntl(2)), so
/// exec(2) waits until the test gives up the lease, for at most 45 s.
#[derive(Debug)]
pub(crate) struct Slow {
    file: File,
    path: PathBuf,
}

impl Slow {
    #[track_caller]
    pub(crate) fn script(directory: &Directory, script: &str) -> Slow {
        let path = directory.program("slow", &format!("#!/bin/sh\n{script}\n"));
        let file = File::open(&path).unwrap();
        let slow = Slow { file, path };
        // The kernel sends a signal when exec asks for the lease; the default one, SIGIO, would end this process.
        assert_eq!(slow.control(F_SETSIG, libc::SIGURG), 0);
        // The kernel refuses the lease while another process has the file open, such as a child that another test has
        // forked, until that child's exec.
        super::eventually(super::SOON, "a lease", || slow.control(libc::F_SETLEASE, libc::F_WRLCK) == 0);
        slow
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Waits until a process tries to execute the script.
    #[track_caller]
    pub(crate) fn is_asked(&self) {
        super::eventually(super::SOON, "exec", || self.control(libc::F_GETLEASE, 0) != libc::F_WRLCK);
    }

    pub(crate) fn let_go(self) {
        assert_eq!(self.control(libc::F_SETLEASE, libc::F_UNLCK), 0);
    }

    fn control(&self, command: i32, argument: i32) -> i32 {
        // SAFETY: these commands take and return a number.
        unsafe { libc::fcntl(self.file.as_raw_fd(), command, argument) }
    }
}

const F_SETSIG: i32 = 10;
