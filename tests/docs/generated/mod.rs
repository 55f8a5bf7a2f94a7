//! Makes completions/ and man/ from the definition of the command line and the texts in man/src/ and completions/src/,
//! and compares the results with the files of the repository. A test does this, so that users' builds need not. `make
//! man` writes the files again. Another test checks the ACL rule in redlock.man.
//!
//! The texts in man/src/ are man(7) without its escapes: hyphens, tildes and quotes stand for themselves. The pages get
//! the escapes, so that users can copy these characters from a terminal. The text before the first `.SH` of a page goes
//! into the section DESCRIPTION. A line `.so FILE` is replaced by the text of the file.

use crate::support::{Redis, SOON, Test, any, cannot_start};
use clap_mangen::Man;
use redlock::cli;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

mod completions;

const CHANGELOG: &str = include_str!("../../../CHANGELOG.md");
const REWRITE: &str = "WRITE_DOCS";

/// The day that the manual pages show: the day of the release, from the first heading of CHANGELOG.md with a version.
fn date() -> &'static str {
    let headings = CHANGELOG.lines().filter_map(|line| line.strip_prefix("## "));
    let (version, date) = headings.filter_map(|heading| heading.split_once(", ")).next().unwrap();
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    date
}

/// The text of each file of a folder by its name.
type Files = BTreeMap<String, String>;

#[test]
fn completions_are_up_to_date() {
    compare("completions", completions::scripts());
}

#[test]
fn man_pages_are_up_to_date() {
    compare("man", pages());
}

#[test]
fn man_pages_are_well_formed() {
    for (name, page) in pages() {
        for section in ["EXIT STATUS", "ENVIRONMENT", "EXAMPLES", "SEE ALSO"] {
            let heading = format!("\n.SH {section}\n");
            assert!(page.contains(&heading), "{name} has no {section}");
        }
        // Only redlock(1) has the text that applies to all commands.
        let is_main = name == "redlock.1";
        assert_eq!(
            (page.contains(".SH FILES\n"), page.contains("An empty variable counts as unset")),
            (is_main, is_main),
            "{name}"
        );
    }
    let files = pages().into_keys().map(|name| root("man").join(name));
    let mut mandoc = Command::new("mandoc");
    let lint = mandoc.args(["-T", "lint", "-W", "warning"]).args(files).output();
    let lint = lint.unwrap_or_else(|error| cannot_start(&mandoc, &error));
    let said = String::from_utf8_lossy(&lint.stdout);
    assert!(lint.status.success(), "mandoc says:\n{said}");
}

/// Makes calls of redlock of many kinds. The script ends at the first command that fails, with its status.
const ALL_OF_IT: &str = "
    set -e
    token=$(redlock acquire --name acl)
    inner=$(redlock acquire --name acl --reentrant --token $token)
    redlock release acl --token $inner
    redlock extend acl --token $token
    redlock status acl
    redlock status
    redlock status --all
    redlock log
    redlock run -q --name acl --wait 10s -- true & waiter=$!
    redlock wait acl & watcher=$!
    until redlock status acl | grep '1 waiting\\|waiting *1'; do sleep 0.05; done
    redlock release acl --token $token
    wait $waiter
    wait $watcher
    token=$(redlock acquire --name acl --wait 10s)
    redlock release acl --force
    redlock run acl -- sleep 60 & job=$!
    until redlock status acl | grep held; do sleep 0.05; done
    redlock stop acl --for 1h
    ! wait $job
    redlock stop acl --for 0
    ! redlock run --name acl --wait 10s -- redlock run --name acl --wait 100ms -- true
    redlock run --name '{tag}:acl' --wait -- true
    for shape in --shared '--slots 2'; do
        token=$(redlock acquire acl $shape)
        redlock acquire acl $shape
        redlock extend acl --token $token
        redlock release acl --token $token
        redlock release acl --force
    done";

#[test]
fn the_documented_permissions_suffice_and_none_is_idle() {
    let rule = text("redlock.man");
    let rule = rule.split_once("ACL SETUSER locks").unwrap().1;
    let rule = rule.split_once(".EE").unwrap().0.replace("PASSWORD", "secret");
    assert!(!rule.trim_end().contains('\n'), "the rule is on more than one line");

    let servers: Vec<Redis> = (0..3).map(|_| Redis::with_tcp(&[])).collect();
    for server in &servers {
        let mut words = vec!["ACL", "SETUSER", "locks"];
        words.extend(rule.split_whitespace());
        words.extend(["~{*}:redlock:*", "&{*}:redlock:*"]);
        server.command(&words);
    }
    let urls: Vec<String> = servers.iter().map(|server| format!("redis://locks:secret@{}", server.address())).collect();
    for urls in [&urls[..1], &urls[..]] {
        Test::sh(urls, ALL_OF_IT).within(SOON * 6).stdout(any()).stderr(any()).run();
    }
    for server in &servers {
        let denied: Vec<redis::Value> = server.query(&["ACL", "LOG"]);
        assert!(denied.is_empty(), "{denied:?}");
    }

    let mut used = vec!["evalsha".to_owned(), "eval".to_owned()];
    used.extend(["subscribe", "unsubscribe", "scan", "client|setname"].map(str::to_owned));
    let files = ["src/lock/scripts", "src/lock/history"].map(|folder| std::fs::read_dir(root(folder)).unwrap());
    for script in files.into_iter().flatten() {
        let script = std::fs::read_to_string(script.unwrap().path()).unwrap();
        let calls = script.split("call('").skip(1);
        used.extend(
            calls.map(|call| call.split('\'').next().unwrap().to_lowercase().replace("pubsub", "pubsub|numsub")),
        );
    }
    let given: Vec<&str> = rule.split_whitespace().filter_map(|word| word.strip_prefix('+')).collect();
    for command in &given {
        assert!(used.iter().any(|one| one == command), "+{command} is for nothing");
    }
    for command in &used {
        assert!(given.contains(&command.as_str()), "+{command} is missing");
    }
}

