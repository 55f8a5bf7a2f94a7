//! Looks at a lock, and combines the answers of the nodes.

use crate::error::{Error, NamedObstacle};
use crate::lock::history::read::{History, RunQuery};
use crate::lock::history::run::KEPT;
use crate::lock::terms::claim::Claim;
use crate::lock::terms::holder::{Holder, Leases, Obstacle, date, leases};
use crate::lock::terms::token;
use crate::lock::terms::waiter::Waiter;
use crate::lock::votes::quorum::{middle, quorum};
use crate::lock::wire::answer::Answer;
use crate::lock::wire::fields::Args;
use crate::lock::wire::locks::BatchQuery;
use crate::lock::{Lock, renewal_interval, scripts};
use crate::redis::{Answers, Fault};
use crate::text::first_of;
use serde::{Serialize, Serializer};
use std::fmt;
use std::iter::zip;
use std::time::Duration;

/// redlock asks for this many bytes of a key's value. If the prefix is empty, `list` meets keys of other programs, whose
/// values may be large.
const BYTES: u32 = 128;

/// What redlock asks about a lock. The answer names at most `holders` holders and `waiters` waiters, and counts all of
/// them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    holders: u32,
    waiters: u32,
    pub(crate) runs: Option<RunQuery>,
    /// The number of bytes of a token to ask for; None: the whole token.
    bytes: Option<u32>,
}

impl View {
    pub(crate) const STATE: View = View { holders: 1, waiters: 0, runs: None, bytes: Some(BYTES) };
    /// The holders with their whole tokens, by which a revocation names a lease; and whether any run is known.
    pub(in crate::lock) const STOP: View = View { runs: Some(RunQuery::LAST), bytes: None, ..View::MESSAGE };
    /// For a message about a lock that is not free.
    pub(crate) const MESSAGE: View = View { holders: 10, ..View::STATE };
    /// To judge whether the lock is in order, and for a row of a table.
    pub(crate) const CHECK: View = View {
        holders: 3,
        runs: Some(RunQuery { most: KEPT as usize, hosts: true, errors: true, ..RunQuery::LAST }),
        ..View::STATE
    };
    /// For a list in JSON.
    pub(crate) const LIST: View = View {
        waiters: 200,
        runs: Some(RunQuery { most: KEPT as usize, hosts: true, newest: true, errors: true, ..RunQuery::LAST }),
        ..View::CHECK
    };
    /// For a picture of these runs.
    pub(crate) fn of_runs(runs: RunQuery) -> View {
        View { runs: Some(runs), ..View::CHECK }
    }

    /// To find out what has become of the caller with the largest number of `--newest`.
    pub(in crate::lock) const NEWEST: View =
        View { waiters: 200, runs: Some(RunQuery { newest: true, ..RunQuery::ALL }), ..View::STATE };
    pub(crate) const WHOLE: View =
        View { holders: 200, runs: Some(RunQuery { newest: true, errors: true, ..RunQuery::ALL }), ..View::NEWEST };

    /// Adds the hosts that came to the lock, if `hosts` is true and the view has runs.
    pub(crate) fn with_hosts(self, hosts: bool) -> View {
        View { runs: self.runs.map(|runs| RunQuery { hosts, ..runs }), ..self }
    }

    /// The number of locks that one request may ask about: the answers may fill half of the limit in redis/stream.rs.
    /// In the answer about a lock, each holder takes at most 5 kB, and everything else at most 1.5 kB.
    pub(super) fn locks_at_a_time(self, nodes: usize) -> usize {
        let most = (2 << 20) / (1_500 + 5_000 * self.holders as usize);
        self.runs.map_or(most, |runs| most.min(runs.locks_at_a_time(nodes)))
    }

    pub(super) fn args(self) -> Args {
        let waiters = Some(self.waiters).filter(|&most| most > 0);
        Args::default().with_some("bytes", self.bytes).with("most", self.holders).with_some("waiters", waiters)
    }
}

/// The state of a lock over all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Free,
    Held,
    /// Free, but promised: to the next in line, or to the holder whose lease a restarted server has lost.
    Reserved,
    /// The holder cannot extend the lease any more.
    Revoked,
    /// Nobody holds the lock, and nobody gets it until it opens.
    Closed,
    /// Another program wrote the key, perhaps for something other than a lock.
    Foreign,
    /// Too few nodes answered to tell.
    Unknown,
}

