//! `make demo` prints only one message on standard error, even if the log files that it waits for appear late.

use crate::support::{Directory, SOON, Test, any};
use std::os::unix::fs::symlink;

/// Fails on its first call for each log, as if the log appeared late.
const GREP: &str = "#!/bin/sh
for file; do :; done
case $file in *.log) mkdir \"$0-$file\" 2>/dev/null && cd \"$0-$file\" ;; esac
PATH=/usr/bin:/bin exec grep \"$@\"
";

#[test]
fn the_demo_shows_what_it_says() {
    let directory = Directory::new();
    symlink(env!("CARGO_BIN_EXE_redlock"), directory.path().join("redlock")).unwrap();
    directory.program("grep", GREP);
    let demo = Test::of("bash").arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/demo.sh"));
    demo.arg(directory.path().join("redlock")).stdout(any()).within(SOON * 6).run();
}