fn root(folder: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)
}

/// Checks that the folder has exactly these files, with these texts. If the variable WRITE_DOCS is set, writes them
/// instead.
fn compare(folder: &str, made: Files) {
    let path = root(folder);
    if std::env::var_os(REWRITE).is_some() {
        for (name, text) in made {
            std::fs::write(path.join(name), text).unwrap();
        }
        return;
    }
    let checked_in: Files = std::fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    let names = |files: &Files| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&checked_in), names(&made), "the files in {folder}/");
    for (name, text) in made {
        assert!(
            checked_in[&name] == text,
            "{folder}/{name} is not what the command line says; `make man` writes it anew"
        );
    }
}

/// The manual pages of `redlock` itself and of each command that is not hidden.
fn pages() -> Files {
    let mut redlock = cli::command();
    redlock.build();
    let commands = redlock.get_subcommands().filter(|one| !one.is_hide_set());
    std::iter::once(&redlock)
        .chain(commands)
        .map(|command| {
            let name = command.get_display_name().unwrap_or(command.get_name());
            (format!("{name}.1"), page(name, command))
        })
        .collect()
}

fn page(name: &str, command: &clap::Command) -> String {
    let text = text(&format!("{name}.man"));
    let start = text.find(".SH").expect("a section");
    let (description, sections) = text.split_at(start);
    // The page also has the command's options that -h leaves out for want of room.
    let full = command.clone();
    let is_command = !command.has_subcommands();
    let man = Man::new(full.mut_args(|argument| {
        // The page of a command hides the options that all commands have, and that redlock(1) describes.
        let is_hidden = is_command && argument.is_global_set();
        argument.hide_short_help(false).hide(is_hidden)
    }));
    // The first paragraph of the long help is left out here, because the section NAME already has it.
    let about = command.get_long_about().map(ToString::to_string);
    let about = about.unwrap_or_default();
    let about = about.split_once("\n\n").map_or("", |(_, rest)| rest);
    let mut made = format!(
        ".TH {} 1 {} \"redlock {}\" \"User Commands\"\n",
        name.to_uppercase(),
        date(),
        env!("CARGO_PKG_VERSION")
    );
    made += &rendered(|into| man.render_name_section(into));
    made += &rendered(|into| man.render_synopsis_section(into));
    made += ".SH DESCRIPTION\n";
    made += &escape(&about.replace("\n\n", "\n.PP\n"));
    made += &escape(description);
    // Each heading of the help is a part of the section OPTIONS.
    made += &rendered(|into| man.render_options_section(into)).replace("\n.SH ", "\n.SS ");
    if is_command {
        made +=
            ".PP\nThe options of every command, such as\n.BR \\-\\-redis \" and \" \\-q ,\nare in\n.BR redlock (1).\n";
    } else {
        made += &rendered(|into| man.render_subcommands_section(into));
    }
    made + &escape(sections)
}

/// One section of a page, made by clap_mangen. mandoc warns of empty lines, and of the definitions that clap_mangen
/// repeats in each section. So `.sp` replaces the empty lines, and the definitions are left out.
fn rendered(section: impl Fn(&mut dyn std::io::Write) -> std::io::Result<()>) -> String {
    let mut roff = Vec::new();
    section(&mut roff).unwrap();
    let roff = String::from_utf8(roff).unwrap();
    let mut lines: Vec<&str> = Vec::new();
    for line in roff.lines() {
        match line.trim() {
            ".ie \\n(.g .ds Aq \\(aq" | ".el .ds Aq '" => {}
            "" => lines.push(".sp"),
            line => lines.push(line),
        }
    }
    lines.join("\n").replace("\\*(Aq", "\\(aq") + "\n"
}

/// A text of man/src/ or completions/src/, with the texts that it includes.
fn text(file: &str) -> String {
    let folder = if file.ends_with(".man") { "man/src" } else { "completions/src" };
    let path = root(folder).join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // Comments are left out. They tell a test the language of the next example.
    let kept = text.lines().filter(|line| !line.starts_with(".\\\""));
    let whole = kept.map(|line| match line.strip_prefix(".so ") {
        Some(other) => self::text(other),
        None => format!("{line}\n"),
    });
    whole.collect()
}

/// Escapes a text so that a manual page shows it as it is written.
fn escape(text: &str) -> String {
    let mut example = false;
    let lines = text.lines().map(|line| {
        if line == ".EX" || line == ".EE" {
            example = line == ".EX";
            return line.to_owned();
        }
        let quoted = line.replace('-', "\\-").replace('~', "\\(ti");
        if !example {
            return quoted;
        }
        let verbatim = line
            .replace('\\', "\\e")
            .replace('-', "\\-")
            .replace('~', "\\(ti")
            .replace('\'', "\\(aq")
            .replace('`', "\\(ga")
            .replace('^', "\\(ha");
        match verbatim.starts_with('.') {
            true => format!("\\&{verbatim}"),
            false => verbatim,
        }
    });
    lines.map(|line| line + "\n").collect()
}