/// The answer of one node about a lock.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct NodeAnswer {
    pub(crate) node: String,
    /// One word: free, closed, held, foreign, error, or unknown. Unknown: the node was started too recently to know.
    pub(crate) answer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
}

impl NodeAnswer {
    pub(super) fn of(node: String, answer: Result<&Answer, &Fault>) -> NodeAnswer {
        let (answer, detail) = match answer {
            Ok(Answer { by: None | Some(Obstacle::Reserved(_)), fields, .. }) => {
                (if fields.has("closed") { "closed" } else { "free" }, None)
            }
            Ok(Answer { by: Some(by), .. }) if by.holders().iter().any(Holder::has_record) => ("held", None),
            Ok(_) => ("foreign", None),
            Err(fault @ Fault::Quarantined { .. }) => ("unknown", Some(fault.to_string())),
            Err(fault) => ("error", Some(fault.to_string())),
        };
        NodeAnswer { node, answer, detail }
    }
}

impl Holder {
    /// The time since the last renewal, if the next one is overdue. None if nothing renews the lease, or if an extension
    /// has given it more time than a renewal gives.
    pub(crate) fn not_renewed(&self) -> Option<Duration> {
        let renewal = self.renewal.filter(|renewal| !renewal.is_zero() && self.revoked.is_none())?;
        renewal.checked_sub(self.lease?).filter(|last| *last > renewal_interval(renewal) * 3 / 2)
    }
}

/// All that is known of one lock.
#[derive(Debug, Serialize)]
pub(crate) struct Status {
    pub(crate) name: String,
    pub(crate) key: String,
    pub(crate) state: State,
    /// The time (since 1970, by the server's clock) at which the lock opens, and the user who has closed it; none if
    /// anybody may get the lock. Somebody may still hold a closed lock.
    #[serde(serialize_with = "date")]
    pub(crate) closed_until: Option<Duration>,
    pub(crate) closed_by: Option<String>,
    /// The claim of the holders; none if no holder is known, or redlock did not write the key.
    pub(crate) mode: Option<Claim>,
    /// The number of slots, if the lock has slots.
    pub(crate) limit: Option<u32>,
    /// None: the lock is free.
    #[serde(rename = "holders", serialize_with = "holders")]
    by: Option<Obstacle>,
    /// The number of all holders. [`Status::holders`] may have fewer.
    pub(crate) holder_count: u64,
    /// The number of waiters in line for the lock; none if no node has answered.
    pub(crate) waiting: Option<u64>,
    /// The first waiters; none unless the [`View`] asks for waiters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) waiters: Option<Vec<Waiter>>,
    #[serde(flatten)]
    pub(crate) history: History,
    /// Why the runs are not known.
    #[serde(skip)]
    pub(crate) history_error: Option<Error>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) nodes: Vec<NodeAnswer>,
    /// Why the state is not known.
    #[serde(skip)]
    pub(crate) unanswered: Option<Error>,
}

impl Status {
    /// The status of a lock that was never taken.
    pub(super) fn unused(name: &str, key: &str) -> Status {
        Status { waiters: Some(Vec::new()), ..combine(name, key, &[Some(&Answer::default())]) }
    }

    /// The time until the obstacle may end; see [`Obstacle::left`].
    pub(crate) fn lease(&self) -> Option<Duration> {
        self.by.as_ref().and_then(Obstacle::left)
    }

    pub(crate) fn holders(&self) -> &[Holder] {
        self.by.as_ref().map_or(&[], Obstacle::holders)
    }

    /// The refusal if the caller has not said which of several holders to stop.
    pub(in crate::lock) fn several(&self) -> String {
        let named = self.holders().iter().map(|holder| format!("{} (--token {})", holder, holder.short_token()));
        let all = first_of(named, usize::MAX, self.holder_count);
        format!("{:?} has several holders: {all}; give the --token of one, or --token all", self.name)
    }

    /// True if the lock has more holders than are named.
    pub(in crate::lock) fn is_cut(&self) -> bool {
        matches!(&self.by, Some(Obstacle::Leases(leases)) if leases.count > leases.holders.len() as u64)
    }

