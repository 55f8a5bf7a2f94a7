//! Passwords and certificates in files, which may be replaced while a job runs.

use crate::text::reason;
use std::cell::RefCell;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// In bytes: the path may be a device.
const LONGEST: u64 = 1 << 20;

/// What is made of some files: anew for each connection.
pub(crate) struct Rotated<T> {
    files: Vec<PathBuf>,
    make: Box<dyn Fn() -> Result<T, String>>,
    last: RefCell<T>,
}

impl<T: Clone> Rotated<T> {
    /// Calls `make`, which reads these files.
    ///
    /// # Errors
    /// Those of `make`.
    pub(crate) fn new(
        files: Vec<PathBuf>,
        make: impl Fn() -> Result<T, String> + 'static,
    ) -> Result<Rotated<T>, String> {
        Ok(Rotated { last: RefCell::new(make()?), make: Box::new(make), files })
    }

    /// Made of what the files hold now. Where that cannot be used, it is what was made last: a file may be half written, a
    /// certificate be new and its key not yet; and a pipe can be read only once.
    pub(super) fn get(&self) -> T {
        if self.files.iter().all(|file| file.is_file())
            && let Ok(made) = (self.make)()
        {
            self.last.replace(made);
        }
        self.last.borrow().clone()
    }
}

/// What the file holds.
///
/// # Errors
/// Why it cannot be read.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    read.map_err(|error| reason(&error))?;
    if bytes.len() as u64 == LONGEST { Err("too long".to_owned()) } else { Ok(bytes) }
}
