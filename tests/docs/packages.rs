//! `make install`, and the packages that `make` makes. Here `make` builds no binary: it takes the binary under test.

use crate::support::{Directory, Finished, Line, Redis, SOON, Test, any, is_renewed, like, status, when};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Files that an installation and the tarball have below their prefix.
const FILES: [&str; 9] = [
    "bin/redlock",
    "share/bash-completion/completions/redlock",
    "share/doc/redlock/CHANGELOG.md",
    "share/doc/redlock/LICENSE",
    "share/doc/redlock/README.md",
    "share/doc/redlock/redlock.conf",
    "share/fish/vendor_completions.d/redlock.fish",
    "share/man/man1/redlock-run.1",
    "share/man/man1/redlock.1",
];

/// A copy of the binary without symbols, because to pack them would take seconds. Returns its path.
fn built(directory: &Directory) -> String {
    let binary = directory.path().join("built");
    let strip = Command::new("strip").arg("-o").arg(&binary).arg(env!("CARGO_BIN_EXE_redlock")).status();
    assert!(strip.is_ok_and(|status| status.success()), "strip is needed, which comes with gcc");
    binary.to_str().unwrap().to_owned()
}

/// The call `make TARGET` for the binary at the path `binary`. `true` stands in for cargo, so nothing is built. What is
/// missing is named, not installed.
fn make(target: &str, binary: &str) -> Test {
    let make = Test::of("make").args(["-s", "-C", env!("CARGO_MANIFEST_DIR"), target]);
    make.args(["CARGO=true", "CAN_INSTALL="]).arg(format!("BINARY={binary}"))
}

/// Makes a package by `make TARGET` with these further variables, and returns its file, whose name has this `end`. The
/// real cargo is called only to collect the licences.
#[track_caller]
fn package(target: &str, end: &str, directory: &Directory, variables: &[&str]) -> PathBuf {
    let cargo = format!("#!/bin/sh\n[ \"$1\" = rustc ] || exec {} \"$@\"\n", env!("CARGO"));
    directory.program("cargo", &cargo);
    let out = directory.path().join(target);
    fs::create_dir_all(&out).unwrap();
    let make = make(target, &built(directory)).arg(format!("OUT={}", out.display())).args(variables);
    let make = make.arg(format!("CARGO={}", directory.path().join("cargo").display()));
    // XZ=0 packs fast. The size does not matter here.
    of_the_tester(make).args(["XZ=0"]).stdout(any()).within(SOON * 12).run();
    let made = fs::read_dir(&out).unwrap().map(|entry| entry.unwrap().path());
    let made: Vec<PathBuf> = made.filter(|path| path.is_file() && path.display().to_string().ends_with(end)).collect();
    let [file] = &made[..] else { panic!("not one {end}: {made:?}") };
    Test::of("sh").args(["-c", "cd $0 && sha256sum --status -c SHA256SUMS"]).arg(&out).run();
    file.clone()
}

