//! Waiting: in line for the lock, or until it is free.
//!
//! A number with a word, 12 (`Clocks`), is a result of the models (tests/model): without the clause `Clocks`, a search
//! finds a fault after 12 steps.
//!
//! ```text
//! B → server   SUBSCRIBE w:B, and waits until that is confirmed
//! B → server   TAKE, waiter B       held, rank 0, time left
//! A → server   RELEASE              one script: DEL K L H; ZPOPMIN Q is B; PUBLISH w:B go, heard by 1; SET R B PX 1000
//! B → server   TAKE, waiter B       R is B: granted
//! ```
//! * A waiter subscribes before it queues. After each subscription it *looks* (sends TAKE): it may have missed a call.
//! * The script that frees the lock takes the first waiter out of the line, and sends this waiter `go`. The waiter that
//!   is first now is sent `head`. A hand-over costs two requests, three if others wait, for a line of any length.
//! * PUBLISH tells how many clients listen. If none does, the waiter is dead: the script drops this waiter, and calls
//!   the next. One script drops all dead waiters in front of a live waiter (10,000 take some 50 ms, once).
//! * **Invariant: no waiter is dropped by a clock.** A waiter whose socket is closed is dead. A clock cannot tell dead
//!   from frozen waiters, and frozen waiters would be overtaken: 12 (`Clocks`).
//! * The lock stays reserved for 1000 ms (`line.lua::RESERVED_MS`). A waiter frozen for longer keeps its old ticket.
//! * Calls get lost; other libraries send none. So the first in line looks every 400 ms (`queue.rs::FIRST_LOOKS`), the
//!   waiter at rank r every r + 1 s, at least once in 60 s (`queue.rs::OTHERS_LOOK`), all when the lease runs out.
//! * N > 1: the ticket is the client's time, the same on all nodes: 19 (`OneTicket`). A try that gets fewer than q
//!   nodes is undone, but keeps its ticket: 26 (`KeepsPlace`). The next try comes after a random pause, or tries
//!   collide again.
//! * `--newest`: NEWEST grows when a number is queued or granted (`newest.lua`): 6 (`LineRaises`), 6 (`GrantRaises`).
//!   Each TAKE with a smaller number gets `superseded`: 4 (`EachLook`). Such a waiter leaves: 4 (`SupersededLeaves`).
//! * N = 1: a waiter remembers the lease that it has seen (`attempt.rs::LastSeenLease`). If the server restarts empty,
//!   the waiter's TAKE reserves the lock for the holder of that lease, before newcomers (`take.lua::keep_for_holder`).
//!
//! **Invariant: a node grants a lease only if the node knows no live lease that conflicts** (`line.lua::fits`; for
//! re-creation `lease.lua::is_vacant`). Two leases fit together if both are shared, or different slots of the same L.
//! * **Calls.** A script that ends a lease, or grants a lease beside which others fit, calls one waiter, unless R is
//!   there. The first in line is sent `go` if its claim fits, else `head`: a writer in line holds back later readers.
//!   The script knows a waiter's claim by the initial of the waiter's name (`line.lua::claim_of`). Without these rules
//!   wake-ups get lost: 8 (`CallsWhoFits`), 8 (`GrantCalls`), or a waiter is overtaken: 6 (`OneCall`).

pub(super) mod free;
pub(super) mod queue;
