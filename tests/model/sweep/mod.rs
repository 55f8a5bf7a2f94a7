//! Leases that run out beside a mark, on one node: each script forgets a few of them, here one, there a hundred. Every order of
//! every script of five leases with a clock between them, breadth first; one script may also see the clock go on while it runs,
//! as servers before Redis 7.2 do.
//!
//! The keys are modelled as Redis has them (what a script has read of the lock it believes to its end, unless it says itself that
//! it has changed), and beside them what the node has promised: which lease, for how long, at which place. What must hold:
//!
//! * no promise is given beside another that conflicts with it;
//! * a lease that has not run out is known, and one that has is not;
//! * nobody is turned away by leases that have run out, and those are not counted;
//! * no place has two leases; no mark stays without a lease, and no list for good.

use super::bits::{Field, packed, variants};
use super::search::{Space, goes_wrong, is_clean};
use node::{Late, Script};

mod node;

/// How many leases that have run out a script forgets.
const SWEPT: usize = 1;
const TOKENS: usize = 5;
/// Without an expiry.
const FOREVER: u8 = 7;

/// A clause of the scripts that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    /// The head of each script forgets leases that have run out.
    Sweep,
    /// It forgets only such.
    SweepLooks,
    /// It deletes the mark when none is left that has not; here, when none is listed.
    FirstLooks,
    /// drop() does.
    DropLooks,
    /// Whoever deletes the mark knows for the rest of the script that there is none.
    SaysSo,
    /// drop() looks whether the mark is still there: the clock may have gone past what it has set.
    LooksAgain,
    /// A lease that is listed and has run out is nobody's.
    MineLooks,
    /// A request forgets first what has run out at the place that it names.
    PlaceForgotten,
    /// A place is free when it is not listed; here, also when the lease that has it has run out.
    PlacesDoNotLook,
    /// The same for a request that gives back a place.
    VacantDoesNotLook,
    /// A place that is listed twice is taken.
    AtLeast,
    /// Only those are counted that have not run out.
    CountsLook,
    /// The key lasts as long as the last lease.
    LastsAsLong,
    /// The lists do.
    ListsExpire,
    /// A grant beside no mark sets one, and deletes the lists that there may be.
    GrantClears,
}

variants! {
    Key { Free, Token, Shared, Slots }
}

packed! {
    /// A lease: in the lists of the node, and as it was promised.
    Lease {
        listed: bool = 1,
        /// Until the deadline in the list; 0: it has run out.
        left: u8 = 2,
        placed: bool = 1,
        place: u8 = 2,
        /// How long it was promised for; 0: it was not, or no longer.
        promised: u8 = 2,
        /// At which place.
        at: u8 = 2,
    }
}

packed! {
    State {
        leases: [Lease; TOKENS],
        key: Key = 2,
        /// Whose the key is, if it is a token.
        whose: u8 = 3,
        /// Until the key expires: at 0 it is still there.
        left: u8 = 3,
        /// The same of the lists.
        lists: u8 = 3,
    }
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    claims: [Key; TOKENS],
    ttl: [u8; TOKENS],
    /// How many places there are.
    limit: u8,
    /// The clock may go on while a script runs.
    late: bool,
    /// Only what is promised is looked at, not the keys, nor who is turned away.
    promises_only: bool,
    without: &'static [Without],
}

const TWO_HOLDERS: &str = "two promises that conflict";
const FORGOTTEN: &str = "a lease that has not run out was forgotten";
const CAME_BACK: &str = "a lease that has run out is there";
const FALSE_BUSY: &str = "turned away by leases that have run out";
const COUNTED: &str = "leases that have run out were counted";
const TWO_AT_A_PLACE: &str = "two leases at a place";
const LEFT_BEHIND: &str = "something is left behind";
const NO_PLACE: &str = "no place was found";

type Checked<T = ()> = Result<T, &'static str>;

/// What a client asks for its lease.
#[derive(Clone, Copy, Debug)]
enum Request {
    /// At a place; none: at any.
    Take(Option<u8>),
    /// The same behind an earlier try, which it drops first: that of the next token.
    TakeAgain(Option<u8>),
    Extend(Option<u8>),
    Recreate(u8),
    Fence(u8),
    Release,
    Keep,
    Undo,
    Force,
    ForceAll,
    /// By a version that knows only exclusive leases: the lists stay.
    OlderForce,
}

impl State {
    fn delete_key(&mut self) {
        (self.key, self.whose, self.left) = (Key::Free, 0, 0);
    }

    fn delete_lists(&mut self) {
        self.lists = FOREVER;
        self.leases.iter_mut().for_each(|lease| (lease.listed, lease.placed) = (false, false));
    }

