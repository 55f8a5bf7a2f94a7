//! Compiles the C files of the tests when a test needs them.

use super::Directory;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles this source into a file with this name; returns the file's path.
pub(crate) fn compiled(name: &str, source: &str, options: &[&str]) -> PathBuf {
    let (directory, build) = (Path::new(env!("CARGO_TARGET_TMPDIR")), Directory::new());
    let file = build.path().join("source.c");
    let (built, target) = (directory.join(format!("{name}-{}", std::process::id())), directory.join(name));
    std::fs::write(&file, source).unwrap();
    let done =
        Command::new("cc").args(["-O1", "-Wall", "-Werror"]).args(options).arg("-o").arg(&built).arg(&file).status();
    assert!(done.is_ok_and(|status| status.success()), "the tests need a C compiler, as Rust itself does");
    // Another process may be using an older file with this name. A rename does not change the older file.
    std::fs::rename(&built, &target).unwrap();
    target
}
