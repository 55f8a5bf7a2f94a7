//! Runs the examples of README.md, of docs/ and of the manual pages on a real server, with few changes. Stubs replace the
//! commands that the examples run under a lock. Examples that a test cannot run are left out.

use crate::commands::pictures::night;
use crate::support::{Directory, Redis, Running, SOON, Test, any, eventually, like, perhaps, status};
use regex_lite::Regex;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The tests have stubs for these commands of the examples.
const STUBS: &str = "announce|backup|backup.sh|build|curl|deploy|deploy.sh|download|job|job.sh|mail|migrate|pg_dump|report|serve|\
    vacuum";

/// An example: the words that name its language (such as `sh not-run`), and its text.
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
}

/// README.md, and the pages in docs/.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|file| file.unwrap().path());
    docs.filter(|file| file.extension().is_some_and(|kind| kind == "md")).chain([root.join("README.md")]).collect()
}

/// The language of an example stands behind the three backquotes at its start.
fn blocks_of(page: &Path) -> Vec<Block> {
    let page = fs::read_to_string(page).unwrap();
    let parts: Vec<&str> = page.split("\n```").collect();
    assert!(parts.len() % 2 == 1, "a block has no end");
    let block = |part: &str| {
        let (language, text) = part.split_once('\n').expect("a line behind the fence");
        Block { language: language.to_owned(), text: format!("{text}\n") }
    };
    parts.iter().skip(1).step_by(2).map(|part| block(part)).collect()
}

/// The examples of README.md.
pub(crate) fn blocks() -> Vec<Block> {
    blocks_of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md"))
}

/// The examples of the manual pages: in the sources, a comment before each example names its language.
fn manual() -> Vec<Block> {
    let folder = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/man/src")).unwrap();
    let pages = folder.map(|page| fs::read_to_string(page.unwrap().path()).unwrap());
    let of_page = |page: String| {
        let examples: Vec<&str> = page.split("\n.EX\n").collect();
        let block = |(before, example): (&str, &str)| {
            let language = before.lines().last().and_then(|line| line.strip_prefix(".\\\" "));
            let language = language.unwrap_or_else(|| panic!("no language is said of\n{example}")).to_owned();
            Block { language, text: example.split_once(".EE\n").unwrap().0.to_owned() }
        };
        let before = examples.iter().copied();
        before.zip(examples.iter().copied().skip(1)).map(block).collect::<Vec<_>>()
    };
    pages.flat_map(of_page).collect()
}

fn replace(text: &str, expression: &str, by: &str) -> String {
    Regex::new(expression).unwrap().replace_all(text, by).into_owned()
}

/// A server, and a directory with redlock and the stubs of the commands in the examples.
struct Scene {
    redis: Redis,
    directory: Arc<Directory>,
}

impl Scene {
    fn new(arguments: &[&str]) -> Scene {
        let directory = Arc::new(Directory::new());
        for name in STUBS.split('|') {
            directory.program(name, "#!/bin/sh\necho done\n");
        }
        symlink(env!("CARGO_BIN_EXE_redlock"), directory.path().join("redlock")).unwrap();
        Scene { redis: Redis::with_tcp(arguments), directory }
    }

    /// Replaces the addresses of servers and the paths of commands in the text by those of this scene.
    fn adapt(&self, text: &str) -> String {
        let text = replace(text, r"redis://[a-z0-9.-]+", &self.redis.tcp_url());
        let here = format!("{}/", self.directory.path().display());
        // The test calls stubs of mail, curl and pg_dump: the real commands would send something to other machines, or
        // may not be installed.
        let text =
            text.replace("| mail ", "| ./mail ").replace(" curl ", " ./curl ").replace("'pg_dump ", "'./pg_dump ");
        // The test's directory is no repository of git.
        let text = text.replace("$(git rev-list --count HEAD)", "42");
        // The example leaves time for a second terminal, which the test does not need.
        let text = text.replace("sleep 60", "true");
        let text = text.replace("shuf -i 0-60", "shuf -i 0-0");
        // All calls come from one host.
        let text = text.replace("--min-hosts 30", "--min-hosts 1");
        text.replace("/usr/local/bin/", &here).replace("/usr/bin/redlock", &format!("{here}redlock"))
    }

    fn test(&self, program: &str) -> Test {
        Test::program(&self.redis, program)
            .in_directory(&self.directory)
            .env("REDLOCK_REDIS", self.redis.tcp_url())
            .env("CI_ENVIRONMENT_NAME", "staging")
            .env("CI_PIPELINE_IID", "42")
            .env("GITHUB_REPOSITORY", "owner/name")
            .env("GITHUB_RUN_NUMBER", "42")
            .env("GITHUB_WORKFLOW", "deploy")
            .env("GITHUB_ENV", "github.env")
            .env("REDLOCK_FENCING_TOKEN", "1795320118063")
            .stderr(perhaps(["acquired", "extended", "released", "no such run", "may have forgotten", "is known on"]))
            .stdout(any())
    }