    fn is_mark(&self) -> bool {
        matches!(self.key, Key::Shared | Key::Slots)
    }

    fn tick(&mut self) {
        let lasts = |left: &mut u8| {
            let over = *left == 0;
            *left = if *left == FOREVER { FOREVER } else { left.saturating_sub(1) };
            over
        };
        if self.key != Key::Free && (lasts(&mut self.left) || self.key == Key::Token && self.left == 0) {
            self.delete_key();
        }
        if lasts(&mut self.lists) {
            self.delete_lists();
        }
        for lease in &mut self.leases {
            lease.left = lease.left.saturating_sub(1);
            lease.promised = lease.promised.saturating_sub(1);
        }
    }

    /// What is not there has no value, so that it is one state.
    fn tidy(mut self) -> State {
        for lease in &mut self.leases {
            lease.left = if lease.listed { lease.left } else { 0 };
            lease.place = if lease.placed { lease.place } else { 0 };
            lease.at = if lease.promised > 0 { lease.at } else { 0 };
        }
        self
    }
}

impl Bounds {
    /// Whether the node knows the leases that it has promised, and no others.
    fn check(&self, state: &State) -> Checked {
        if self.promises_only {
            return Ok(());
        }
        for (token, lease) in state.leases.iter().enumerate() {
            let known = match state.key {
                Key::Free => false,
                Key::Token => usize::from(state.whose) == token,
                key => key == self.claims[token] && lease.listed && lease.left > 0,
            };
            let at_its_place = state.key != Key::Slots || lease.placed && lease.place == lease.at;
            if lease.promised > 0 && !(known && at_its_place) {
                return Err(FORGOTTEN);
            }
            if known && lease.promised == 0 {
                return Err(CAME_BACK);
            }
            let twice = |other: &Lease| other.placed && other.place == lease.place;
            if state.key == Key::Slots && lease.placed && state.leases[..token].iter().any(twice) {
                return Err(TWO_AT_A_PLACE);
            }
        }
        let listed = state.leases.iter().any(|lease| lease.listed || lease.placed);
        if !state.is_mark() && listed && state.lists == FOREVER { Err(LEFT_BEHIND) } else { Ok(()) }
    }

    fn request(&self, state: &State, token: usize, request: Request, late: Late) -> Option<Checked<State>> {
        let mut next = *state;
        let key = next.key;
        let mut script = Script { bounds: self, state: &mut next, key, late, is_late: false, more: false };
        let done = script.run(token, request);
        let is_late = script.is_late;
        if late != Late::Not && !is_late {
            return None;
        }
        if matches!(request, Request::OlderForce) {
            next = *state;
            next.delete_key();
            next.leases.iter_mut().for_each(|lease| lease.promised = 0);
        }
        if let Err(what) = done
            && (!self.promises_only || what == TWO_HOLDERS)
        {
            return Some(Err(what));
        }
        if is_late {
            next.tick();
        } else if !self.promises_only
            && next.is_mark()
            && next.leases.iter().all(|lease| !lease.listed || lease.left == 0)
        {
            return Some(Err(LEFT_BEHIND));
        }
        Some(self.check(&next).map(|()| next.tidy()))
    }
}

impl Space for Bounds {
    type State = u64;

    fn starts(&self) -> Vec<u64> {
        vec![State { lists: FOREVER, ..State::default() }.pack()]
    }

    fn next(&self, packed: &u64, into: &mut Vec<Checked<u64>>) {
        let state = State::unpack(*packed);
        let mut later = state;
        later.tick();
        into.push(self.check(&later).map(|()| later.tidy().pack()));
        let lates: &[Late] = if self.late { &[Late::Not, Late::BeforeKey, Late::BeforeLists] } else { &[Late::Not] };
        for token in 0..TOKENS {
            let places = if self.claims[token] == Key::Slots { self.limit } else { 1 };
            let mut requests = vec![Request::Release, Request::Keep, Request::Undo, Request::Force];
            requests.extend([Request::Extend(None), Request::Take(None)]);
            // A token belongs to its place.
            let (lease, next) = (state.leases[token], (token + 1) % TOKENS);
            let is_again = self.claims[token] == self.claims[next];
            requests.extend(is_again.then_some(Request::TakeAgain(None)));
            for place in (0..places).filter(|&place| !lease.placed || place == lease.place) {
                requests.extend(is_again.then_some(Request::TakeAgain(Some(place))));
                requests.extend([Request::Take(Some(place)), Request::Recreate(place), Request::Fence(place)]);
                requests.push(Request::Extend(Some(place)));
            }
            if token == 0 {
                requests.extend([Request::ForceAll, Request::OlderForce]);
            }
            for request in requests {
                let next = lates.iter().filter_map(|&late| self.request(&state, token, request, late));
                into.extend(next.map(|next| next.map(State::pack)));
            }
        }
    }

