//! What `make` installs and packs. The binary under test takes the place of the one that `make` would build.

use crate::support::{Directory, Test, any, when};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Below a prefix, after an installation.
const FILES: [&str; 8] = [
    "bin/redlock",
    "share/bash-completion/completions/redlock",
    "share/doc/redlock/CHANGELOG.md",
    "share/doc/redlock/LICENSE",
    "share/doc/redlock/README.md",
    "share/fish/vendor_completions.d/redlock.fish",
    "share/man/man1/redlock-run.1",
    "share/man/man1/redlock.1",
];

/// The binary without its debugging symbols, which take seconds to be packed.
fn built(directory: &Directory) -> String {
    let binary = directory.path().join("built");
    let strip = Command::new("strip").arg("-o").arg(&binary).arg(env!("CARGO_BIN_EXE_redlock")).status();
    assert!(strip.is_ok_and(|status| status.success()), "strip is needed, which comes with gcc");
    binary.to_str().unwrap().to_owned()
}

/// A call of make, in which cargo does nothing.
fn make(target: &str, binary: &str) -> Test {
    let make = Test::of("make").args(["-s", "-C", env!("CARGO_MANIFEST_DIR"), target]);
    make.arg("CARGO=true").arg(format!("BINARY={binary}"))
}

#[track_caller]
fn is_installed(prefix: &Path, files: &[&str]) {
    for file in files {
        assert!(prefix.join(file).is_file(), "no {file} in {}", prefix.display());
    }
    Test::of(prefix.join("bin/redlock")).arg("--version").stdout(any()).run();
}

/// The files below a directory.
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

#[test]
fn the_tarball_is_unpacked_below_a_prefix() {
    let directory = Directory::new();
    let (out, prefix) = (directory.path(), directory.path().join("prefix"));
    make("dist", &built(&directory)).arg(format!("OUT={}", out.display())).stdout(any()).run();
    let name = format!("redlock-{}-{}-linux.tar.gz", env!("CARGO_PKG_VERSION"), std::env::consts::ARCH);
    fs::create_dir(&prefix).unwrap();
    Test::of("tar").args(["--strip-components=1", "-xzf"]).args([&out.join(name), Path::new("-C"), &prefix]).run();
    is_installed(&prefix, &FILES);
    is_installed(&prefix, &["share/zsh/site-functions/_redlock"]);
}

#[test]
fn the_debian_package_comes_and_goes() {
    let directory = Directory::new();
    let (out, root) = (directory.path(), directory.path().join("root"));
    let deb = make("deb", &built(&directory)).arg(format!("OUT={}", out.display()));
    // What is packed is the point, not how small it becomes.
    deb.env("DPKG_DEB_COMPRESSOR_TYPE", "none").stdout(any()).run();
    let package = files(out).into_iter().find(|file| file.ends_with(".deb")).unwrap();
    assert!(package.contains(&format!("redlock_{}_", env!("CARGO_PKG_VERSION"))), "{package}");

    let state = root.join("var/lib/dpkg");
    fs::create_dir_all(state.join("updates")).unwrap();
    fs::create_dir(state.join("info")).unwrap();
    fs::write(state.join("status"), "").unwrap();
    let dpkg = |arguments: [&str; 2]| {
        // Files of root can be made by root, or by those who are root in a name space of their own.
        let dpkg =
            if nix::unistd::geteuid().is_root() { Test::of("dpkg") } else { Test::of("unshare").args(["-r", "dpkg"]) };
        // Its own warnings differ by version. On a disk that others write to, it would wait for each file to be there.
        let dpkg = dpkg.arg("--force-unsafe-io").arg(format!("--log={}", state.join("log").display()));
        dpkg.arg(format!("--root={}", root.display())).args(arguments).stdout(any()).stderr(any()).run();
    };
    dpkg(["--install", &package]);
    is_installed(&root.join("usr"), &["share/doc/redlock/copyright", "share/man/man1/redlock-run.1.gz"]);
    is_installed(&root.join("usr"), &["share/zsh/vendor-completions/_redlock"]);
    dpkg(["--purge", "redlock"]);
    assert!(!root.join("usr").exists(), "{:?}", files(&root));
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
    let refused = when("it names the package", |text| text.contains("please install: package-a\n"));
    deps().arg("CAN_INSTALL=").status(2).stderr(refused).run();
}