    /// The script must leave no lock behind.
    fn script(&self, shell: &str, text: &str) {
        let mut text = self.adapt(text);
        if text.contains("local:") {
            text += "redis-cli -s .local/state/redlock/*/redis.sock shutdown";
        }
        // The script is a file, not an argument of `sh -c`, because some examples start themselves again by their name.
        self.directory.program("script", &text);
        self.test(shell).args(["./script", "report.txt"]).stdin("new\n").run();
        let left = || self.redis.keys_without_history().iter().any(|key| key.starts_with("redlock:"));
        let what = format!("left behind by {shell}: {}\n{text}", left());
        // With --while-pid, the lock is released only after the end of the script, so the test waits.
        eventually(SOON, &what, || !left());
    }

    /// The environment of each job has only PATH and the variables that the crontab sets.
    fn crontab(&self, text: &str) {
        let text = self.adapt(text);
        let (variables, jobs): (Vec<&str>, Vec<&str>) =
            text.lines().partition(|line| line.split_once('=').is_some_and(|(name, _)| !name.contains(' ')));
        for job in jobs.into_iter().filter(|line| !line.starts_with('#')) {
            let line = job.split_whitespace().skip(5).collect::<Vec<_>>().join(" ");
            let call = || {
                let test = self.test("env").arg("-i").args(&variables).args(["PATH=/usr/bin:/bin", "sh", "-c", &line]);
                test.stderr("")
            };
            if line.contains(" check ") {
                call().stdout("").fails(1, ["nothing to check"]).run(); // no job has come for half a period
                continue;
            }
            call().stdout("done\n").run();
            // The second call stands for a host whose cron is a little late, and must not run the job again.
            call().stdout("").run();
        }
    }

    /// Runs the calls of redlock that a file of settings has in it, one after the other. Each call gets the environment
    /// variables that the calls before it have written into the file `github.env`.
    fn settings(&self, text: &str) {
        let call = r"(?m)^(?:[- ]*(?:run: )?|ExecStart=)((?:/usr/bin/)?redlock .*)$|^ *- run: \|\n((?:      .*\n)+)";
        let call = Regex::new(call).unwrap();
        let mut calls: Vec<String> = call
            .captures_iter(text)
            .filter_map(|found| found.get(1).or(found.get(2)))
            .map(|call| call.as_str().to_owned())
            .collect();
        // A container's command line is in ENTRYPOINT and CMD, or in `command`. Absolute paths are those of the
        // container's image, so the test replaces them by relative ones.
        let list = Regex::new(r"(?m)^ *(?:ENTRYPOINT|CMD|command:) (\[[^\]]*\])$").unwrap();
        let words = list.captures_iter(text).flat_map(|found| serde_json::from_str::<Vec<String>>(&found[1]).unwrap());
        let words: Vec<String> = words.map(|word| replace(&word, "^/(usr/local/bin/)?", "./")).collect();
        if !words.is_empty() {
            calls.push(format!("'{}'", words.join("' '")));
        }
        assert!(!calls.is_empty(), "no call of redlock in\n{text}");
        let before = "set -a; [ ! -e github.env ] || . ./github.env; set +a";
        let lines = calls.iter().flat_map(|call| [before, call]);
        self.script("sh", &format!("set -e\n{}", lines.collect::<Vec<_>>().join("\n")));
    }

    /// Runs each command of the example (a line that begins with `$`), and compares the output with the other lines.
    fn console(&self, text: &str) {
        let text = self.adapt(text);
        let mut script = String::from("exec 2>&1; show() { before=$?; printf '%s\\n' \"$1\"; return $before; }\n");
        let mut expected = String::new();
        for line in text.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                script += &format!("show '{line}'\n{command}\n");
                expected += line;
            } else {
                expected += &with_holes(line);
            }
            expected.push('\n');
        }
        if text.contains("redlock check") {
            for name in ["backup", "report"] {
                self.test("redlock").args(["run", "-q", name, "--", "true"]).run();
            }
        }
        if text.contains("redlock log") {
            for (command, status) in [("true", 0), ("false", 1)] {
                let words = ["run", "-q", "backup", "--label", "nightly", "--", command];
                self.test("redlock").args(words).status(status).run();
            }
        }
        let running = text.contains("held by") || text.contains("  held\n");
        let holder = running.then(|| self.job("nightly", |lock| lock["state"] == "held"));
        let waiter = text.contains("  waiting 1\n").then(|| self.job("next", |lock| lock["waiting"] == 1));
        self.test("sh").args(["-c", &script]).any_end().stdout(like(expected)).run();
        drop((holder, waiter));
    }

    /// Checks that redlock prints the metrics that an alert uses. Before the first run under the lock, it must print
    /// some of them, but not all. After the run, it must print all of them: it judges the lock, whose calls have come
    /// for half a period.
    fn alert(&self, text: &str) {
        let printed = |metric: &str| {
            let words = ["status", "backup", "--format", "prometheus"];
            let metrics = self.test("redlock").args(words).stdout(any()).run().stdout;
            metrics.lines().any(|line| line.starts_with(metric))
        };
        let used = Regex::new("redlock_[a-z_]+").unwrap();
        let used: Vec<&str> = used.find_iter(text).map(|found| found.as_str()).collect();
        assert!(used.iter().any(|metric| printed(metric)) && !used.iter().all(|metric| printed(metric)), "never ran");
        self.test("redlock").args(["run", "-q", "backup", "--once-per", "day", "--", "true"]).run();
        self.redis.command(&["HSET", "{redlock:backup}:\u{1f}runs", "expected", "86400000 86400000 1"]);
        assert!(used.iter().all(|metric| printed(metric)), "{used:?}");
    }

    /// Starts a job of four seconds, which takes the lock `backup` or waits for it. Returns once `shown` is true of the
    /// JSON that `status` prints about the lock.
    fn job(&self, label: &str, shown: impl Fn(&Value) -> bool) -> Running {
        let words = ["run", "-q", "backup", "--label", label, "--wait", "--", "sleep", "4"];
        let job = self.test("redlock").args(words).spawn();
        eventually(SOON, label, || shown(&status(&self.redis, "backup")));
        job
    }
}

