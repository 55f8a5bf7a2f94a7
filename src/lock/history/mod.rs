//! The history of a lock: its runs, and the calls of its hosts.
//!
//! A run is one text in the list LOG, JSON whose letters the head of `log.lua` explains: pushed in front by the grant
//! (`begin.lua`), overwritten at its end (`end.lua::end_run`), deleted if nothing ran under the lease
//! (`forget.lua::forget_run`). **Invariant: no grant and no release fails because of the history**, but a grant with
//! `--once-per` must read it. Scripts write by pcall; a release tells the errors. Nothing is written when a lease runs
//! out, and renewals write nothing: a text without an end goes on while its token holds the lock on that node, else its
//! lease ran out (`run.rs::read`).
//! * **The end.** `redlock run` sends the whole run (`mod.rs::ended`), so a node that has forgotten everything notes it
//!   all the same. Its beginning is what the node's grant answered, by the node's own clock. A release by token tells a
//!   status; `revoke.lua` with force, who it was. A node that lacks the lease notes nothing before the client has
//!   judged all answers (`release.rs::report_end`). The first end stays; a later one may add the errors of the job, and
//!   a loss takes a success back (`end.lua::end_run`). So a repeated release changes nothing, and is answered what the
//!   log has: an end that a release told, another or none, or nothing, which is no proof: the log may have been cut.
//! * **`--once-per`.** `once.lua` compares the last success, and for `--tries` the runs that `try.lua` has counted,
//!   with a reach that the client sends: half a period and what it has waited (`periods.rs::looks_back`). One node's
//!   word turns a call away. How long a waiter stays depends on the holder (`queue.rs::end`), how it ends on
//!   `ask.rs::gives_up`. A run is counted after the grant by q nodes (`attempt.rs::count_try`): counted by the grant
//!   itself, a tie would turn everybody away (`tries.rs`).
//! * **`check`.** A call with `--once-per` notes in `expected` what it promises (`once.lua`). Any node's first call and
//!   success count, and of P and D what most say. `check.rs::findings` judges facts, without a clock and I/O; text,
//!   JSON, plugin and metrics are forms of its findings (`check.rs`). `crontabs.rs` asks it each five minutes of a
//!   year.
//! * **Bounds.** The end of a run cuts the log to its `--log N`. A grant leaves room for 20 more, for those that hold
//!   the lock together, and for tries that are undone. Redlock reads no more of a server's answer than such a log has.
//! * **Read.** `log.rs::run` → `listing.rs::log` finds the locks → `read.rs::histories_of` → `runs.lua` → `run.rs::read`,
//!   for each run → `read.rs::merge` → `log.rs` or `picture.rs`. TAKE notes each host's call
//!   (`visits.lua::note_visit`); `visits.rs::merge` combines the nodes' answers.

pub(super) mod newest;
pub mod periods;
pub(super) mod read;
pub(super) mod run;
pub(super) mod visits;
