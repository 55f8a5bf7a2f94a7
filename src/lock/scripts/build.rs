//! The build script: puts each Lua script together from the files of [`FOLDERS`], keys.lua first.
//! A line `-- include a, b` stands for the texts of a.lua and b.lua, and a line `-- needs a`, at the head of a file,
//! for the text of a.lua. A file that the script already has is not added a second time.

use sha1_smol::Sha1;
use std::{env, fs, io};

const FOLDERS: [&str; 2] = ["src/lock/scripts", "src/lock/history"];

fn main() -> io::Result<()> {
    let output = env::var("OUT_DIR").map_err(io::Error::other)?;
    let mut files = Vec::new();
    for folder in FOLDERS {
        println!("cargo::rerun-if-changed={folder}");
        files.extend(fs::read_dir(folder)?);
    }
    for file in files {
        let file = file?.file_name();
        let Some(name) = file.to_str().and_then(|file| file.strip_suffix(".lua")) else { continue };
        let (mut script, mut included) = (String::new(), Vec::new());
        include("keys", &mut script, &mut included)?;
        include(name, &mut script, &mut included)?;
        // A server knows a script by its SHA1.
        fs::write(format!("{output}/{name}.sha1"), Sha1::from(&script).digest().to_string())?;
        fs::write(format!("{output}/{name}.lua"), script)?;
    }
    Ok(())
}

/// Adds the text of `name`.lua to the script, with the files that it includes, unless the script already has it
/// (`included`). Comment lines and indentation are left out, because a TAKE and its UNDO must fit into the 16 kB that a
/// server still reads after the client has gone.
fn include(name: &str, script: &mut String, included: &mut Vec<String>) -> io::Result<()> {
    if included.iter().any(|file| file == name) {
        return Ok(());
    }
    included.push(name.to_owned());
    let texts = FOLDERS.iter().map(|folder| fs::read_to_string(format!("{folder}/{name}.lua")));
    for line in texts.reduce(io::Result::or).transpose()?.unwrap_or_default().lines().map(str::trim_start) {
        if let Some(names) = line.strip_prefix("-- include ").or(line.strip_prefix("-- needs ")) {
            names.split(", ").try_for_each(|name| include(name, script, included))?;
        } else if !line.is_empty() && !line.starts_with("--") {
            script.extend([line, "\n"]);
        }
    }
    Ok(())
}
