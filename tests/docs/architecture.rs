//! ARCHITECTURE.md names files, functions, types and constants. All of them are there.

use regex_lite::Regex;
use std::fs;
use std::path::Path;

#[test]
fn names_in_the_architecture_are_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let span = Regex::new(r"`([\w/-]+(?:\.rs|\.lua|\.man|/))(?:::(?:\w+::)*(\w+))?`").unwrap();
    let mut missing = Vec::new();
    for found in span.captures_iter(&page) {
        let paths = ["src", "", "src/lock/scripts"].map(|folder| root.join(folder).join(&found[1]));
        let Some(path) = paths.iter().find(|path| path.exists()) else {
            missing.push(found[0].to_owned());
            continue;
        };
        let Some(name) = found.get(2) else { continue };
        let definition = format!(r"\b(fn|struct|enum|trait|type|const|static|function) {}\b", name.as_str());
        if !Regex::new(&definition).unwrap().is_match(&fs::read_to_string(path).unwrap()) {
            missing.push(found[0].to_owned());
        }
    }
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there: {}", missing.join(", "));
}
