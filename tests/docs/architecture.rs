//! Checks ARCHITECTURE.md and tests/README.md. All files, functions, types, constants, tests and mutants that the two
//! pages name must exist. Numbers in front of names must be those of the code: with "400 ms
//! (`lock/queue.rs::FIRST_LOOKS`)" in ARCHITECTURE.md, `FIRST_LOOKS` must be 400 ms.

use regex_lite::Regex;
use std::fs;
use std::path::{Path, PathBuf};

/// A regular expression for the path of a file or folder.
const PATH: &str = r"[\w/-]+(?:\.rs|\.lua|\.man|\.conf|\.sh|\.c|/)";
const OF_ARCHITECTURE: [&str; 3] = ["src", "", "src/lock/scripts"];

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
        let is_there =
            path.is_some_and(|path| found.get(2).is_none_or(|name| definition(&read(path), name.as_str()).is_some()));
        if !is_there {
            missing.push(found[0].to_owned());
        }
    }
    assert!(missing.is_empty(), "{page} names what is not there: {}", missing.join(", "));
}

/// The number of clauses of a model: the number of variants of its `enum Without`, apart from `Nothing`.
fn clauses(definition: &str) -> usize {
    let body = &definition[..definition.find("\n}").unwrap()];
    Regex::new(r"(?m)^    \w+,$").unwrap().find_iter(body).filter(|clause| clause.as_str() != "    Nothing,").count()
}

/// True if the definition has this number: as the number of clauses of an enum, or as the value of a constant. If
/// `unit` is a unit of time, the definition may have the time in another unit.
fn has(definition: &str, number: &str, unit: &str) -> bool {
    if definition.starts_with("enum") {
        return clauses(definition).to_string() == number;
    }
    let line = definition.lines().next().unwrap().replace('_', "");
    let times = [("ms", 1), ("s", 1000), ("min", 60_000), ("days", 86_400_000)];
    let same = match times.iter().find(|(known, _)| *known == unit) {
        Some((_, ms)) => {
            let ms = number.parse::<u64>().unwrap() * ms;
            format!(r"\b{ms}\b|secs\({}\)", ms / 1000)
        }
        None => format!(r"\b{number}\b"),
    };
    Regex::new(&same).unwrap().is_match(&line)
}

#[test]
fn numbers_in_the_architecture_are_those_of_the_code() {
    let page = read("ARCHITECTURE.md").split_whitespace().collect::<Vec<_>>().join(" ");
    let figure = Regex::new(&format!(r"[ (](\d+)(?: (\S+))? \(`({PATH})::(\w+)`\)")).unwrap();
    let mut figures = 0;
    for found in figure.captures_iter(&page) {
        let text = read(find(&found[3], &OF_ARCHITECTURE).unwrap());
        let unit = found.get(2).map_or("", |unit| unit.as_str());
        assert!(has(definition(&text, &found[4]).unwrap(), &found[1], unit), "{}", &found[0]);
        figures += 1;
    }
    assert!(figures > 10, "{figures} are read");
}

/// For example, "two holders, 5 (`Quarantine`)" means: a search of the model without the clause `Quarantine` finds two
/// holders after 5 steps. The test looks for the clause and the number in the tests of the models.
#[test]
fn the_models_find_the_faults_of_the_architecture_after_as_many_steps() {
    let models = ["mod.rs", "line/mod.rs", "queue/mod.rs", "queue/claims.rs", "queue/newest.rs"];
    let models: String = models.iter().map(|file| read(format!("tests/model/{file}"))).collect();
    let page = read("ARCHITECTURE.md");
    let (mut faults, found) = (0, Regex::new(r"(\d+) \(`(\w+)`\)").unwrap());
    for found in found.captures_iter(&page) {
        let search = format!(r"Without::{}\b[^;]*\b{}\);", &found[2], &found[1]);
        assert!(Regex::new(&search).unwrap().is_match(&models), "{}", &found[0]);
        faults += 1;
    }
    assert!(faults > 10, "{faults} are read");
}

/// The files below this folder, those in its folders included.
fn files(folder: &Path) -> Vec<PathBuf> {
    let each = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    each.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The number of lines of code in a file of Rust or Lua, without the file's unit tests.
fn lines_of_code(path: &Path) -> usize {
    let text = fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with("//") && !line.starts_with("--");
    code.lines().map(str::trim).filter(is_code).count()
}

/// The ledger is the table of costs. A row counts the lines of all files below the paths of the row. A file below the
/// paths of several rows counts in the row with the longest path. The number of a row may be off by a tenth.
#[test]
fn each_mechanism_costs_what_the_ledger_says() {
    let page = read("ARCHITECTURE.md");
    let ledger = page.split("## What each costs").nth(1).unwrap().split("\n## ").next().unwrap();
    let (row, path) = (Regex::new(r"(?m)^\| (.*) \| (\d+) \|").unwrap(), Regex::new("`([^`]+)`").unwrap());
    let mut rows: Vec<(Vec<PathBuf>, usize, usize)> = Vec::new();
    for found in row.captures_iter(ledger) {
        let paths = path.captures_iter(&found[1]).map(|path| find(&path[1], &OF_ARCHITECTURE).unwrap());
        rows.push((paths.collect(), found[2].parse().unwrap(), 0));
    }
    for file in files(&root().join("src")) {
        let longest = |(paths, ..): &(Vec<PathBuf>, usize, usize)| {
            paths.iter().filter(|path| file.starts_with(path)).map(|path| path.components().count()).max()
        };
        let row = rows.iter_mut().max_by_key(|row| longest(row)).filter(|row| longest(row).is_some());
        row.unwrap_or_else(|| panic!("no row of the ledger has {}", file.display())).2 += lines_of_code(&file);
    }
    let is_off = |told: usize, counted: usize| told.abs_diff(counted) * 10 > counted;
    let wrong: Vec<String> = rows
        .iter()
        .filter(|(_, told, counted)| is_off(*told, *counted))
        .map(|(paths, told, counted)| format!("{}: {counted} lines, not {told}", paths[0].display()))
        .collect();
    assert!(wrong.is_empty(), "the ledger of ARCHITECTURE.md:\n{}", wrong.join("\n"));
}

#[test]
fn every_file_that_knows_claims_is_named_where_a_claim_goes() {
    let page = read("ARCHITECTURE.md");
    let row = page.split("* **A claim**").nth(1).unwrap().split("\n* **").next().unwrap();
    let knows = Regex::new(r"Claim::|'shared'|'\^\(?slots:").unwrap();
    for path in files(&root().join("src")).iter().filter(|path| knows.is_match(&read(path))) {
        let name = path.strip_prefix(root().join("src")).unwrap().to_str().unwrap();
        let name = name.strip_prefix("lock/scripts/").unwrap_or(name);
        assert!(row.contains(name), "the row of a claim does not name {name}");
    }
}

#[test]
fn the_architecture_is_read_in_one_sitting() {
    let page = read("ARCHITECTURE.md");
    assert!(page.lines().count() <= 350, "{} lines", page.lines().count());
    let wide = page.lines().find(|line| line.chars().count() > 120);
    assert!(wide.is_none(), "{wide:?}");
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
