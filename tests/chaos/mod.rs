//! Chaos: contenders use locks while servers, connections and processes fail in every manner that README promises to
//! survive. Each section notices any overlap. `make chaos MINUTES= SEED= SERVERS=` makes such attacks for longer;
//! tests/README.md says what they show.
//!
//! An attack has fresh servers, and a plan of faults and contenders' choices that follow from its seed. Afterwards
//! nothing fails any more: every lock must come free, hand-overs must be quick, and nothing may be left.

mod after;
mod call;
mod contender;
mod field;
mod figures;
mod history;
mod memory;
mod rival;
mod shown;

use crate::support::{Chance, compiled, has_module, ms, rand};
use contender::{Arena, Contender, Results};
use field::{Fault, Field, PATHS, SHORTEST, Servers, Undo};
use figures::Figures;
use history::{Line, judge};
use rival::{Imitation, REDIS_PY, RedisPy};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicUsize;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How many contenders make calls of all kinds. The contender with the next number holds a lock for long, and must use
/// the first way to the servers: the one with outages. A contender's way is its number modulo PATHS, so this is a
/// multiple of PATHS.
const CONTENDERS: usize = 5 * PATHS;
/// How long an attack of `make test` lasts. The checks after it take some 8 s more.
const SHORT: Duration = Duration::from_secs(12);
/// How long an attack of `make chaos` lasts at most; then another begins on fresh servers.
const ROUND: Duration = Duration::from_secs(90);

#[test]
fn on_one_redis() {
    attack_once(Servers::One);
}

#[test]
fn on_three_masters() {
    attack_once(Servers::Three);
}

#[test]
fn on_five_masters() {
    attack_once(Servers::Five);
}

#[test]
fn on_a_sentinel_service() {
    attack_once(Servers::Sentinel);
}

#[test]
fn on_a_cluster() {
    attack_once(Servers::Cluster);
}

#[test]
fn on_a_server_of_this_machine() {
    attack_once(Servers::Local);
}

#[track_caller]
fn attack_once(servers: Servers) {
    attack(servers, any_seed(), SHORT);
}

fn any_seed() -> u64 {
    rand(1_000_000_000)
}

#[test]
fn every_mutant_still_changes_something_and_is_attacked_by_a_test() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mutants.sh");
    let checked = Command::new(script).arg("--check").output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let listed = Command::new(std::env::current_exe().unwrap()).arg("--list").output().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    for named in String::from_utf8(checked.stdout).unwrap().lines() {
        assert!(listed.lines().any(|test| test.starts_with(named)), "{named}");
    }
}

/// `make chaos`.
#[test]
#[ignore = "takes as long as MINUTES says: make chaos"]
fn as_long_as_asked() {
    let setting = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let minutes: f64 = setting("MINUTES").map_or(6.0, |text| text.parse().unwrap());
    let mut seed: u64 = setting("SEED").map_or_else(any_seed, |text| text.parse().unwrap());
    let chosen: Vec<Servers> = match setting("SERVERS") {
        Some(names) => names.split(',').map(|name| name.parse().unwrap()).collect(),
        None => Servers::ALL.iter().map(|one| one.1).collect(),
    };
    let (start, all) = (Instant::now(), Duration::from_secs_f64(minutes * 60.0));
    let length = (all / u32::try_from(chosen.len()).unwrap()).min(ROUND);
    let (mut sums, mut failed) = (Figures::default(), Vec::new());
    for servers in chosen.iter().cycle() {
        if start.elapsed() >= all {
            break;
        }
        // A failed attack has reported why; the next ones may find more.
        match std::panic::catch_unwind(|| attack(*servers, seed, length)) {
            Ok(figures) => sums.add(&figures),
            Err(_) => failed.push((*servers, seed)),
        }
        seed = Chance::new(seed).below(1_000_000_000);
    }
    eprintln!("in all: {sums}");
    assert!(failed.is_empty(), "these attacks failed: {failed:?}");
}

/// The servers and the files of an attack, and a tag by which its processes are found.
struct Place {
    arena: Arena,
    tag: String,
    field: Field,
}

impl Place {
    fn new(servers: Servers, seed: u64) -> (Place, Chance) {
        let chance = Chance::new(seed);
        let field = Field::new(servers, &mut chance.of(1));
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("chaos-{servers:?}-{seed}"));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).unwrap();
        let arena = Arena {
            directory,
            section: section(),
            until: Instant::now(),
            calls: AtomicUsize::new(0),
            results: Mutex::new(Results::default()),
        };
        (Place { arena, tag: uuid::Uuid::new_v4().to_string(), field }, chance)
    }

    fn environment(&self, contender: usize) -> BTreeMap<&'static str, String> {
        let binaries = Path::new(env!("CARGO_BIN_EXE_redlock")).parent().unwrap().display();
        let path = format!("{binaries}:{}", std::env::var("PATH").unwrap_or_default());
        let home = self.arena.directory.display().to_string();
        let own = [("PATH", path), ("HOME", home), ("TEST_TAG", self.tag.clone())];
        let own = own.into_iter().chain([("REDLOCK_LOG", memory::KEPT.to_string())]);
        own.chain(self.field.environment(contender)).collect()
    }

    fn history(&self) -> Vec<Line> {
        let text = std::fs::read_to_string(self.arena.directory.join("history")).unwrap_or_default();
        text.lines().map(Line::read).collect()
    }
}

