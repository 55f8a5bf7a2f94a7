//! The Lua scripts, embedded. Each file's header names its arguments and answers.
//!
//! A script is a file that includes others where it needs them: a line `-- include a, b`, or, in the first line of a file,
//! `-- needs a`, becomes the text of those files that it does not have yet. keys.lua stands first in all.

use crate::redis::{BareCode, Script};

macro_rules! files {
    ($($name:literal),+) => { &[$(($name, include_str!(concat!("scripts/", $name, ".lua")))),+] };
}

const FILES: &[(&str, &str)] = files!(
    "end", "enter", "extend", "fence", "find", "grant", "holds", "inspect", "keys", "lease", "line", "memory",
    "recreate", "release", "revoke", "runs", "state", "take", "undo"
);

/// More than the longest script has.
const MOST: usize = 64 * 1024;

/// A script, as it is put together from its files by the compiler.
struct Text {
    bytes: [u8; MOST],
    length: usize,
    included: [bool; FILES.len()],
}

impl Text {
    const fn of(name: &str) -> Text {
        let mut text = Text { bytes: [0; MOST], length: 0, included: [false; FILES.len()] };
        text.include(b"keys");
        text.include(name.as_bytes());
        text
    }

    /// Adds the text of this file, unless it is there, with what it includes.
    const fn include(&mut self, name: &[u8]) {
        let mut file = 0;
        while !is_same(FILES[file].0.as_bytes(), name) {
            file += 1;
        }
        if self.included[file] {
            return;
        }
        self.included[file] = true;
        let mut rest = FILES[file].1.as_bytes();
        while !rest.is_empty() {
            let (line, behind) = rest.split_at(end_of_line(rest));
            match named_in(line) {
                Some(names) => self.include_all(names),
                None => self.add(line),
            }
            rest = behind;
        }
    }

    /// The same for each of `a, b` with the end of their line.
    const fn include_all(&mut self, mut names: &[u8]) {
        while !names.is_empty() {
            let mut end = 0;
            while names[end] != b',' && names[end] != b'\n' {
                end += 1;
            }
            self.include(names.split_at(end).0);
            let is_last = names[end] == b'\n';
            names = names.split_at(if is_last { names.len() } else { end + 2 }).1;
        }
    }

    const fn add(&mut self, line: &[u8]) {
        let mut at = 0;
        while at < line.len() {
            self.bytes[self.length] = line[at];
            self.length += 1;
            at += 1;
        }
    }

    const fn as_str(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.length).0) {
            Ok(lua) => lua,
            Err(_) => panic!("whole lines of a text are text"),
        }
    }
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && is_begun_by(one, other)
}

const fn is_begun_by(text: &[u8], beginning: &[u8]) -> bool {
    let mut at = 0;
    while at < beginning.len() {
        if at == text.len() || text[at] != beginning[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The length of the first line, with its end.
const fn end_of_line(text: &[u8]) -> usize {
    let mut at = 0;
    while text[at] != b'\n' {
        at += 1;
    }
    at + 1
}

/// The files that a line includes.
const fn named_in(mut line: &[u8]) -> Option<&[u8]> {
    while line[0] == b' ' {
        line = line.split_at(1).1;
    }
    const WORDS: [&[u8]; 2] = [b"-- include ", b"-- needs "];
    let word = if is_begun_by(line, WORDS[0]) { WORDS[0] } else { WORDS[1] };
    if is_begun_by(line, word) { Some(line.split_at(word.len()).1) } else { None }
}

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: Script = {
            const TEXT: Text = Text::of($file);
            const CODE: BareCode<{ TEXT.length }> = BareCode::of(TEXT.as_str());
            const BODY: &str = CODE.as_str();
            Script::new(BODY)
        };
    };
}

script!(TAKE, "take");
script!(UNDO, "undo");
script!(EXTEND, "extend");
script!(ENTER, "enter");
script!(RECREATE, "recreate");
script!(FENCE, "fence");
script!(RELEASE, "release");
script!(REVOKE, "revoke");
script!(FIND, "find");
script!(HOLDS, "holds");
script!(INSPECT, "inspect");
script!(RUNS, "runs");

#[cfg(test)]
mod tests {
    use super::*;

    /// How much of what is sent over a connection is read when it is closed: a TAKE and what undoes it twice, the second time by
    /// name.
    #[test]
    fn what_undoes_a_take_is_read_with_it_though_its_sender_has_gone() {
        let bytes = |key: usize| {
            let (part, arguments) = (20, 2_000); // a waiter with its name, three times
            let tokens = 3 * (8 * 34 + 10); // of tries that no node has confirmed to have undone
            UNDO.body.len() + 3 * 9 * (key + part) + arguments + tokens
        };
        // With a name of more than 256 bytes, or a TAKE in full (the first since the server knows no scripts), a lease may
        // be left until it runs out, if the server stands still at the same time.
        let bytes = bytes("redlock:".len() + 256);
        assert!(bytes < 16 * 1024, "{bytes}");
    }
}
