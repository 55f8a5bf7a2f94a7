//! A Cluster of three masters. If a test needs failovers, each master has a replica.

use super::{Authority, Redis, Where, eventually, ms};
use redis::Value;
use std::time::{Duration, Instant};

/// The servers must agree within this time which masters and replicas exist, even if the machine is busy.
const AGREE: Duration = Duration::from_secs(30);
const MASTERS: usize = 3;
const SLOTS: usize = 16_384;

/// First three masters, then the masters' replicas, if any.
#[derive(Debug)]
pub(crate) struct Cluster(pub(crate) Vec<Redis>);

impl Where for Cluster {
    fn urls(&self) -> Vec<String> {
        vec![self.url()]
    }
}

impl Cluster {
    /// Three masters that share the slots. A silent master counts as dead only after a minute.
    pub(crate) fn start() -> Cluster {
        Cluster::with(MASTERS, "60000", &[])
    }

    /// Three masters with a replica each. A replica takes over when its master is silent for more than a second.
    pub(crate) fn with_replicas() -> Cluster {
        Cluster::with(2 * MASTERS, "1200", &[])
    }

    /// Three masters that speak TLS with clients and with each other.
    pub(crate) fn by_tls(authority: &Authority) -> Cluster {
        let arguments = authority.issue("IP:127.0.0.1", 2).everywhere(authority);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).chain(["--tls-cluster", "yes"]).collect();
        Cluster::with(MASTERS, "60000", &arguments)
    }

    fn with(servers: usize, node_timeout: &str, arguments: &[&str]) -> Cluster {
        let common = ["--cluster-enabled", "yes", "--cluster-node-timeout", node_timeout];
        let quick = ["--repl-diskless-sync-delay", "0", "--cluster-allow-replica-migration", "no"];
        let arguments = [arguments, &common, &quick].concat();
        let tls = arguments.contains(&"--tls-cert-file");
        let launch = if tls { Redis::with_tls_port } else { Redis::with_tcp };
        let servers: Vec<Redis> = (0..servers).map(|_| launch(&arguments)).collect();
        for (at, server) in servers.iter().enumerate() {
            server.command(&["CLUSTER", "SET-CONFIG-EPOCH", &(at + 1).to_string()]);
            if at < MASTERS {
                let slots = at * SLOTS / MASTERS..(at + 1) * SLOTS / MASTERS;
                let slots: Vec<String> = slots.map(|slot| slot.to_string()).collect();
                let mut request = vec!["CLUSTER", "ADDSLOTS"];
                request.extend(slots.iter().map(String::as_str));
                server.command(&request);
            }
            server.command(&["CLUSTER", "MEET", "127.0.0.1", &servers[0].port().to_string()]);
        }
        let cluster = Cluster(servers);
        let known = cluster.0.len().to_string();
        cluster.agrees(|server| info(server, "cluster_state") == "ok" && info(server, "cluster_known_nodes") == known);
        for (at, replica) in cluster.0.iter().enumerate().skip(MASTERS) {
            let master: String = cluster.0[at - MASTERS].query(&["CLUSTER", "MYID"]);
            replica.command(&["CLUSTER", "REPLICATE", &master]);
        }
        for replica in cluster.0.iter().skip(MASTERS) {
            eventually(AGREE, "replicated", || replica.info("master_link_status") == "up");
        }
        cluster
    }

    /// `redis+cluster://…`, without a password.
    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> = self.0.iter().map(Redis::address).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// The index of the master that answers requests for this key now, whatever the other servers say.
    #[track_caller]
    pub(crate) fn owner(&self, key: &str) -> usize {
        let start = Instant::now();
        loop {
            let owns = |server: &Redis| {
                server.try_query::<String>(&["TYPE", key]).is_ok()
                    && server
                        .try_query::<String>(&["INFO", "replication"])
                        .is_ok_and(|text| text.contains("role:master"))
            };
            if let Some(owner) = self.0.iter().position(owns) {
                return owner;
            }
            assert!(start.elapsed() < AGREE, "the slot of {key} has no master");
            std::thread::sleep(ms(10));
        }
    }

    /// The value of a key, from the master that answers for it now.
    #[track_caller]
    pub(crate) fn get(&self, key: &str) -> Option<String> {
        self.0[self.owner(key)].get(key)
    }

    /// Begins to move the slot of this key to master `to`. Until `end_move`, the servers answer some requests for the
    /// slot with ASK or TRYAGAIN.
    #[track_caller]
    pub(crate) fn begin_move(&self, key: &str, to: usize) {
        let (from, slot) = (&self.0[self.owner(key)], self.slot(key));
        let id = |server: &Redis| server.query::<String>(&["CLUSTER", "MYID"]);
        self.0[to].command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &id(from)]);
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &id(&self.0[to])]);
    }

    /// Between `begin_move` and `end_move`: moves at most `most` keys of the slot of `key`, and returns how many it
    /// moved.
    #[track_caller]
    pub(crate) fn move_keys(&self, key: &str, from: usize, to: usize, most: usize) -> usize {
        let keys: Vec<String> = self.0[from].query(&["CLUSTER", "GETKEYSINSLOT", &self.slot(key), &most.to_string()]);
        for key in &keys {
            let port = self.0[to].port().to_string();
            let _: Value = self.0[from].query(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        }
        keys.len()
    }

    /// Ends a move that `begin_move` began.
    #[track_caller]
    pub(crate) fn end_move(&self, key: &str, to: usize) {
        let (slot, id) = (self.slot(key), self.0[to].query::<String>(&["CLUSTER", "MYID"]));
        // The new master comes first, because it informs the other servers itself.
        for server in std::iter::once(&self.0[to]).chain(&self.0).take(MASTERS + 1) {
            server.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id]);
        }
    }

    /// Makes the master of this key believe that master `to` owns the key's slot, which must have no keys. No other
    /// server learns of it.
    #[track_caller]
    pub(crate) fn disown(&self, key: &str, to: usize) {
        let id = self.0[to].query::<String>(&["CLUSTER", "MYID"]);
        self.0[self.owner(key)].command(&["CLUSTER", "SETSLOT", &self.slot(key), "NODE", &id]);
    }

    /// Moves the slot of this key, with all its keys, to another master. Returns that master's index.
    #[track_caller]
    pub(crate) fn reshard(&self, key: &str) -> usize {
        let from = self.owner(key);
        let to = (from + 1) % MASTERS;
        self.begin_move(key, to);
        while self.move_keys(key, from, to, 10) > 0 {}
        self.end_move(key, to);
        to
    }

    fn slot(&self, key: &str) -> String {
        self.0[0].query::<u16>(&["CLUSTER", "KEYSLOT", key]).to_string()
    }

    #[track_caller]
    fn agrees(&self, is: impl Fn(&Redis) -> bool) {
        eventually(AGREE, "the Cluster agrees", || self.0.iter().all(&is));
    }
}

fn info(server: &Redis, field: &str) -> String {
    let info: String = server.query(&["CLUSTER", "INFO"]);
    let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in CLUSTER INFO")).to_owned()
}
