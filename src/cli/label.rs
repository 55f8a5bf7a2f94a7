//! The default label of a job: the name of its script or command, without arguments, because other users see the label,
//! and arguments may hold secrets.

use crate::cli::values::LONGEST_LABEL;
use std::ffi::{OsStr, OsString};
use std::path::Path;

const SHELLS: [&str; 6] = ["sh", "bash", "dash", "ash", "ksh", "zsh"];

/// The base name of the command; for a shell, the base name of the script, or of the first word of the `-c` line.
pub(crate) fn of(command: &[OsString]) -> String {
    let [first, arguments @ ..] = command else { return String::new() };
    let command = base_name(first);
    let name = if SHELLS.contains(&command.as_str()) { of_shell(arguments) } else { None }.unwrap_or(command);
    // The limit is in bytes, and a letter has at most 4 bytes.
    name.chars().take(LONGEST_LABEL / 4).map(|letter| if letter.is_control() { '?' } else { letter }).collect()
}

fn base_name(path: &OsStr) -> String {
    Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The script of a shell, or the first word of its `-c` line. None if an option may take a value (`-o`), if the shell
/// reads the script from standard input (`-s`), or if the line begins with an assignment, which may be a secret.
fn of_shell(arguments: &[OsString]) -> Option<String> {
    let is_option = |word: &&OsString| word.as_encoded_bytes().starts_with(b"-");
    let options = arguments.iter().take_while(is_option).count();
    let (options, rest) = arguments.split_at(options);
    let has = |letter: char| options.iter().any(|option| option.to_string_lossy().contains(letter));
    let first = rest.first().filter(|_| !has('o') && !has('s'))?;
    match has('c') {
        true => first
            .to_str()?
            .split_whitespace()
            .next()
            .filter(|word| !word.contains('='))
            .map(|word| base_name(word.as_ref())),
        false => Some(base_name(first)),
    }
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
            ("/bin/bash -eu /opt/nightly.sh secret", "nightly.sh"),
            ("env X=secret job", "env"),
            ("nice job", "nice"),
            // The shell has no script, or its options do not show which word is the script.
            ("sh", "sh"),
            ("sh -s secret", "sh"),
            ("bash -eo pipefail job.sh", "bash"),
            ("bash --norc secret job.sh", "bash"),
        ] {
            assert_eq!(label(&line.split(' ').collect::<Vec<_>>()), expected, "{line}");
        }
        assert_eq!(label(&["ü".repeat(200).as_str()]), "ü".repeat(64));
        assert_eq!(label(&["a\u{1b}b"]), "a?b");
    }

    #[test]
    fn of_a_shell_line_it_is_the_first_word() {
        for (line, expected) in [
            (" /bin/mysql -psecret | wc", "mysql"),
            ("cd /srv && ./job", "cd"),
            ("PASSWORD=secret job", "sh"),
            ("PASSWORD='se cret' job", "sh"),
            ("", "sh"),
        ] {
            assert_eq!(label(&["/bin/sh", "-c", line]), expected, "{line}");
            assert_eq!(label(&["sh", "-e", "-c", line, "secret"]), expected, "{line}");
        }
    }
}
