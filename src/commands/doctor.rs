//! `redlock doctor`: checks whether the nodes are ready for locks.

use super::{DEFAULT_TTL, block_on, start_local};
use crate::cli::Common;
use crate::config::{self, Setting, Settings};
use crate::doctor::{self, Diagnosis, LockFacts, NodeFacts, Setup};
use crate::error::Error;
use crate::exit::Exit;
use crate::lock::{Missing, Selection, Status, View};
use crate::output;
use crate::redis::Local;
use futures_util::future::join;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub(crate) fn run(common: &Common) -> anyhow::Result<Exit> {
    let mut settings = config::settings(common)?;
    let local = start_local(&settings, Local::is_unused)?;
    settings.origins.extend(local.map(whereabouts));
    let warnings = settings.warnings.iter().chain(&settings.skipped).filter(|_| !common.quiet);
    warnings.for_each(|why| output::say(why));
    let findings = block_on(async {
        let (setup, nodes) = setup(&settings).await;
        Ok::<_, Error>(doctor::examine(&setup, &nodes))
    })?;
    output::checkup(&settings.origins, &findings, common)?;
    let fails = findings.iter().any(|finding| finding.verdict == Diagnosis::Fail);
    Ok(if fails { Exit::UNAVAILABLE } else { Exit::DONE })
}

/// True if every user may read or write this file.
fn is_exposed(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.mode() & 0o006 != 0)
}

/// A line about the server of `local:`: its socket, and how to stop the server, or that it does not run.
fn whereabouts(local: Local) -> Setting {
    let socket = local.socket();
    let from = match local.pid() {
        Some(pid) => format!("pid {pid}; redis-cli -s {} shutdown stops it", socket.display()),
        None => "not running; the first lock starts it".to_owned(),
    };
    Setting { variable: "local", value: socket.display().to_string().into(), from: from.into(), is_default: false }
}

/// Gathers the setup of the locks and the facts about the nodes at the same time, so that a node that hangs costs one
/// wait.
async fn setup(settings: &Settings) -> (Setup<'_>, Vec<NodeFacts>) {
    let mut on_nodes = super::locks(settings, DEFAULT_TTL);
    let nodes = doctor::gather(&settings.nodes, &settings.prefix, on_nodes.node_timeout());
    let mut locks = LockFacts::default();
    let add = |status: Status| {
        locks.add(&status);
        Ok(())
    };
    // This view asks for runs, their errors and hosts, to find locks whose history cannot be read.
    let view = View::CHECK;
    let listing = on_nodes.list(Selection { prefix: &settings.prefix, names: &[] }, view, true, add);
    let (listed, nodes) = join(listing, nodes).await;
    let setup = Setup {
        addresses: &settings.nodes,
        prefix: &settings.prefix,
        node_timeout: on_nodes.node_timeout(),
        replicas: settings.nodes[0].replicas(),
        quarantine: on_nodes.quarantine,
        is_default: settings.origins[0].is_default,
        exposed: settings.secrets.iter().filter(|file| is_exposed(file)).cloned().collect(),
        locks: listed.and_then(Missing::known).map(|_| locks).map_err(|error| error.trouble()),
    };
    (setup, nodes)
}
