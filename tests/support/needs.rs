//! The programs that tests need. `NEEDS` of the Makefile has the package of each; tests install nothing.

use std::io::{Error, ErrorKind};
use std::process::Command;

const MAKEFILE: &str = include_str!("../../Makefile");

/// Fails the test because this command could not be started, and names the package that has it, if any.
#[track_caller]
pub(crate) fn cannot_start(command: &Command, error: &Error) -> ! {
    match package(&command.get_program().to_string_lossy()) {
        Some(line) if error.kind() == ErrorKind::NotFound => panic!("{line}"),
        _ => panic!("{command:?}: {error}"),
    }
}

/// Fails the test unless the file exists: below a directory of PATH if `file` is a name.
#[track_caller]
pub(crate) fn needs(file: &str) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let exists = std::env::split_paths(&path).any(|directory| directory.join(file).exists());
    assert!(exists, "{}", package(file).unwrap_or(format!("the tests need {file}")));
}

fn package(file: &str) -> Option<String> {
    let package = MAKEFILE.split_whitespace().find_map(|need| need.strip_prefix(file)?.strip_prefix(':'))?;
    Some(format!("the tests need {file}: apt-get install {package}"))
}

#[test]
fn what_is_missing_is_named_with_the_line_that_installs_it() {
    assert_eq!(package("zsh").as_deref(), Some("the tests need zsh: apt-get install zsh"));
    assert_eq!(package("redis-cli").as_deref(), Some("the tests need redis-cli: apt-get install redis-tools"));
    assert_eq!(package("no-such-program"), None);
}