    fn hash(&self, packed: &u64) -> u64 {
        let mixed = packed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ mixed >> 32
    }

    fn show(&self, packed: &u64) -> String {
        let state = State::unpack(*packed);
        let lease = |lease: &Lease| {
            let listed = if lease.listed { format!("{}", lease.left) } else { "-".to_owned() };
            let placed = if lease.placed { format!("@{}", lease.place) } else { String::new() };
            format!("{listed}{placed} promised {}@{}", lease.promised, lease.at)
        };
        let State { key, whose, left, lists, .. } = state;
        format!("{key:?} of {whose} for {left}, lists {lists}: {}", state.leases.each_ref().map(lease).join(" | "))
    }
}

const READERS: Bounds = Bounds {
    claims: [Key::Shared, Key::Shared, Key::Shared, Key::Shared, Key::Token],
    ttl: [1, 2, 3, 1, 2],
    limit: 1,
    late: false,
    promises_only: false,
    without: &[],
};
const SLOTS: Bounds =
    Bounds { claims: [Key::Slots, Key::Slots, Key::Slots, Key::Slots, Key::Token], limit: 4, ..READERS };
/// One more than there are places.
const FULL: Bounds = Bounds { claims: [Key::Slots; TOKENS], ..SLOTS };
const LATE: Bounds = Bounds { late: true, ..SLOTS };
const MIXED: Bounds =
    Bounds { claims: [Key::Slots, Key::Shared, Key::Slots, Key::Shared, Key::Token], limit: 2, ..LATE };

/// What goes wrong without clauses, and after how many steps.
#[track_caller]
fn without(without: &'static [Without], bounds: Bounds, what: &str, steps: usize) {
    goes_wrong(&Bounds { without, ..bounds }, what, steps);
}

#[test]
fn a_sweep_of_one_at_a_time_promises_nothing_twice_and_turns_nobody_away() {
    for bounds in [READERS, SLOTS, FULL, MIXED, LATE, Bounds { late: true, ..READERS }] {
        is_clean(&bounds);
    }
}

/// Only by what the node has promised.
const PROMISES: Bounds = Bounds { promises_only: true, ..SLOTS };

#[test]
fn a_mark_that_is_gone_is_none_for_the_rest_of_the_script() {
    without(&[Without::SaysSo], PROMISES, TWO_HOLDERS, 3);
    // An expiry that lies in the past deletes the key under a script that believes in its mark.
    without(&[Without::DropLooks, Without::LooksAgain], PROMISES, TWO_HOLDERS, 6);
    without(&[Without::LooksAgain], Bounds { late: true, ..PROMISES }, TWO_HOLDERS, 4);
    is_clean(&Bounds { without: &[Without::LooksAgain], ..SLOTS });
    without(&[Without::FirstLooks], SLOTS, LEFT_BEHIND, 4);
}

#[test]
fn what_has_run_out_is_swept_and_nothing_else() {
    without(&[Without::Sweep], SLOTS, FALSE_BUSY, 4);
    without(&[Without::SweepLooks], PROMISES, TWO_HOLDERS, 2);
    without(&[Without::MineLooks], PROMISES, TWO_HOLDERS, 6);
    without(&[Without::CountsLook], READERS, COUNTED, 5);
}

#[test]
fn a_place_is_free_when_it_is_not_listed() {
    without(&[Without::PlaceForgotten], SLOTS, FALSE_BUSY, 5);
    without(&[Without::PlacesDoNotLook], SLOTS, TWO_AT_A_PLACE, 5);
    // A clock in that alone puts two leases at one place, and a place that is listed twice must not look free.
    without(&[Without::PlaceForgotten, Without::VacantDoesNotLook], SLOTS, TWO_AT_A_PLACE, 5);
    without(
        &[Without::PlaceForgotten, Without::VacantDoesNotLook, Without::AtLeast],
        Bounds { promises_only: true, ..FULL },
        TWO_HOLDERS,
        8,
    );
}

#[test]
fn the_key_and_the_lists_last_as_long_as_the_last_lease() {
    without(&[Without::LastsAsLong], PROMISES, TWO_HOLDERS, 5);
    without(&[Without::ListsExpire], READERS, LEFT_BEHIND, 2);
    without(&[Without::GrantClears], PROMISES, TWO_HOLDERS, 4);
    without(&[Without::GrantClears], READERS, CAME_BACK, 3);
}
