//! ARCHITECTURE.md and tests/README.md name files, functions, types, constants, tests and mutants. All of them are there.

use regex_lite::Regex;
use std::fs;
use std::path::Path;

#[track_caller]
fn is_up_to_date(page: &str, folders: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join(page)).unwrap();
    let span = Regex::new(r"`([\w/-]+(?:\.rs|\.lua|\.man|\.sh|\.c|/))(?:::(?:\w+::)*(\w+))?`").unwrap();
    let mut missing = Vec::new();
    for found in span.captures_iter(&text) {
        let paths = folders.iter().map(|folder| root.join(folder).join(&found[1]));
        let Some(path) = paths.into_iter().find(|path| path.exists()) else {
            missing.push(found[0].to_owned());
            continue;
        };
        let Some(name) = found.get(2) else { continue };
        let definition = format!(r"\b(fn|struct|enum|trait|type|const|static|function) {}\b", name.as_str());
        if !Regex::new(&definition).unwrap().is_match(&fs::read_to_string(path).unwrap()) {
            missing.push(found[0].to_owned());
        }
    }
    assert!(missing.is_empty(), "{page} names what is not there: {}", missing.join(", "));
}

#[test]
fn names_in_the_architecture_are_up_to_date() {
    is_up_to_date("ARCHITECTURE.md", &["src", "", "src/lock/scripts"]);
}

#[test]
fn names_on_the_page_of_the_tests_are_up_to_date() {
    is_up_to_date("tests/README.md", &["tests", "src", "", "tests/chaos"]);
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    let (page, attacks, mutants) =
        (read("tests/README.md"), read("tests/chaos/mod.rs"), read("tests/chaos/mutants.sh"));
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