/// Passes on the variables by which the call finds the tester's cargo and rustc, and the downloaded crates.
fn of_the_tester(test: Test) -> Test {
    let variables = ["HOME", "CARGO_HOME", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN"];
    let set = variables.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
    set.fold(test, |test, (name, value)| test.env(name, value))
}

#[track_caller]
fn is_installed(prefix: &Path, files: &[&str]) {
    for file in files {
        assert!(prefix.join(file).is_file(), "no {file} in {}", prefix.display());
    }
    Test::of(prefix.join("bin/redlock")).arg("--version").stdout(any()).run();
}

fn files(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let below = |path: std::path::PathBuf| if path.is_dir() { files(&path) } else { vec![path.display().to_string()] };
    entries.flat_map(below).collect()
}

#[test]
fn what_was_built_is_installed_and_uninstalled() {
    let directory = Directory::new();
    let root = directory.path().join("root");
    let destination = format!("DESTDIR={}", root.display());
    let without_cargo = make("install", &built(&directory)).arg("CARGO=false");
    without_cargo.arg(&destination).run();
    is_installed(&root.join("usr/local"), &FILES);
    is_installed(&root.join("usr/local"), &["share/zsh/site-functions/_redlock"]);
    make("uninstall", "").arg(&destination).run();
    assert_eq!(files(&root), Vec::<String>::new());
}

#[test]
fn nothing_is_installed_before_it_is_built() {
    let directory = Directory::new();
    let destination = format!("DESTDIR={}", directory.path().display());
    let says_how = when("it says what to do", |text| text.contains("run make, then make install"));
    make("install", "target/none").arg(destination).status(2).stderr(says_how).run();
    assert_eq!(files(directory.path()), Vec::<String>::new());
}

/// All targets must call cargo with the same environment variables: otherwise cargo would build all crates again.
#[test]
fn a_package_is_built_as_all_else_is() {
    let directory = Directory::new();
    directory.program("cargo", "#!/bin/sh\necho \"${SOURCE_DATE_EPOCH-unset} $RUSTFLAGS $*\"; exit 1\n");
    let call = |target: &str| {
        let make = make(target, "none").arg(format!("CARGO={}", directory.path().join("cargo").display()));
        let said = of_the_tester(make).status(2).stdout(any()).stderr(any()).run().stdout;
        said.lines().next().expect("a call of cargo").to_owned()
    };
    let usual = call("build");
    assert!(usual.starts_with("unset ") && usual.contains(" rustc --release"), "{usual}");
    for package in ["dist", "deb", "rpm"] {
        assert_eq!(call(package), usual);
    }
}

#[test]
fn the_tarball_is_unpacked_below_a_prefix() {
    let directory = Directory::new();
    let prefix = directory.path().join("prefix");
    let tarball = package("dist", ".tar.gz", &directory, &[]);
    let name = format!("redlock-{}-{}-linux.tar.gz", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    assert!(tarball.ends_with(&name), "{}", tarball.display());
    fs::create_dir(&prefix).unwrap();
    Test::of("tar").args(["--strip-components=1", "-xzf"]).args([&tarball, Path::new("-C"), &prefix]).run();
    is_installed(&prefix, &FILES);
    is_installed(&prefix, &["share/zsh/site-functions/_redlock"]);
    let texts = fs::read_to_string(prefix.join("share/doc/redlock/third-party-licenses.txt")).unwrap();
    has_all_licences(&texts);
}

/// Checks that the texts name every crate on which redlock depends, and have the licences of the C library and of
/// Rust's standard library. (The standard library contains the crate hashbrown.)
#[track_caller]
fn has_all_licences(texts: &str) {
    let tree = of_the_tester(Test::of(env!("CARGO")))
        .args(["tree", "--quiet", "--locked", "--edges", "normal", "--prefix", "none"]);
    let tree = tree.args(["--manifest-path", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    let tree = tree.stdout(any()).run().stdout;
    let crates: Vec<(&str, &str)> = tree.lines().filter_map(|line| line.split_once(" v")).collect();
    assert!(crates.len() > 50, "{tree}");
    for (name, version) in crates.into_iter().filter(|(name, _)| *name != env!("CARGO_PKG_NAME")) {
        let version = version.split(' ').next().unwrap();
        let is_named = texts.lines().any(|line| line.starts_with(&format!("{name} {version} (")));
        assert!(is_named, "no licence text of {name} {version}");
    }
    for text in
        ["\nthe Rust standard library\n", " hashbrown-", "\nthe C library, ", "GNU LESSER GENERAL PUBLIC LICENSE"]
    {
        assert!(texts.contains(text), "no {text:?}");
    }
}

#[test]
fn a_crate_without_the_text_of_its_licence_is_refused() {
    let directory = Directory::new();
    let bare = directory.path().join("bare-1.0.0");
    fs::create_dir(&bare).unwrap();
    let (tree, metadata) = ("bare v1.0.0|MIT", format!("{{\"manifest_path\":\"{}/Cargo.toml\"}}", bare.display()));
    directory.program("cargo", &format!("#!/bin/sh\n[ $1 = tree ] && echo '{tree}' || echo '{metadata}'\n"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/man/package/third-party-licenses");
    let collect = || of_the_tester(Test::of(script)).env("CARGO", directory.path().join("cargo"));
    let refused = format!("no licence text for bare 1.0.0: no such file in {}\n", bare.display());
    collect().status(1).stderr(refused).run();
    fs::write(bare.join("LICENSE-MIT"), "as you like").unwrap();
    collect().stdout(when("it has the text", |text| text.contains("bare 1.0.0 (MIT), LICENSE-MIT\n"))).run();
}

/// The root of a Debian system, which at first has only dpkg's records.
struct Debian {
    root: PathBuf,
}

impl Debian {
    fn new(directory: &Directory) -> Debian {
        let root = directory.path().join("root");
        let state = root.join("var/lib/dpkg");
        fs::create_dir_all(state.join("updates")).unwrap();
        fs::create_dir(state.join("info")).unwrap();
        fs::write(state.join("status"), "").unwrap();
        Debian { root }
    }

    #[track_caller]
    fn dpkg(&self, action: &str, what: impl AsRef<Path>) -> Finished {
        // Without unsafe-io, dpkg would wait until each file is on the disk.
        let dpkg = as_root("dpkg").args(["--force-unsafe-io", "--force-confold"]);
        let dpkg = dpkg.arg(format!("--log={}", self.root.join("var/lib/dpkg/log").display()));
        let dpkg = dpkg.arg(format!("--root={}", self.root.display())).arg(action).arg(what.as_ref());
        // dpkg's own warnings differ by version.
        dpkg.stdout(any()).stderr(any()).run()
    }
}

/// Only root can make files that belong to root. A user who is not root becomes root in a namespace of users.
fn as_root(program: &str) -> Test {
    if nix::unistd::geteuid().is_root() { Test::of(program) } else { Test::of("unshare").args(["-r", program]) }
}

/// Calls `upgrade` while the installed redlock runs a job, and a second one waits for its lock. Checks that neither
/// notices the upgrade.
#[track_caller]
fn is_not_noticed_by_a_job(debian: &Debian, upgrade: impl FnOnce() -> Finished) {
    let (redis, program) = (Redis::start(), debian.root.join("usr/bin/redlock"));
    let run = |line: &str| Test::program(&redis, program.to_str().unwrap()).args(line.split(' '));
    let job =
        run("run backup -q --ttl 4s -- sh -c").arg("echo ready; until [ -e done ]; do sleep 0.05; done; echo last");
    let done = job.directory().path().join("done");
    let job = job.stdout("last\n").ready();
    let waiter = Line::join(&redis, run("run backup -q --wait -- echo next").stdout("next\n"));

    let before = fs::metadata(&program).unwrap().ino();
    upgrade();
    assert_ne!(fs::metadata(&program).unwrap().ino(), before, "it is another file");
    is_renewed(&redis);
    is_renewed(&redis);
    let seen = run("status backup --format json").stdout(like("{<any>}\n")).run().json();
    assert_eq!((&seen["state"], &seen["waiting"]), (&"held".into(), &1.into()), "{seen}");
    fs::write(done, "").unwrap();
    job.finish();
    waiter.finish();
    assert_eq!(status(&redis, "backup")["state"], "free");
}

#[test]
fn the_debian_package_comes_and_goes() {
    let directory = Directory::new();
    let deb =
        package("deb", ".deb", &directory, &["MAINTAINER=A Person <a@b.example>", "HOMEPAGE=https://b.example/x"]);
    let name = format!("redlock_{}-1_", env!("CARGO_PKG_VERSION"));
    assert!(deb.file_name().unwrap().to_str().unwrap().starts_with(&name), "{}", deb.display());
    let field =
        |name: &str| Test::of("dpkg-deb").args([Path::new("-f"), &deb, Path::new(name)]).stdout(any()).run().stdout;
    assert_eq!(field("Maintainer"), "A Person <a@b.example>\n");
    assert_eq!(field("Homepage"), "https://b.example/x\n");
    assert_eq!(field("Suggests"), "redis-server | valkey-server\n");
    assert!(field("Installed-Size").trim().parse::<u32>().unwrap() > 1000);
    assert!(field("Description").lines().count() > 3);

    let debian = Debian::new(&directory);
    debian.dpkg("--install", &deb);
    let usr = debian.root.join("usr");
    is_installed(
        &usr,
        &["share/doc/redlock/copyright", "share/doc/redlock/changelog.gz", "share/man/man1/redlock-run.1.gz"],
    );
    is_installed(&usr, &["share/doc/redlock/changelog.Debian.gz", "share/doc/redlock/third-party-licenses.txt.gz"]);
    is_installed(&usr, &["share/zsh/vendor-completions/_redlock", "share/bash-completion/completions/redlock"]);
    debian.dpkg("--verify", "redlock");

    // The administrator's settings outlive an upgrade and a removal, but not --purge.
    let settings = debian.root.join("etc/redlock.conf");
    fs::write(&settings, "REDLOCK_REDIS=redis://10.0.0.1\n").unwrap();
    is_not_noticed_by_a_job(&debian, || debian.dpkg("--install", &deb));
    debian.dpkg("--remove", "redlock");
    assert!(!usr.exists(), "{:?}", files(&usr));
    assert_eq!(fs::read_to_string(&settings).unwrap(), "REDLOCK_REDIS=redis://10.0.0.1\n");
    debian.dpkg("--purge", "redlock");
    assert!(!settings.exists());
}

#[test]
fn the_rpm_comes_and_goes() {
    let directory = Directory::new();
    let rpm = package("rpm", ".rpm", &directory, &[]);
    let name = format!("redlock-{}-1.{}.rpm", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    assert!(rpm.ends_with(&name), "{}", rpm.display());
    let root = directory.path().join("root");
    let call = |action: &str, what: &Path| {
        // Warnings differ by version and system.
        let rpm = as_root("rpm").args(["--dbpath", "/var/lib/rpm", "--root"]).arg(&root).arg(action).arg(what);
        rpm.stdout(any()).stderr(any()).run().stdout
    };
    fs::create_dir(&root).unwrap();
    call("--install", &rpm);
    let usr = root.join("usr");
    is_installed(&usr, &["share/licenses/redlock/LICENSE", "share/licenses/redlock/third-party-licenses.txt"]);
    is_installed(&usr, &["share/zsh/site-functions/_redlock", "share/man/man1/redlock-run.1.gz"]);
    assert_eq!(call("-Vv", Path::new("redlock")).lines().filter(|line| !line.starts_with("......")).count(), 0);
    assert!(call("-qc", Path::new("redlock")).contains("/etc/redlock.conf"));
    call("--erase", Path::new("redlock"));
    assert!(!usr.exists() || files(&usr).iter().all(|file| file.contains("/rpm/")), "{:?}", files(&usr));
    assert!(!root.join("etc/redlock.conf").exists());
}

#[test]
fn what_is_missing_is_named_before_it_is_installed() {
    let directory = Directory::new();
    directory.program("apt-get", "#!/bin/sh\necho apt-get $*\n");
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let deps = || make("deps", "").arg("NEEDS=no-such-program:package-a sh:package-b").arg("SUDO=").env("PATH", &path);
    let said = "Installing packages that this needs, by apt-get: package-a\n\
        apt-get update -q\n\
        apt-get install -q -y --no-install-recommends package-a\n";
    deps().arg("CAN_INSTALL=yes").stdout(said).run();
    let refused = when("it names the package", |text| text.contains(": apt-get install package-a\n"));
    deps().status(2).stderr(refused).run();
}