    /// The same status, if its runs are known.
    ///
    /// # Errors
    /// The reason why the runs are not known.
    pub(crate) fn with_runs(mut self) -> Result<Status, Error> {
        self.history_error.take().map_or(Ok(self), Err)
    }

    /// True if no server has ever seen the lock, as far as it knows.
    pub(crate) fn is_unseen(&self) -> bool {
        self.state == State::Free && self.history.is_unseen && self.waiting.unwrap_or(0) == 0
    }

    pub(crate) fn never_expires(&self) -> bool {
        self.by.as_ref().is_some_and(Obstacle::never_ends)
    }

    pub(in crate::lock) fn held(&self) -> NamedObstacle {
        // If the lock is free, the line is the obstacle.
        let by = self.by.clone().unwrap_or(Obstacle::Reserved(None));
        NamedObstacle { name: self.name.clone(), by, ..NamedObstacle::default() }
    }
}

impl Lock {
    /// Looks at the lock on all nodes, and changes nothing. The result names failed nodes, too. It always has the holder
    /// whose token is `named`, even if `view` asks for fewer holders.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if so many nodes refuse for good that no quorum is left, or if too few nodes report the runs.
    pub(crate) async fn inspect(&mut self, view: View, named: Option<&str>) -> Result<Status, Error> {
        let (name, key) = (self.name.clone(), self.keys.lock.clone());
        if self.locks.nodes.are_unused() {
            let nodes = vec![NodeAnswer { node: self.locks.nodes.name(0), answer: "free", detail: None }];
            let hosts = view.runs.filter(|runs| runs.hosts).map(|_| Vec::new());
            let history = History { hosts, ..History::default() };
            return Ok(Status { nodes, history, ..Status::unused(&name, &key) });
        }
        let named = named.map(|token| token::split(token).0);
        let call = self.call(&scripts::INSPECT, view.args().with_some("named", named));
        let together = |answers: &Answers<Answer>| {
            let each = (0..answers.nodes()).map(|node| answers.of(node).and_then(Result::ok));
            combine(&name, &key, &each.collect::<Vec<_>>())
        };
        let answers = self.locks.ask_each(&call, |answers| together(answers).state != State::Unknown).await;
        let mut status = together(&answers);
        if status.state == State::Unknown {
            let error = self.no_quorum(&answers);
            if !error.can_heal() {
                return Err(error);
            }
            status.unanswered = Some(error);
        }
        let named = |node| Some(NodeAnswer::of(self.locks.nodes.name(node), answers.of(node)?));
        status.nodes = (0..answers.nodes()).filter_map(named).collect();
        if let (Some(query), None) = (view.runs, &status.unanswered) {
            BatchQuery::of(&mut self.locks).add_history(&mut [&mut status], query).await?;
        }
        Ok(status)
    }
}

impl BatchQuery<'_> {
    /// Sets the history of each of these locks. If too few nodes report a history, sets `history_error` instead.
    ///
    /// # Errors
    /// The errors of [`BatchQuery::histories_of`].
    pub(super) async fn add_history(&mut self, locks: &mut [&mut Status], query: RunQuery) -> Result<(), Error> {
        let keys: Vec<&str> = locks.iter().map(|status| status.key.as_str()).collect();
        let histories = self.histories_of(&keys, query, true).await?;
        for (status, history) in zip(locks, histories) {
            match history {
                Ok(history) => status.history = history,
                Err(error) => status.history_error = Some(error.about(Some(&status.name))),
            }
            if let Some(newest) = &mut status.history.newest {
                newest.look_in_line(status.waiters.as_deref().unwrap_or_default(), status.waiting.unwrap_or(0));
            }
        }
        Ok(())
    }
}

