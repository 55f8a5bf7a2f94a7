//! What the searches of all models have come to, beside each other: `make model`.

use std::collections::BTreeMap;
use std::fmt::{self, Debug, Display, Formatter};
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

/// Names the file where each search leaves a line for the table; without it none does.
const FILE: &str = "TEST_MODELS";

/// How a search has ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ending {
    /// All was searched, and nothing is wrong.
    Clean,
    /// A clause was left out, and its fault was found behind so many steps.
    Fault(usize),
    /// So many steps were searched, and nothing is wrong.
    Depth(usize),
}

/// Notes a search on behalf of the test that has made it.
pub(super) fn note(space: &impl Debug, ending: Ending, states: usize, took: Duration) {
    let Some(file) = std::env::var_os(FILE) else { return };
    let thread = std::thread::current();
    let (end, steps) = match ending {
        Ending::Clean => ("clean", 0),
        Ending::Fault(steps) => ("fault", steps),
        Ending::Depth(steps) => ("depth", steps),
    };
    let fields = [
        thread.name().unwrap_or("?").to_owned(),
        end.to_owned(),
        steps.to_string(),
        states.to_string(),
        took.as_millis().to_string(),
        in_short(&format!("{space:?}")),
    ];
    let mut table = OpenOptions::new().append(true).create(true).open(file).unwrap();
    table.write_all(format!("{}\n", fields.join("\t")).as_bytes()).unwrap();
}

/// Bounds as Debug shows them, without what they do not let happen.
fn in_short(bounds: &str) -> String {
    let inner = bounds.split_once('{').map_or(bounds, |found| found.1.trim_end_matches('}'));
    let (mut fields, mut depth) = (vec![String::new()], 0);
    for c in inner.chars() {
        match c {
            '[' | '(' | '{' => depth += 1,
            ']' | ')' | '}' => depth -= 1,
            ',' if depth == 0 => {
                fields.push(String::new());
                continue;
            }
            _ => {}
        }
        fields.last_mut().unwrap().push(c);
    }
    let fields = fields.iter().map(|field| field.trim().replace(": true", ""));
    let is_said =
        |field: &String| !["0", "false", "Nothing", "[]"].iter().any(|none| field.ends_with(&format!(": {none}")));
    fields.filter(is_said).collect::<Vec<_>>().join(", ")
}

/// What one test has searched: one property.
#[derive(Debug, Default)]
struct Row {
    searches: usize,
    states: usize,
    mutants: usize,
    /// The most steps to a fault.
    steps: usize,
    /// Where a search was not complete: the least steps behind which it was cut off.
    depth: Option<usize>,
    took: Duration,
    /// The largest complete search, and its bounds.
    largest: (usize, String),
}

impl Row {
    fn add(&mut self, fields: &[&str; 5]) {
        let [end, steps, states, took, bounds] = *fields;
        let (steps, states): (usize, usize) = (steps.parse().unwrap(), states.parse().unwrap());
        self.took += Duration::from_millis(took.parse().unwrap());
        if end == "fault" {
            self.mutants += 1;
            self.steps = self.steps.max(steps);
            return;
        }
        self.searches += 1;
        self.states += states;
        if end == "depth" {
            self.depth = Some(self.depth.map_or(steps, |least| least.min(steps)));
        }
        if states > self.largest.0 {
            self.largest = (states, bounds.to_owned());
        }
    }
}

impl Display for Row {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let depth = self.depth.map_or("all".to_owned(), |steps| format!("{steps}"));
        write!(
            f,
            "{:>8} {:>10} {:>10} {:>6} {:>8} {:>6} {:>7.1} s",
            self.searches,
            self.states,
            self.largest.0,
            depth,
            self.mutants,
            self.steps,
            self.took.as_secs_f64()
        )
    }
}

/// Prints the table of the file.
#[test]
#[ignore = "prints what searches before it have noted: make model"]
fn printed() {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    let text = std::fs::read_to_string(std::env::var_os(FILE).expect("make model sets TEST_MODELS")).unwrap();
    for line in text.lines() {
        let [test, fields @ ..] = &line.split('\t').collect::<Vec<&str>>()[..] else { panic!("{line:?}") };
        rows.entry((*test).to_owned()).or_default().add(fields.try_into().unwrap());
    }
    eprintln!(
        "{:>8} {:>10} {:>10} {:>6} {:>8} {:>6} {:>9}  property, and the bounds of its largest search",
        "searches", "states", "largest", "steps", "mutants", "found", "time"
    );
    let mut all = Row::default();
    for (test, row) in &rows {
        eprintln!("{row}  {}", test.trim_start_matches("model::"));
        if row.searches > 0 {
            eprintln!("{:71}{}", "", row.largest.1);
        }
        all.searches += row.searches;
        all.states += row.states;
        all.mutants += row.mutants;
        all.steps = all.steps.max(row.steps);
        all.took += row.took;
        all.largest.0 = all.largest.0.max(row.largest.0);
    }
    eprintln!("{all}  in all (steps: all, or how deep; found: the most steps to the fault of a mutant)");
}

#[test]
fn bounds_are_told_without_what_they_do_not_let_happen() {
    let bounds = "Bounds { nodes: 3, claims: [Slots(2), Shared], ttl: [0, 1], restarts: 0, forgets: true, force: false, without: Nothing }";
    assert_eq!(in_short(bounds), "nodes: 3, claims: [Slots(2), Shared], ttl: [0, 1], forgets");
}
