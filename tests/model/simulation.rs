//! The fencing protocol under everything that may happen to it, by chance but repeatably: requests and replies are lost
//! or overtake each other, leases end while their client is between two steps, clocks disagree and jump back, clients
//! crash, nodes lose their memory. The client decides by the real [`fencing::vote`] and [`Tally`]; a node is a model of what
//! the scripts do to {holder, counter}, which are compared with the real scripts elsewhere. No clock, no I/O.
//!
//! # What is claimed
//!
//! A *win* is a lease of which q nodes are known to have stood at its fencing token while they had the lease: the
//! moment when a client may use the token. Let A and B be two wins. Then
//!
//! 1. their tokens differ;
//! 2. on every node of both quorums, the one whose lease was granted later has the larger token;
//! 3. if all of B's quorum granted B after the last node of A's had stored A's token, B's token is the larger one.
//!
//! Any two quorums share a node, and on one node leases come one after the other, so 2 puts any two wins into an order,
//! and implies the others; they are checked on their own because they are what users rely on. 3 asks for more than "B
//! came after A's lease had been released or had run out", since that is later than A's confirmation. Whether A's lease
//! was cut short does not matter to any of them: here a lease ends whenever it likes.
//!
//! # Lost memory
//!
//! A node that forgets its counter starts at the client's clock again, which has to be ahead of every token that the
//! node may have seen. Tokens run at most δ ahead of true time when clocks are that much off and a lock is granted no
//! more than once a millisecond; a vote counts again after the quarantine, and was asked for a timeout earlier at
//! most. So it holds while quarantine > timeout + 2δ, and nodes forget only in runs that keep to this.

use super::fencing;
use super::quorum::{Tally, Verdict};

