//! One question to all nodes: asked side by side, decided as early as the answers allow, and what their failures mean.

use super::Locker;
use super::node::{Call, Event, Fault, FaultKind, Node, Order, Reply};
use super::quorum::{Tally, Verdict, quorum};
use super::scripts::Script;
use crate::error::Error;
use crate::sys::clock::Boot;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// What one question to all nodes has brought.
pub(super) struct Answers {
    pub(super) round: u64,
    pub(super) give_up: Boot,
    pub(super) asked: Vec<bool>,
    /// For each node: when the request was sent, and what came back.
    pub(super) got: Vec<Option<(Boot, Result<Reply, Fault>)>>,
    pub(super) interrupted: Option<i32>,
}

impl Answers {
    pub(super) fn replies(&self) -> impl Iterator<Item = (usize, Boot, &Reply)> {
        self.got.iter().enumerate().filter_map(|(node, got)| match got {
            Some((sent, Ok(reply))) => Some((node, *sent, reply)),
            _ => None,
        })
    }

    pub(super) fn faults(&self) -> impl Iterator<Item = (usize, &Fault)> {
        self.got.iter().enumerate().filter_map(|(node, got)| match got {
            Some((_, Err(fault))) => Some((node, fault)),
            _ => None,
        })
    }

    /// Counts the replies that `yes` accepts; everything else that came is a no.
    pub(super) fn tally(&self, yes: impl Fn(&Reply) -> bool) -> Tally {
        let mut tally = Tally { nodes: self.got.len(), yes: 0, no: 0 };
        for got in self.got.iter().flatten() {
            match got {
                (_, Ok(reply)) if yes(reply) => tally.yes += 1,
                _ => tally.no += 1,
            }
        }
        tally
    }

    /// What is to be said of a node that has not answered: nobody waits for it longer than the others need to decide.
    pub(super) fn silence(&self) -> &'static str {
        if self.give_up.passed() { "timed out" } else { "is slower than the others" }
    }

    /// How many of the nodes that could answer say this word.
    pub(super) fn count(&self, word: &str) -> usize {
        self.replies().filter(|(_, _, reply)| reply.text(0) == word).count()
    }

    /// Whether all that were asked have given an answer that can be used.
    pub(super) fn all_answered(&self) -> bool {
        self.asked.iter().zip(&self.got).all(|(asked, got)| !asked || matches!(got, Some((_, Ok(_)))))
    }

    pub(super) fn all(&self) -> bool {
        self.asked.iter().zip(&self.got).all(|(asked, got)| !asked || got.is_some())
    }

    pub(super) fn decided(&self, word: &str) -> bool {
        self.tally(|reply| reply.text(0) == word).verdict() != Verdict::Open
    }
}

impl Locker {
    pub(super) fn quorum(&self) -> usize {
        quorum(self.nodes.len())
    }

    pub(super) fn script(&self, script: &'static Script, args: &[&str]) -> Call {
        let keys = self.keys.all().map(str::to_owned).to_vec();
        let args =
            std::iter::once(self.keys.channels.as_str()).chain(args.iter().copied()).map(str::to_owned).collect();
        Call::Script(script, keys, args)
    }

    /// A fresh deadline for one request.
    pub(super) fn deadline(&self) -> Boot {
        Boot::now() + self.node_timeout
    }

