//! The default label of a job: the name of its script or command. Other users see it, so no argument is shown: it may hold a secret.

use crate::cli::values::LONGEST_LABEL;
use std::ffi::{OsStr, OsString};
use std::path::Path;

const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];

/// The base name of the command, or of what `env` or a shell is told to start.
pub(crate) fn of(command: &[OsString]) -> String {
    let name = base_name(&innermost(command));
    // A letter has 4 bytes at most.
    name.chars().take(LONGEST_LABEL / 4).map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

/// The file behind `env X=1`, `sh -eu` or `bash -c`; the command itself where it cannot be told.
fn innermost(command: &[OsString]) -> OsString {
    let [first, arguments @ ..] = command else { return OsString::new() };
    let inner = match base_name(first).as_str() {
        "env" => behind_variables(arguments).map(innermost),
        name if SHELLS.contains(&name) => of_shell(arguments),
        _ => None,
    };
    inner.unwrap_or_else(|| first.clone())
}

fn base_name(path: &OsStr) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The command that `env` starts, unless an option stands before it.
fn behind_variables(arguments: &[OsString]) -> Option<&[OsString]> {
    let at = arguments.iter().position(|word| !word.as_encoded_bytes().contains(&b'='))?;
    let command = &arguments[at..];
    (!command[0].as_encoded_bytes().starts_with(b"-")).then_some(command)
}

/// The script of a shell, or the first command of its `-c`.
fn of_shell(arguments: &[OsString]) -> Option<OsString> {
    let (mut rest, mut is_line) = (arguments, false);
    loop {
        let (first, others) = rest.split_first()?;
        let option = first.to_str().filter(|word| word.starts_with(['-', '+']));
        rest = match option {
            None if is_line => return first_of_line(first.to_str()?),
            None => return Some(first.clone()),
            Some("--" | "--login" | "--posix" | "--norc" | "--noprofile") => others,
            Some(long) if long.starts_with("--") => return None,
            // The script comes from standard input.
            Some(letters) if letters.contains('s') => return None,
            Some(letters) => {
                is_line |= letters.contains('c');
                if letters.ends_with(['o', 'O']) { others.get(1..)? } else { others }
            }
        };
    }
}

/// The first command of a shell line. Where quotes and the like stand before it, its begin would have to be guessed.
fn first_of_line(line: &str) -> Option<OsString> {
    let before: Vec<&str> = line.split_whitespace().take_while(|word| word.contains('=')).collect();
    let first = line.split_whitespace().nth(before.len())?;
    let is_plain = before.iter().all(|word| !word.contains(['\'', '"', '\\', '$', '`', '(']));
    is_plain.then(|| first.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(words: &[&str]) -> String {
        of(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn it_is_the_name_of_the_script_or_the_command() {
        for (line, expected) in [
            ("/usr/bin/pg_dump --password=secret", "pg_dump"),
            ("sh job.sh", "job.sh"),
            ("/bin/bash -eu -o pipefail /opt/nightly.sh secret", "nightly.sh"),
            ("bash -eo pipefail -- job.sh", "job.sh"),
            ("bash --login job.sh", "job.sh"),
            ("env X=secret job", "job"),
            ("env X=1 bash -e job.sh", "job.sh"),
            // Not known, or nothing.
            ("sh", "sh"),
            ("sh -s secret", "sh"),
            ("bash --rcfile secret job.sh", "bash"),
            ("env", "env"),
            ("env -S secret", "env"),
            ("env -i -u HOME X=secret /opt/job x", "env"),
            ("env X=secret", "env"),
            ("nice job", "nice"),
        ] {
            assert_eq!(label(&line.split(' ').collect::<Vec<_>>()), expected, "{line}");
        }
        assert_eq!(label(&["ü".repeat(200).as_str()]), "ü".repeat(64));
        assert_eq!(label(&["a\u{1b}b"]), "a?b");
    }

    #[test]
    fn of_a_shell_line_it_is_the_first_command() {
        for (line, expected) in [
            (" /bin/mysql -psecret | wc", "mysql"),
            ("A=1 PASSWORD=secret /opt/job x", "job"),
            // A word of the secret would look like the command.
            ("PASSWORD='se cret' job", "sh"),
            ("PASSWORD='my PASS word' job", "sh"),
            ("PASSWORD=$(cat se cret) job", "sh"),
            ("PASSWORD=secret", "sh"),
            ("", "sh"),
        ] {
            assert_eq!(label(&["/bin/sh", "-c", line]), expected, "{line}");
            assert_eq!(label(&["env", "X=1", "sh", "-ec", line, "secret"]), expected, "{line}");
        }
    }
}
