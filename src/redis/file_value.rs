//! Passwords and certificates in files, which may be replaced while a job runs.

use crate::sys::{files, host};
use crate::text::reason;
use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};

/// The reason why a value, or its file, cannot be used.
#[derive(Debug)]
pub(crate) struct Unusable {
    pub(crate) why: String,
    pub(crate) cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The value, or its file, is wrong.
    Wrong,
    /// The system is to blame, and not the caller: a shortage, a faulty disk.
    System,
    /// This user has no right to use it, or another user could interfere.
    Refused,
}

impl Unusable {
    pub(crate) fn of(error: &io::Error) -> Unusable {
        let why = host::shortage(error).map_or_else(|| reason(error), str::to_owned);
        Unusable { why, cause: if host::is_of_path(error) { Cause::Wrong } else { Cause::System } }
    }

    /// Puts the reason into a longer sentence, which `words` makes.
    pub(crate) fn within(self, words: impl FnOnce(String) -> String) -> Unusable {
        Unusable { why: words(self.why), ..self }
    }
}

impl<W: Into<String>> From<W> for Unusable {
    fn from(why: W) -> Unusable {
        Unusable { why: why.into(), cause: Cause::Wrong }
    }
}

/// A value that is read from its files again for each connection. Without files, or if one of them is not a regular
/// file, the value stays the same.
pub(crate) struct FileValue<T> {
    files: Vec<PathBuf>,
    make: Box<dyn Fn() -> Result<T, Unusable>>,
    last: RefCell<T>,
}

impl<T: Clone> FileValue<T> {
    /// The value that `make` reads from these files, or its error.
    pub(crate) fn new(
        files: Vec<PathBuf>,
        make: impl Fn() -> Result<T, Unusable> + 'static,
    ) -> Result<FileValue<T>, Unusable> {
        Ok(FileValue { last: RefCell::new(make()?), make: Box::new(make), files })
    }

    /// The value in the files now. If the files are unusable, the last good value is returned: a file may be half
    /// written, say, or a certificate may be newer than its key.
    pub(super) fn get(&self) -> T {
        if are_regular(&self.files)
            && let Ok(made) = (self.make)()
        {
            self.last.replace(made);
        }
        self.last.borrow().clone()
    }
}

/// A pipe cannot be read again.
fn are_regular(files: &[PathBuf]) -> bool {
    !files.is_empty() && files.iter().all(|file| file.is_file())
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Unusable> {
    files::read(path).map_err(|error| Unusable::of(&error))
}