    /// Asks all nodes that `asked` names the same, and waits until `enough` is content, all have answered, `give_up` is
    /// reached, or somebody interrupts.
    pub(super) fn ask(
        &mut self,
        call: &Call,
        asked: Vec<bool>,
        give_up: Boot,
        order: Order,
        mut enough: impl FnMut(&Answers) -> bool,
    ) -> Answers {
        self.round += 1;
        let round = self.round;
        let heed = self.heed();
        for (node, _) in self.nodes.iter_mut().zip(&asked).filter(|(_, asked)| **asked) {
            node.ask(round, call.clone(), give_up, order, heed);
        }
        let mut answers =
            Answers { round, give_up, got: asked.iter().map(|_| None).collect(), asked, interrupted: None };
        while !answers.all() && !enough(&answers) {
            match self.receive(give_up) {
                None => break,
                Some(Event::Answer { node, round: of, sent, result }) if of == round => {
                    answers.got[node] = Some((sent, result));
                }
                Some(Event::Interrupt(_)) if self.cleaning_up => {}
                Some(Event::Interrupt(signal)) => {
                    answers.interrupted = Some(signal);
                    break;
                }
                Some(other) => self.pending.push_back(other),
            }
        }
        if !self.cleaning_up && !answers.all_answered() && self.nodes.iter().any(Node::alarmed) {
            answers.interrupted = Some(0);
        }
        if !self.cleaning_up && answers.interrupted.is_none() && self.calls.count() > self.heard_calls {
            // It is counted before it is told: it is on its way, and may be why an answer was not waited for.
            while let Some(event) = self.receive(Boot::now() + Duration::from_secs(1)) {
                if let Event::Interrupt(signal) = event {
                    answers.interrupted = Some(signal);
                    break;
                }
                self.pending.push_back(event);
            }
        }
        answers
    }

    /// The same for all nodes.
    pub(super) fn ask_all(&mut self, call: &Call, give_up: Boot, enough: impl FnMut(&Answers) -> bool) -> Answers {
        self.ask(call, vec![true; self.nodes.len()], give_up, Order::InTurn, enough)
    }

    /// Asks all nodes something that each of them should do or say, whoever decides: waits for the slower ones too, but
    /// not much longer than the decision has taken.
    pub(super) fn tell_all(&mut self, call: &Call, order: Order, decided: impl Fn(&Answers) -> bool) -> Answers {
        let start = Boot::now();
        let deadline = self.deadline();
        let mut answers = self.ask(call, vec![true; self.nodes.len()], deadline, order, &decided);
        self.settle(&mut answers, start);
        answers
    }

    /// After a decision that began at `start`, waits for the nodes that have not answered yet as long again as it took;
    /// longer when some have failed, since then there is no hurry, and the others should not be blamed too.
    pub(super) fn settle(&mut self, answers: &mut Answers, start: Boot) {
        let at_least = Duration::from_millis(if answers.faults().next().is_some() { 200 } else { 20 });
        let until = Boot::now() + Boot::now().since(start) * 2 + at_least;
        self.take_more(answers, until.min(answers.give_up), |_, _| true);
    }

    /// Takes in further answers until all are there, `until` is reached, or nobody `wants` them any more. An
    /// interruption ends it, unless something is being undone, and is left for later.
    pub(super) fn take_more(&mut self, answers: &mut Answers, until: Boot, wants: impl Fn(&Locker, &Answers) -> bool) {
        while answers.interrupted.is_none() && !answers.all() && wants(self, answers) {
            match self.receive(until) {
                None => break,
                Some(interrupt @ Event::Interrupt(_)) if !self.cleaning_up => {
                    self.pending.push_back(interrupt);
                    break;
                }
                Some(Event::Answer { node, round, sent, result }) if round == answers.round => {
                    answers.got[node] = Some((sent, result));
                }
                Some(other) => self.pending.push_back(other),
            }
        }
    }

    /// An interruption that was left for later.
    pub(super) fn take_interrupt(&mut self) -> Option<i32> {
        let of = |event: &Event| match event {
            Event::Interrupt(signal) => Some(*signal),
            _ => None,
        };
        let at = self.pending.iter().position(|event| of(event).is_some())?;
        self.pending.remove(at).as_ref().and_then(of)
    }

    /// The next event of any kind, those that were put aside first.
    pub(super) fn next_event(&mut self, until: Boot) -> Option<Event> {
        self.pending.pop_front().or_else(|| self.receive(until))
    }

