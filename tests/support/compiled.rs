//! Compiles the C files of the tests, and links a static redlock, when a test needs them.

use super::Directory;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// Compiles C into a file with this name, and returns the file's path.
pub(crate) fn compiled(name: &str, source: &str, options: &[&str]) -> PathBuf {
    let (directory, build) = (Path::new(env!("CARGO_TARGET_TMPDIR")), Directory::new());
    let file = build.path().join("source.c");
    let (built, target) = (directory.join(format!("{name}-{}", std::process::id())), directory.join(name));
    std::fs::write(&file, source).unwrap();
    let done =
        Command::new("cc").args(["-O1", "-Wall", "-Werror"]).args(options).arg("-o").arg(&built).arg(&file).status();
    assert!(done.is_ok_and(|status| status.success()), "the tests need a C compiler, as Rust itself does");
    // Another process may be using an older file with this name, which a rename does not change.
    std::fs::rename(&built, &target).unwrap();
    target
}

/// The redlock under test, linked as `make` links it: statically. Only the small main.rs is compiled again.
pub(crate) fn static_binary() -> PathBuf {
    let dependencies = Path::new(env!("CARGO_BIN_EXE_redlock")).with_file_name("deps");
    let files = std::fs::read_dir(&dependencies).unwrap().map(|entry| entry.unwrap().path());
    let is_library = |file: &PathBuf| {
        let name = file.file_name().unwrap().to_string_lossy();
        name.starts_with("libredlock-") && name.ends_with(".rlib")
    };
    let built =
        |file: &PathBuf| std::fs::metadata(file).and_then(|file| file.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let library = files.filter(is_library).max_by_key(built).unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("redlock-static");
    let mut rustc = Command::new(Path::new(env!("CARGO")).with_file_name("rustc"));
    rustc.args(["--edition", "2024", "-C", "target-feature=+crt-static", "-C", "relocation-model=static", "--extern"]);
    rustc.arg(format!("redlock={}", library.display())).arg("-L").arg(dependencies).arg("-o").arg(&target);
    let done = rustc.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/main.rs")).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    target
}