const MOST_NODES: usize = 5;
/// One step of a run is a millisecond, and at most one thing happens in it.
const STEPS: u64 = 12_000;
const TTL: u64 = 600;
/// Until the vote of a node that has lost its memory counts again.
const QUARANTINE: u64 = TTL;
const NODE_TIMEOUT: u64 = 240;
/// How far clocks may be off in runs where nodes forget: QUARANTINE > NODE_TIMEOUT + 2 * SKEW.
const SKEW: u64 = 150;
/// What the clocks begin at, so that they can be behind.
const EPOCH: u64 = 1_000_000;

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Protocol {
    /// What the code does.
    AsBuilt,
    /// The write-back sets the counter whoever has the lock, and whatever the counter stands at.
    UnconditionalWriteBack,
    /// The write-back looks at the counter, but not at whose lease it is. (The other way round no violation can be
    /// found: as long as a lease lasts nobody else counts on its node. The counter is looked at for safety's sake.)
    WriteBackToAnybody,
    /// The largest counter of the grants is the token, and nobody is told.
    NoWriteBack,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clocks {
    /// They stand still: only counting keeps tokens apart.
    Stopped,
    /// They have nothing to do with each other, and jump in both directions.
    Wild,
    /// They are off by [`SKEW`] at most, within which they jump; in return nodes lose their memory.
    WithinBounds,
}

#[derive(Clone, Copy, Debug)]
struct Setting {
    protocol: Protocol,
    nodes: usize,
    clocks: Clocks,
    seed: u64,
}

/// xorshift64*: as good as needed, and the same everywhere.
struct Chance(u64);

impl Chance {
    fn new(seed: u64) -> Chance {
        // Small seeds have few bits; the first numbers would all be alike.
        let mut chance = Chance(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        chance.below(2);
        chance
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }

    fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("smaller than the end")
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

/// What the scripts keep on one node, as far as fencing is concerned.
#[derive(Clone, Copy, Default)]
struct Node {
    holder: Option<u32>,
    expires: u64,
    counter: u64,
    /// Votes do not count before this moment.
    quarantined_until: u64,
}

#[derive(Clone, Copy)]
enum What {
    Take { clock: u64 },
    Fence { token: u64 },
    Rejoin { token: u64 },
    Leave,
    Granted { counter: u64, at: u64, counts: bool },
    Held,
    Raised { at: u64 },
    NotRaised,
}

#[derive(Clone, Copy)]
struct Message {
    client: usize,
    node: usize,
    lease: u32,
    what: What,
}

/// One answer to `take`.
#[derive(Clone, Copy)]
enum Answer {
    Granted { counter: u64, at: u64 },
    No,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    Asking,
    Raising,
    Holding,
}

/// A node that stands at the token of a lease: when it granted the lease, and when it reached the token.
#[derive(Clone, Copy)]
struct Standing {
    node: usize,
    granted: u64,
    stored: u64,
}

struct Client {
    doing: Doing,
    lease: u32,
    answers: [Option<Answer>; MOST_NODES],
    /// Looks at all the answers that it can get, not just at enough of them.
    patient: bool,
    token: u64,
    needed: usize,
    raised: usize,
    standing: Vec<Standing>,
    /// Questions about the present lease whose reply has neither arrived nor been lost.
    under_way: usize,
    give_up: u64,
    /// How far ahead of [`EPOCH`] its clock was at the start.
    ahead: u64,
}

#[derive(Clone, Copy)]
struct Win {
    token: u64,
    first_grant: u64,
    stored: u64,
}

/// What the wins of one run were, and on each node: when the lease was granted, the token.
struct History {
    wins: Vec<Win>,
    of_node: [Vec<(u64, u64)>; MOST_NODES],
    written_back: usize,
    forgotten: usize,
}

impl History {
    /// Checks the three claims; says what is wrong.
    fn check(&self) -> Result<(), String> {
        let mut tokens: Vec<u64> = self.wins.iter().map(|win| win.token).collect();
        tokens.sort_unstable();
        if let Some(twice) = tokens.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("two leases have the token {}", twice[0]));
        }
        for (node, wins) in self.of_node.iter().enumerate() {
            let mut wins = wins.clone();
            wins.sort_unstable();
            if let Some(pair) = wins.windows(2).find(|pair| pair[0].1 >= pair[1].1) {
                return Err(format!("node {node} granted (when, token) {pair:?}"));
            }
        }
        let (mut by_grant, mut by_storing) = (self.wins.clone(), self.wins.clone());
        by_grant.sort_unstable_by_key(|win| win.first_grant);
        by_storing.sort_unstable_by_key(|win| win.stored);
        let mut earlier = by_storing.iter().peekable();
        let mut largest = None;
        for win in &by_grant {
            while let Some(before) = earlier.next_if(|before| before.stored < win.first_grant) {
                largest = largest.max(Some(before.token));
            }
            if largest >= Some(win.token) {
                return Err(format!("{} came after {largest:?} had been confirmed", win.token));
            }
        }
        Ok(())
    }
}

struct Simulation {
    setting: Setting,
    chance: Chance,
    now: u64,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    wire: Vec<Message>,
    leases: u32,
    /// One step in so many is a misfortune.
    luck: u64,
    /// A client that has nothing to do begins once in so many times.
    leisure: u64,
    history: History,
}

impl Simulation {
    fn run(setting: Setting) -> History {
        let mut chance = Chance::new(setting.seed);
        let clients = 2 + chance.index(3);
        let luck = [5, 10, 40][chance.index(3)];
        let leisure = [1, 4, 8][chance.index(3)];
        let client = || Client {
            doing: Doing::Nothing,
            lease: 0,
            answers: [None; MOST_NODES],
            patient: false,
            token: 0,
            needed: 0,
            raised: 0,
            standing: Vec::new(),
            under_way: 0,
            give_up: 0,
            ahead: SKEW,
        };
        let mut simulation = Simulation {
            setting,
            chance,
            now: 0,
            nodes: vec![Node::default(); setting.nodes],
            clients: (0..clients).map(|_| client()).collect(),
            wire: Vec::new(),
            leases: 0,
            luck,
            leisure,
            history: History { wins: Vec::new(), of_node: Default::default(), written_back: 0, forgotten: 0 },
        };
        while simulation.now < STEPS {
            simulation.now += 1;
            simulation.step();
        }
        simulation.history
    }

    fn step(&mut self) {
        if self.chance.once_in(self.luck) {
            self.misfortune();
        } else if !self.wire.is_empty() && !self.chance.once_in(8) {
            let at = self.chance.index(self.wire.len());
            let message = self.wire.swap_remove(at);
            self.deliver(message);
        } else {
            let client = self.chance.index(self.clients.len());
            self.act(client);
        }
    }

    /// What nobody has asked for.
    fn misfortune(&mut self) {
        let node = self.chance.index(self.nodes.len());
        let client = self.chance.index(self.clients.len());
        match self.chance.below(16) {
            // The lease ends early: a server's clock jumped, somebody deleted it.
            0..3 => self.nodes[node].holder = None,
            3 => self.clients[client].doing = Doing::Nothing, // crashed, and started anew
            4..8 => {
                self.clients[client].ahead = match self.setting.clocks {
                    Clocks::Stopped => 0,
                    Clocks::Wild => self.chance.below(2 * STEPS),
                    Clocks::WithinBounds => self.chance.below(2 * SKEW + 1),
                }
            }
            8 if self.setting.clocks == Clocks::WithinBounds && self.chance.once_in(8) => {
                self.nodes[node] = Node { quarantined_until: self.now + QUARANTINE, ..Node::default() };
                self.history.forgotten += 1;
            }
            _ => {}
        }
    }

    fn clock(&self, client: usize) -> u64 {
        match self.setting.clocks {
            Clocks::Stopped => 0,
            _ => EPOCH - SKEW + self.now + self.clients[client].ahead,
        }
    }

    /// A client does something of its own accord.
    fn act(&mut self, client: usize) {
        match self.clients[client].doing {
            // Rivals that come all at once mostly get a part each.
            Doing::Nothing if self.chance.once_in(self.leisure) => {
                self.leases += 1;
                let what = What::Take { clock: self.clock(client) };
                let patient = self.chance.once_in(4);
                let me = &mut self.clients[client];
                me.doing = Doing::Asking;
                me.lease = self.leases;
                me.answers = [None; MOST_NODES];
                me.patient = patient;
                me.under_way = 0;
                self.ask(client, (1 << self.setting.nodes) - 1, what);
            }
            Doing::Nothing => {}
            Doing::Asking | Doing::Raising => {
                if self.clients[client].under_way == 0 || self.chance.once_in(30) {
                    self.out_of_time(client);
                }
            }
            Doing::Holding if self.chance.once_in(4) => {
                // After a renewal, a node that said "gone" gets the lease once more.
                let node = self.chance.index(self.nodes.len());
                let me = &self.clients[client];
                let what = What::Rejoin { token: me.token };
                self.wire.push(Message { client, node, lease: me.lease, what });
            }
            Doing::Holding if self.chance.once_in(5) => {
                self.clients[client].doing = Doing::Nothing; // left to expire
            }
            Doing::Holding => self.undo(client),
        }
    }

    /// Asks the nodes that `nodes` has a bit for.
    fn ask(&mut self, client: usize, nodes: usize, what: What) {
        let me = &mut self.clients[client];
        me.give_up = self.now + NODE_TIMEOUT;
        for node in (0..self.nodes.len()).filter(|node| nodes & 1 << node != 0) {
            self.wire.push(Message { client, node, lease: me.lease, what });
            me.under_way += 1;
        }
    }

    /// Gives the lease back wherever it may be, with requests that may come before what they undo.
    fn undo(&mut self, client: usize) {
        let me = &mut self.clients[client];
        me.doing = Doing::Nothing;
        let lease = me.lease;
        for node in 0..self.nodes.len() {
            self.wire.push(Message { client, node, lease, what: What::Leave });
        }
    }

    fn deliver(&mut self, message: Message) {
        let lost = self.chance.once_in(25);
        let current = message.lease == self.clients[message.client].lease;
        match message.what {
            What::Take { .. } | What::Fence { .. } => {
                if lost {
                    self.clients[message.client].under_way -= usize::from(current);
                } else {
                    let what = self.serve(&message);
                    self.wire.push(Message { what, ..message });
                }
            }
            What::Rejoin { .. } | What::Leave => {
                if !lost {
                    self.serve(&message);
                }
            }
            What::Granted { .. } | What::Held | What::Raised { .. } | What::NotRaised => {
                if current {
                    self.clients[message.client].under_way -= 1;
                    if !lost {
                        self.hear(&message);
                    }
                }
            }
        }
    }

    /// take.lua, fence.lua, recreate.lua, and what undo.lua and release.lua have in common.
    fn serve(&mut self, message: &Message) -> What {
        let (now, protocol) = (self.now, self.setting.protocol);
        let node = &mut self.nodes[message.node];
        if node.expires <= now {
            node.holder = None;
        }
        let ours = node.holder == Some(message.lease);
        match message.what {
            What::Take { clock } if node.holder.is_none() => {
                node.holder = Some(message.lease);
                node.expires = now + TTL;
                node.counter = (node.counter + 1).max(clock);
                What::Granted { counter: node.counter, at: now, counts: now >= node.quarantined_until }
            }
            What::Fence { token } => {
                let may = match protocol {
                    Protocol::UnconditionalWriteBack => true,
                    Protocol::WriteBackToAnybody => node.counter <= token,
                    Protocol::AsBuilt | Protocol::NoWriteBack => ours && node.counter <= token,
                };
                if !may {
                    return What::NotRaised;
                }
                node.counter = token;
                What::Raised { at: now }
            }
            What::Rejoin { token } if node.holder.is_none() => {
                node.holder = Some(message.lease);
                node.expires = now + TTL;
                node.counter = node.counter.max(token);
                What::Held
            }
            What::Leave if ours => {
                node.holder = None;
                What::Held
            }
            _ => What::Held,
        }
    }

    /// A reply to the present question.
    fn hear(&mut self, message: &Message) {
        let nodes = self.nodes.len();
        let now = self.now;
        let me = &mut self.clients[message.client];
        let waits = matches!(me.doing, Doing::Asking | Doing::Raising);
        if waits && now > me.give_up {
            self.out_of_time(message.client);
            return;
        }
        match (me.doing, message.what) {
            (Doing::Asking, What::Granted { counter, at, counts: true }) => {
                me.answers[message.node] = Some(Answer::Granted { counter, at });
            }
            (Doing::Asking, What::Granted { .. } | What::Held) => {
                me.answers[message.node] = Some(Answer::No);
            }
            (Doing::Raising, What::Raised { at }) => {
                me.raised += 1;
                let granted = match me.answers[message.node] {
                    Some(Answer::Granted { at, .. }) => at,
                    _ => unreachable!("only nodes that granted are raised"),
                };
                me.standing.push(Standing { node: message.node, granted, stored: at });
                if me.raised >= me.needed {
                    self.win(message.client);
                }
                return;
            }
            _ => return,
        }
        match tally(&me.answers[..nodes]).verdict() {
            Verdict::Open => {}
            Verdict::Yes if me.patient && me.under_way > 0 => {}
            Verdict::Yes => self.confirm(message.client),
            Verdict::No => self.undo(message.client),
        }
    }

    /// Nothing more comes in time: only a client that had enough goes on.
    fn out_of_time(&mut self, client: usize) {
        let me = &self.clients[client];
        let in_time = self.now <= me.give_up;
        match tally(&me.answers[..self.nodes.len()]).verdict() {
            Verdict::Yes if me.doing == Doing::Asking && in_time => self.confirm(client),
            _ => self.undo(client),
        }
    }

    /// A quorum has granted the lease.
    fn confirm(&mut self, client: usize) {
        let nodes = self.nodes.len();
        let me = &mut self.clients[client];
        let mut grants = Vec::with_capacity(nodes);
        for (node, answer) in me.answers.iter().enumerate() {
            if let Some(Answer::Granted { counter, .. }) = *answer {
                grants.push((node, counter));
            }
        }
        let mut vote = fencing::vote(&grants, nodes, 0);
        if self.setting.protocol == Protocol::NoWriteBack {
            vote.behind.clear();
            vote.needed = 0;
        }
        me.token = vote.token;
        me.needed = vote.needed;
        me.raised = 0;
        me.standing.clear();
        let mut behind = 0;
        for (node, answer) in me.answers.iter().enumerate() {
            match *answer {
                _ if vote.behind.contains(&node) => behind |= 1 << node,
                Some(Answer::Granted { at, .. }) => {
                    me.standing.push(Standing { node, granted: at, stored: at });
                }
                _ => {}
            }
        }
        if vote.needed == 0 {
            self.win(client);
        } else {
            me.doing = Doing::Raising;
            self.ask(client, behind, What::Fence { token: vote.token });
            self.history.written_back += 1;
        }
    }

    fn win(&mut self, client: usize) {
        let me = &mut self.clients[client];
        me.doing = Doing::Holding;
        let mut win = Win { token: me.token, first_grant: u64::MAX, stored: 0 };
        for standing in &me.standing {
            win.first_grant = win.first_grant.min(standing.granted);
            win.stored = win.stored.max(standing.stored);
            self.history.of_node[standing.node].push((standing.granted, me.token));
        }
        self.history.wins.push(win);
    }
}

fn tally(answers: &[Option<Answer>]) -> Tally {
    let mut tally = Tally { nodes: answers.len(), yes: 0, no: 0 };
    for answer in answers.iter().flatten() {
        match answer {
            Answer::Granted { .. } => tally.yes += 1,
            Answer::No => tally.no += 1,
        }
    }
    tally
}

/// Every setting of a protocol, `seeds` times.
fn settings(protocol: Protocol, seeds: u64) -> impl Iterator<Item = Setting> {
    let clocks = [Clocks::Stopped, Clocks::Wild, Clocks::WithinBounds];
    (0..seeds).flat_map(move |seed| {
        clocks
            .into_iter()
            .flat_map(move |clocks| (1..=MOST_NODES).map(move |nodes| Setting { protocol, nodes, clocks, seed }))
    })
}

/// The first violation that a protocol with a fault shows.
fn violation(protocol: Protocol) -> Option<String> {
    settings(protocol, 60).find_map(|setting| {
        let found = Simulation::run(setting).check().err()?;
        Some(format!("{setting:?}: {found}"))
    })
}

#[test]
fn no_token_comes_twice_and_none_is_smaller_than_an_earlier_one() {
    let (mut written_back, mut forgotten) = (0, 0);
    let mut wins = [0; MOST_NODES];
    for setting in settings(Protocol::AsBuilt, 60) {
        let history = Simulation::run(setting);
        if let Err(wrong) = history.check() {
            panic!("{setting:?}: {wrong}");
        }
        wins[setting.nodes - 1] += history.wins.len();
        written_back += history.written_back;
        forgotten += history.forgotten;
    }
    // A simulation in which little happens proves little.
    assert!(wins.iter().sum::<usize>() >= 100_000, "{wins:?} acquisitions on 1, 2, … nodes");
    assert!(wins.iter().all(|&wins| wins >= 5_000), "{wins:?} acquisitions on 1, 2, … nodes");
    assert!(written_back >= 10_000, "{written_back} write-backs");
    assert!(forgotten >= 1_000, "{forgotten} times a node lost its memory");
}

#[test]
fn the_checker_finds_what_an_unconditional_write_back_breaks() {
    assert!(violation(Protocol::UnconditionalWriteBack).is_some());
    assert!(violation(Protocol::WriteBackToAnybody).is_some());
}

#[test]
fn the_checker_finds_what_a_missing_write_back_breaks() {
    assert!(violation(Protocol::NoWriteBack).is_some());
}