    /// Does nothing for a while; a signal that comes meanwhile ends it.
    pub(super) fn pause(&mut self, time: Duration) -> Option<i32> {
        let until = Boot::now() + time;
        while let Some(event) = self.next_event(until) {
            match event {
                Event::Interrupt(signal) => return Some(signal),
                Event::Alarm => return Some(0),
                _ => {}
            }
        }
        None
    }

    pub(super) fn receive(&mut self, until: Boot) -> Option<Event> {
        loop {
            match self.receive_once(until) {
                Ok(event) => {
                    match event {
                        Event::Answer { node, .. } => self.nodes[node].heard_of(),
                        Event::Interrupt(_) => self.heard_calls += 1,
                        _ => {}
                    }
                    return Some(event);
                }
                // We keep a sender ourselves.
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if until.passed() => return None,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn receive_once(&mut self, until: Boot) -> Result<Event, RecvTimeoutError> {
        // The channel's clock stops while the machine sleeps: whoever gets nothing looks at its own deadline again.
        const AT_MOST: Duration = Duration::from_secs(3600);
        let heed = self.heed();
        match self.nodes.as_mut_slice() {
            [node] if node.needs_rest() => {
                if let Ok(event) = self.events.try_recv() {
                    return Ok(event);
                }
                node.rest(until, heed);
                match self.events.try_recv() {
                    Err(_) if heed.is_some() && node.alarmed() => Ok(Event::Alarm),
                    received => received.map_err(|_| RecvTimeoutError::Timeout),
                }
            }
            _ => self.events.recv_timeout(until.left().min(AT_MOST)),
        }
    }

    /// How many interruptions are known, where a further one is to end what we wait for.
    pub(super) fn heed(&self) -> Option<u64> {
        (!self.cleaning_up).then_some(self.heard_calls)
    }

    /// "10.0.0.1:6379 timed out, 10.0.0.2:6379 closed the connection"; nodes that were asked and kept silent count as
    /// timed out.
    pub(super) fn describe_faults(&self, answers: &Answers) -> String {
        let texts: Vec<String> = answers
            .got
            .iter()
            .zip(&self.nodes)
            .zip(&answers.asked)
            .filter_map(|((got, node), asked)| match got {
                Some((_, Err(fault))) => Some(format!("{} {}", node.address(), fault.text)),
                None if *asked => Some(format!("{} {}", node.address(), answers.silence())),
                _ => None,
            })
            .collect();
        texts.join(", ")
    }

    /// What a failure is about: one lock, or, without a name, all of them.
    pub(super) fn subject(&self) -> String {
        if self.name.is_empty() { format!("all locks under {:?}", self.keys.lock) } else { format!("{:?}", self.name) }
    }

    /// The error for a question that no quorum has answered.
    pub(super) fn no_quorum(&self, answers: &Answers) -> Error {
        let faults = self.describe_faults(answers);
        let kinds: Vec<FaultKind> = answers.faults().map(|(_, fault)| fault.kind).collect();
        let enough_of = |kind| kinds.iter().filter(|&&other| other == kind).count() > self.nodes.len() - self.quorum();
        let text = match self.nodes.len() {
            1 => format!("{}: {faults}", self.subject()),
            n => {
                let reached = answers.replies().count();
                format!("{}: {reached} of {n} nodes answered, {} are needed: {faults}", self.subject(), self.quorum())
            }
        };
        if enough_of(FaultKind::Misconfigured) {
            Error::Usage(format!("{text}; check --redis"))
        } else if enough_of(FaultKind::Refused) {
            Error::Refused(format!("{text}; check the user, its password and its permissions"))
        } else if kinds.contains(&FaultKind::CannotServe) {
            Error::Unavailable(format!("{text}; try again when it can"))
        } else {
            Error::Unavailable(format!("{text}; is --redis right, and Redis running there?"))
        }
    }
}
