//! Checks ARCHITECTURE.md and tests/README.md. All files, functions, types, constants, tests and mutants that the two
//! pages name must exist.

use regex_lite::Regex;
use std::fs;
use std::path::{Path, PathBuf};

/// A regular expression for the path of a file or folder.
const PATH: &str = r"[\w/-]+(?:\.rs|\.lua|\.man|\.conf|\.sh|\.c|/)";
const OF_ARCHITECTURE: [&str; 4] = ["src", "", "src/lock/scripts", "src/lock/history"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(root().join(path)).unwrap()
}

/// The file or folder that a page means by `path`: below the first of `folders` that has it. None: no folder has it.
fn find(path: &str, folders: &[&str]) -> Option<PathBuf> {
    folders.iter().map(|folder| root().join(folder).join(path)).find(|path| path.exists())
}

/// The part of the text that begins with the definition of this name. None if the text does not define the name. A
/// definition may define several names, such as `local a, b`.
fn definition<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let names = format!(r"\b(fn|struct|enum|trait|type|const|static|function|local) (\w+, )*{name}\b");
    Regex::new(&names).unwrap().find(text).map(|found| &text[found.start()..])
}

#[track_caller]
fn is_up_to_date(page: &str, folders: &[&str]) {
    let text = read(page);
    let span = Regex::new(&format!(r"`({PATH})(?:::(?:\w+::)*(\w+))?`")).unwrap();
    let mut missing = Vec::new();
    for found in span.captures_iter(&text) {
        let path = find(&found[1], folders);
        let exists =
            path.is_some_and(|path| found.get(2).is_none_or(|name| definition(&read(path), name.as_str()).is_some()));
        if !exists {
            missing.push(found[0].to_owned());
        }
    }
    assert!(missing.is_empty(), "{page} names what is not there: {}", missing.join(", "));
}

#[test]
fn names_in_the_architecture_are_up_to_date() {
    is_up_to_date("ARCHITECTURE.md", &OF_ARCHITECTURE);
}

#[test]
fn names_on_the_page_of_the_tests_are_up_to_date() {
    is_up_to_date("tests/README.md", &["tests", "src", "", "tests/chaos"]);
    let (page, attacks, mutants) = (read("tests/README.md"), read("tests/chaos/mod.rs"), read("tests/mutants.sh"));
    for found in Regex::new(r"`chaos::(\w+)`").unwrap().captures_iter(&page) {
        assert!(attacks.contains(&format!("fn {}(", &found[1])), "{}", &found[0]);
    }
    let named = Regex::new(r"`(\w+(?:-\w+)+)`").unwrap();
    let known = Regex::new(r"(?m)^try ([\w-]+) ").unwrap();
    let named: Vec<&str> = named.captures_iter(&page).map(|found| found.get(1).unwrap().as_str()).collect();
    for found in known.captures_iter(&mutants) {
        assert!(named.contains(&&found[1]), "tests/README.md does not name the mutant {}", &found[1]);
    }
    let unknown = named.iter().find(|name| !mutants.contains(&format!("try {name} ")));
    assert!(unknown.is_none(), "no mutant {unknown:?}");
}