/// A line of an example's output, with holes (see [`like`]) for what differs from call to call. A line that is only a
/// number below 256 gets no hole: it is a status, which does not differ.
fn with_holes(line: &str) -> String {
    if line.parse::<u8>().is_ok() {
        return line.to_owned();
    }
    [
        (r"\b[0-9a-f]{32}\b", "<token>"),
        (r"\b[0-9a-f]{8}…", "<prefix>…"),
        (r"\b[0-9-]{10}T[0-9:.]{12}Z", "<time>"),
        (r"\b[0-9-]{10} [0-9:]{8} [+-][0-9]{4}\b", "<date>"),
        (r" on [\w.-]+ \(", " on <host> ("),
        (r" on [\w-]+, ", " on <host>, "),
        (r"[\w.-]+@[\w.-]+", "<user>@<host>"),
        (r"\b[0-9.]+:[0-9]+\b", "<node>"),
        (r"\b[0-9]+(ms|s|m|h|d)( [0-9]+(ms|s|m|h))*\b", "<duration>"),
        (r"[0-9]+", "<n>"),
    ]
    .iter()
    .fold(line.to_owned(), |line, (what, hole)| replace(&line, what, hole))
}

/// If the example is about a server that evicts keys, the scene's server evicts keys.
fn scene_of(block: &Block) -> Scene {
    let evicting = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    Scene::new(if block.text.contains("allkeys-lru") { &evicting } else { &[] })
}

/// Checks that the example shows exactly the picture of `night`. A comment behind its command says what the signs in
/// the picture mean. The call of the test leaves it out.
fn picture(text: &str) {
    let (line, drawn) = text.split_once('\n').unwrap();
    let command = line.split_once(" #").map_or(line, |(command, _)| command.trim_end());
    let words = command.strip_prefix("$ redlock ").unwrap();
    Test::new(&night()).args(words.split(' ')).env("LC_ALL", "C.UTF-8").stdout(drawn).stderr(any()).run();
}

fn work(blocks: Vec<Block>) {
    for block in blocks {
        let scene = scene_of(&block);
        match &block.language[..] {
            "sh" => ["dash", "bash"].iter().for_each(|shell| scene.script(shell, &block.text)),
            "crontab" => scene.crontab(&block.text),
            "ini" | "yaml" | "dockerfile" => scene.settings(&block.text),
            "console" if block.text.contains("--format chart") => picture(&block.text),
            "console" => scene.console(&block.text),
            "yaml alert" => scene.alert(&block.text),
            "redis" => scene.redis.command(&block.text.split_whitespace().collect::<Vec<_>>()),
            // The script needs root or the network: only its syntax is checked.
            "sh not-run" => drop(scene.test("sh").args(["-n", "-c", &block.text]).stdout("").stderr("").run()),
            "sql" | "json" | "text" => {}
            other => panic!("no test for a block in {other:?}:\n{}", block.text),
        }
    }
}

#[test]
fn every_example_of_readme_works() {
    work(blocks());
}

#[test]
fn the_examples_of_the_manual_work() {
    work(manual());
}

#[test]
fn every_example_of_docs_works() {
    work(pages().iter().filter(|page| !page.ends_with("README.md")).flat_map(|page| blocks_of(page)).collect());
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap();
    let headings = text.split("\n```").step_by(2).flat_map(str::lines).filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let kept = |c: char| c.is_alphanumeric() || " -_".contains(c);
        line.trim_start_matches('#')
            .trim()
            .chars()
            .filter(|&c| kept(c))
            .collect::<String>()
            .to_lowercase()
            .replace(' ', "-")
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_somewhere() {
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in Regex::new(r"\]\(([^)]+)\)").unwrap().captures_iter(&text).map(|found| found[1].to_owned()) {
            if link.starts_with("https://") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            assert!(target.exists(), "{}: {link}", page.display());
            assert!(anchor.is_empty() || anchors(&target).contains(&anchor.to_owned()), "{}: {link}", page.display());
        }
    }
}
