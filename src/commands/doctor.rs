//! `redlock doctor`: whether the nodes are ready for locks.

use super::{DEFAULT_TTL, block_on, start_local, talk};
use crate::cli::{Common, Format};
use crate::config::{self, Setting, Settings};
use crate::doctor::{self, Diagnosis, Practice};
use crate::exit::Exit;
use crate::lock::Status;
use crate::output;
use crate::redis::Local;
use std::time::Duration;

pub(crate) fn run(common: &Common) -> anyhow::Result<Exit> {
    let mut settings = config::settings(common)?;
    let local = start_local(&settings)?;
    settings.told.extend(local.map(whereabouts));
    settings.left_out.iter().for_each(|why| talk(why));
    let findings = block_on(async {
        let practice = practice(&settings).await;
        Ok(doctor::examine(&practice).await)
    })?;
    match common.format {
        Format::Json => output::checkup_json(&settings.told, &findings)?,
        _ => output::checkup(&settings.told, &findings, common.quiet, common.verbose)?,
    }
    let fails = findings.iter().any(|finding| finding.verdict == Diagnosis::Fail);
    Ok(if fails { Exit::Unavailable } else { Exit::Done })
}

/// Where the server of `local:` is, and how to stop it.
fn whereabouts(local: Local) -> Setting {
    let socket = local.socket();
    let pid = local.pid().map_or_else(String::new, |pid| format!("pid {pid}; "));
    let from = format!("{pid}redis-cli -s {} shutdown stops it", socket.display());
    Setting { name: "local", value: socket.display().to_string(), from }
}

async fn practice(settings: &Settings) -> Practice<'_> {
    let mut lock = settings.lock("", &settings.prefix, DEFAULT_TTL);
    let longest = |all: Vec<Status>| all.iter().filter_map(|status| Some(status.holder()?.longest())).max();
    let longest_lease = lock.list(&settings.prefix, &[]).await.map(|all| longest(all).unwrap_or(Duration::ZERO));
    Practice {
        addresses: &settings.nodes,
        prefix: &settings.prefix,
        given_timeout: settings.node_timeout,
        node_timeout: lock.node_timeout(),
        replicas: settings.nodes[0].replicas(),
        quarantine: lock.quarantine(),
        longest_lease: longest_lease.map_err(|error| error.trouble()),
    }
}