/// The compiled `section.c`, which every job runs.
fn section() -> PathBuf {
    static SECTION: OnceLock<PathBuf> = OnceLock::new();
    SECTION.get_or_init(|| compiled("section", include_str!("section.c"), &[])).clone()
}

#[track_caller]
fn attack(servers: Servers, seed: u64, length: Duration) -> Figures {
    let (mut place, chance) = Place::new(servers, seed);
    let plan = place.field.plan(&mut chance.of(2), length);
    storm(servers, &mut place, &chance, &plan, length);
    let mut figures = Figures::of(&place, plan.len(), length);
    let calm = after::look(&place);
    let history = place.history();
    let judged = judge(&history, place.field.remembers_until);
    let mut violations = judged.violations;
    violations.append(&mut place.arena.results.lock().unwrap().violations);
    violations.extend(calm.err());
    let (untrue, runs) = memory::judge(&place, &history);
    violations.extend(untrue);
    figures.runs = runs;
    if figures.lost == 0 {
        violations.push("no lease was lost: the attack was too tame".to_owned());
    }
    eprintln!("{servers:?}, seed {seed}{}: {figures}", if place.field.durable { ", durable" } else { "" });
    if let Some(race) = judged.handovers.get(after::RACE) {
        eprintln!("  hand-overs in calm: {}", figures::percentiles(race));
    }
    eprintln!("  {}", figures::statuses(&place.arena.results.lock().unwrap().statuses));
    if violations.is_empty() {
        std::fs::remove_dir_all(&place.arena.directory).unwrap();
        return figures;
    }
    let arena = place.arena;
    // Servers that are dropped during the panic would print their logs, and bury the violations.
    drop(place.field);
    let (count, name) = (violations.len(), Servers::ALL.iter().find(|one| one.1 == servers).unwrap().0);
    let plan: Vec<String> = plan.iter().map(|(at, fault)| format!("{at:?} {fault:?}")).collect();
    std::fs::write(arena.directory.join("plan"), plan.join("\n")).unwrap();
    std::fs::write(arena.directory.join("violations"), violations.join("\n")).unwrap();
    panic!(
        "{count} violations with seed {seed}; history, plan and what was printed are in {}; again: make chaos SERVERS={name} \
         SEED={seed} MINUTES={:.2}\n{}",
        arena.directory.display(),
        length.as_secs_f64() / 60.0,
        violations[..count.min(20)].join("\n")
    );
}

fn storm(servers: Servers, place: &mut Place, chance: &Chance, plan: &[(Duration, Fault)], length: Duration) {
    let only = place.field.only();
    let environments: Vec<_> = (0..CONTENDERS + 8).map(|number| place.environment(number)).collect();
    let start = Instant::now();
    place.arena.until = start + length;
    let (arena, field) = (&place.arena, &mut place.field);
    let contender = |number: usize| {
        let environment = environments[number].clone();
        Contender { arena, environment, chance: chance.of(100 + number as u64) }
    };
    std::thread::scope(|scope| {
        for mut one in (0..CONTENDERS).map(contender) {
            scope.spawn(move || one.contend());
        }
        // Both want the same lock on different ways to the servers; `holder` is on the way with outages.
        let [mut holder, mut next, mut revoker, mut late] = [0, 1, 2, 3].map(|number| contender(CONTENDERS + number));
        scope.spawn(move || holder.hold("4000"));
        scope.spawn(move || next.hold("50"));
        scope.spawn(move || revoker.take_away());
        scope.spawn(move || late.come_back());
        let [mut first, mut second, mut other, mut python] = [4, 5, 6, 7].map(|number| contender(CONTENDERS + number));
        if let Some(socket) = &only {
            let (name, ttl) = (rival::SHARED, SHORTEST);
            scope.spawn(move || rival::share(&mut other, "imitated", || Imitation::new(socket, name, ttl)));
            if has_module("redis") {
                scope.spawn(move || rival::share(&mut python, REDIS_PY, || Some(RedisPy::new(socket, name, ttl))));
            }
        }
        if servers == Servers::One {
            scope.spawn(move || rival::use_up(&mut first, "edge-1"));
            scope.spawn(move || rival::use_up(&mut second, "edge-2"));
        }
        carry_out(field, plan, start);
    });
}

/// Carries out each fault of the plan at its moment, and undoes it at its end, or earlier if the next fault needs all
/// servers.
fn carry_out(field: &mut Field, plan: &[(Duration, Fault)], start: Instant) {
    let mut undoes: Vec<(Instant, Undo)> = Vec::new();
    let mut plan = plan.iter().peekable();
    while plan.peek().is_some() || !undoes.is_empty() {
        let now = Instant::now();
        for (_, undo) in undoes.extract_if(.., |one| one.0 <= now) {
            field.undo(undo);
        }
        if let Some((_, fault)) = plan.next_if(|one| start + one.0 <= now) {
            // A move or a fail-over waits for all other masters.
            if fault.needs_all_servers() {
                undoes.drain(..).for_each(|one| field.undo(one.1));
            }
            undoes.extend(field.strike(fault).map(|(lasts, undo)| (Instant::now() + lasts, undo)));
        }
        std::thread::sleep(ms(5));
    }
}