/// The status that follows from the answers of all nodes. A lease is in force if a quorum of the nodes has it.
pub(super) fn combine(name: &str, key: &str, answers: &[Option<&Answer>]) -> Status {
    let needed = quorum(answers.len());
    let known: Vec<&Answer> = answers.iter().copied().flatten().collect();
    let silent = answers.len() - known.len();
    let obstacles: Vec<&Obstacle> = known.iter().filter_map(|answer| answer.by.as_ref()).collect();
    let leases = leases(&obstacles);
    let in_force = leases.iter().filter(|same| same.len() >= needed).map(|same| Holder::agreed(same, needed));
    let mut in_force: Vec<Holder> = in_force.collect();
    in_force.sort_by_key(|holder| holder.slot);
    let counts =
        obstacles.iter().filter_map(|by| if let Obstacle::Leases(leases) = by { Some(leases.count) } else { None });
    let count = middle(counts.collect(), answers.len()).unwrap_or(0).max(in_force.len() as u64);
    // The number of nodes with an obstacle of this kind, and the longest remaining time of these obstacles.
    let named = |is: fn(&Obstacle) -> bool| {
        let named = obstacles.iter().filter(|by| is(by));
        (named.clone().count(), named.filter_map(|by| by.left()).max())
    };
    let (other_types, other_left) = named(|by| matches!(by, Obstacle::OtherType(_)));
    let (reserved, reserved_left) = named(|by| matches!(by, Obstacle::Reserved(_)));
    let most = leases.iter().map(Vec::len).max().unwrap_or(0).max(other_types);
    let mode = in_force.iter().find(|holder| holder.has_record()).map(|holder| holder.claim);
    let closed = until_open(&known, needed);
    let closure = closed.and_then(|answer| Obstacle::closed(&answer.fields, "closed_left"));
    let (closed_by, closed_until) = match (&closure, closed) {
        (Some(Obstacle::Closed(by, left)), Some(answer)) => {
            (Some(by.clone()), answer.get("clock").as_time().map(|clock| clock + *left))
        }
        _ => (None, None),
    };
    let (state, by) = if !in_force.is_empty() {
        (State::of(&in_force), Some(Obstacle::Leases(Leases { holders: in_force, count, next: None })))
    } else if other_types >= needed {
        (State::Foreign, Some(Obstacle::OtherType(other_left)))
    } else if most + silent >= needed || known.len() < needed {
        (State::Unknown, Some(Obstacle::Unknown))
    } else if closure.is_some() {
        (State::Closed, closure)
    } else if reserved >= needed {
        (State::Reserved, Some(Obstacle::Reserved(reserved_left)))
    } else {
        // Even with all silent nodes added, no lease has a quorum.
        (State::Free, None)
    };
    // A waiter queues on every node that it reaches, so the longest line is the most complete.
    let line = known.iter().max_by_key(|answer| answer.count("waiting"));
    let lines: Vec<Vec<Waiter>> = known.iter().filter_map(|answer| Waiter::read_all(&answer.fields)).collect();
    let mut waiters = line.and_then(|line| Waiter::read_all(&line.fields));
    for waiter in waiters.iter_mut().flatten() {
        waiter.listening = waiter.listens_on_any(&lines);
    }
    Status {
        holder_count: if by.as_ref().is_some_and(|by| !by.holders().is_empty()) { count } else { 0 },
        history: History::default(),
        history_error: None,
        name: name.to_owned(),
        key: key.to_owned(),
        state,
        closed_until,
        closed_by,
        mode,
        limit: mode.and_then(Claim::limit),
        by,
        waiting: line.map(|line| line.count("waiting")),
        waiters,
        nodes: Vec::new(),
        unanswered: None,
    }
}

/// The answer of the node whose opening opens the lock: from then on, `needed` nodes are open. None: the lock is open. A
/// silent node counts as closed, as it does for a take.
fn until_open<'a>(known: &[&'a Answer], needed: usize) -> Option<&'a Answer> {
    let mut closed: Vec<&Answer> = known.iter().copied().filter(|answer| answer.fields.has("closed")).collect();
    closed.sort_by_key(|answer| answer.get("closed_left").as_time());
    let more = needed.saturating_sub(known.len() - closed.len());
    closed.get(more.checked_sub(1)?).or(closed.last()).copied()
}

/// The word for the state in JSON.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl State {
    fn of(holders: &[Holder]) -> State {
        match () {
            () if holders.iter().any(|holder| !holder.has_record()) => State::Foreign,
            () if holders.iter().all(|holder| holder.revoked.is_some()) => State::Revoked,
            () => State::Held,
        }
    }
}

fn holders<S: Serializer>(by: &Option<Obstacle>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(by.as_ref().map_or(&[][..], Obstacle::holders))
}
