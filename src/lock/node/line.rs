//! Whoever talks to one node, a thread or the asker: one connection, and the requests that go over it in their order.

use super::fault::{Fault, FaultKind};
use super::wire::{NoAnswer, Patience, Wire};
use super::{Address, Call, Calls, Event, Job, Order, Reply, Script, Shown, Talker, bell};
use crate::sys::clock::Boot;
use nix::sys::eventfd::EventFd;
use redis::Value;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// How long a server that has not answered is waited for again.
const IN_VAIN: Duration = Duration::from_millis(80);
/// What writing a request may take at least: hardly ever more than nothing.
const AT_LEAST: Duration = Duration::from_millis(10);

/// Starts a thread that talks to the node; nobody talks to it when there is no room for a thread.
pub(super) fn start(index: usize, address: &Address, events: &Sender<Event>, shown: &Arc<Shown>) -> Talker {
    let (jobs, inbox) = mpsc::channel();
    let bell = bell();
    let mut line = Line::new(address, bell.clone(), shown, None);
    let events = events.clone();
    let started = thread::Builder::new().spawn(move || {
        let mut inbox = inbox;
        while let Some(job) = line.waiting.pop_front().or_else(|| inbox.recv().ok()) {
            line.inbox = Some(inbox);
            line.answer(index, &job, &events);
            let Some(back) = line.inbox.take() else { break };
            inbox = back;
        }
    });
    match started {
        Ok(_) => Talker::Thread(jobs, bell),
        Err(_) => Talker::Nobody,
    }
}

/// The talker's side: one connection, made when it is needed.
pub(super) struct Line {
    address: Address,
    /// Where a thread's further jobs come from.
    inbox: Option<Receiver<Job>>,
    /// Jobs that came while an answer was waited for.
    waiting: VecDeque<Job>,
    bell: Option<Arc<EventFd>>,
    /// Who may interrupt the asker.
    pub(super) calls: Option<Calls>,
    /// What to do once between a request and its answer.
    pub(super) meanwhile: Option<Box<dyn FnOnce() + Send>>,
    shown: Arc<Shown>,
    wire: Option<Wire>,
}

impl Line {
    pub(super) fn new(address: &Address, bell: Option<Arc<EventFd>>, shown: &Arc<Shown>, calls: Option<Calls>) -> Line {
        Line {
            address: address.clone(),
            inbox: None,
            waiting: VecDeque::new(),
            bell,
            calls,
            meanwhile: None,
            shown: Arc::clone(shown),
            wire: None,
        }
    }

    /// Does a job, and tells what came of it.
    pub(super) fn answer(&mut self, node: usize, job: &Job, events: &Sender<Event>) {
        let mut sent = Boot::now();
        self.shown.begun.store(job.round, Ordering::SeqCst);
        let result = self.serve(job, &mut sent);
        // Nobody listens any more when the process is about to end.
        let _ = events.send(Event::Answer { node, round: job.round, sent, result });
        self.shown.done.store(job.round, Ordering::SeqCst);
    }

    /// Waits until `deadline` for what `deed` does, unless somebody does not want to; `heed` is how many interruptions
    /// are known, and none: that nobody is asked.
    pub(super) fn patiently<T>(
        &mut self,
        deadline: Boot,
        heed: Option<u64>,
        deed: impl FnOnce(&mut Option<Wire>, &mut Patience<'_>) -> T,
    ) -> T {
        let Line { inbox, waiting, bell, calls, wire, .. } = self;
        let bell = bell.as_ref();
        let alarm = calls.as_ref().and_then(|calls| calls.alarm.as_ref());
        // Whether something has come that must be done without waiting for the present answer.
        let mut has_to_go_on = || {
            if let Some(bell) = bell {
                let _ = bell.read();
            }
            if let (Some(calls), Some(known)) = (calls.as_ref(), heed)
                && (calls.count() > known || calls.alarmed())
            {
                return true;
            }
            waiting.extend(inbox.iter().flat_map(Receiver::try_iter));
            waiting.iter().any(|job| job.order != Order::InTurn)
        };
        let alarm = alarm.filter(|_| heed.is_some());
        let mut patience = Patience {
            deadline,
            bells: [bell.map(AsFd::as_fd), alarm.map(|alarm| alarm.descriptor.as_fd())],
            has_to_go_on: &mut has_to_go_on,
        };
        deed(wire, &mut patience)
    }

    fn serve(&mut self, job: &Job, sent: &mut Boot) -> Result<Reply, Fault> {
        let owed = self.wire.as_ref().is_some_and(|wire| wire.owed > 0);
        if job.order == Order::Undo && self.shown.written.load(Ordering::Relaxed) == 0 {
            return Ok(Reply::Nil); // nothing to come behind of
        }
        if owed && job.order == Order::InTurn {
            // What has not been answered will perhaps never be.
            self.wire = None;
        }
        if self.wire.is_none() {
            let address = self.address.clone();
            let opened = self.patiently(job.deadline, job.heed, |wire, patience| {
                *wire = Some(Wire::open(&address, patience)?);
                Ok(())
            });
            opened.map_err(NoAnswer::fault)?;
        }
        if job.deadline.passed() && job.order == Order::InTurn {
            return Err(Fault::timed_out());
        }
        *sent = Boot::now();
        let patient = Job { deadline: job.deadline.min(*sent + IN_VAIN), ..job.clone() };
        let job = if owed && job.order == Order::Undo { &patient } else { job };
        let result = match &job.call {
            // Nobody may be there to send the script in full when the server says that it does not know it.
            Call::Script(script, keys, args)
                if owed
                    || job.order == Order::Undo
                    || job.order == Order::AtOnce && self.shown.unknown.load(Ordering::Relaxed) =>
            {
                self.exchange(&eval(Known::No, script, keys, args), job)
            }
            Call::Script(script, keys, args) => self.run(script, keys, args, job),
            Call::Scan { cursor, pattern } => {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000);
                self.exchange(&scan, job)
            }
            Call::Many(script, locks) => self.run_many(script, locks, job),
        };
        match result {
            Ok(value) => Reply::of(value).and_then(|reply| fits(&job.call, reply)),
            Err(no_answer) => {
                match &no_answer {
                    NoAnswer::TimedOut | NoAnswer::Woken => {
                        if let Some(wire) = &mut self.wire {
                            wire.owed += 1;
                        }
                    }
                    NoAnswer::Broken(_) => self.wire = None,
                    NoAnswer::Error(_) => {}
                }
                Err(no_answer.fault())
            }
        }
        .inspect_err(|fault| {
            if fault.kind == FaultKind::Unreachable && self.wire.as_ref().is_some_and(|wire| wire.owed == 0) {
                self.wire = None; // out of step
            }
        })
    }

    /// Sends a request and waits for its answer.
    fn exchange(&mut self, cmd: &redis::Cmd, job: &Job) -> Result<Value, NoAnswer> {
        self.send(&cmd.get_packed_command(), job)?;
        self.receive(job)
    }

    fn send(&mut self, request: &[u8], job: &Job) -> Result<(), NoAnswer> {
        // Marked before, so that whatever may have been received counts as sent.
        self.shown.written.fetch_max(1, Ordering::SeqCst);
        // Looked at after that, so that whoever gives it up sees the mark, or is seen here.
        if job.order == Order::InTurn && self.shown.given_up.load(Ordering::SeqCst) > job.round {
            return Err(NoAnswer::Broken(Fault::timed_out()));
        }
        self.patiently(job.deadline, job.heed, |wire, patience| {
            // What has to go behind others is written in any case.
            patience.deadline = patience.deadline.max(Boot::now() + AT_LEAST);
            wire.as_mut().ok_or(NoAnswer::TimedOut)?.send(request, patience)
        })?;
        self.shown.written.store(job.round, Ordering::Release);
        if let Some(deed) = self.meanwhile.take() {
            deed();
        }
        Ok(())
    }

    /// Waits for an answer, unless something comes that has to be sent first.
    fn receive(&mut self, job: &Job) -> Result<Value, NoAnswer> {
        self.patiently(job.deadline, job.heed, |wire, patience| {
            wire.as_mut().ok_or(NoAnswer::TimedOut)?.receive(patience)
        })
    }

    /// Runs a script by its name, and in full on a server that does not know it.
    fn run(&mut self, script: &Script, keys: &[String], args: &[String], job: &Job) -> Result<Value, NoAnswer> {
        match self.exchange(&eval(Known::Yes, script, keys, args), job) {
            Err(NoAnswer::Error(error)) if error.code() == Some("NOSCRIPT") => {
                self.shown.unknown.store(true, Ordering::Release);
                self.exchange(&eval(Known::No, script, keys, args), job)
            }
            result => result,
        }
    }

    fn run_many(
        &mut self,
        script: &Script,
        locks: &[(Vec<String>, Vec<String>)],
        job: &Job,
    ) -> Result<Value, NoAnswer> {
        let Some(((keys, args), others)) = locks.split_first() else {
            return Ok(Value::Array(Vec::new()));
        };
        // The first one teaches the server the script.
        let mut all = vec![self.run(script, keys, args, job)?];
        let requests: Vec<u8> =
            others.iter().flat_map(|(keys, args)| eval(Known::Yes, script, keys, args).get_packed_command()).collect();
        if !others.is_empty() {
            self.send(&requests, job)?;
        }
        for left in (1..=others.len()).rev() {
            let answer = self.receive(job);
            if let (Err(_), Some(wire)) = (&answer, &mut self.wire) {
                wire.owed += left - 1;
            }
            all.push(answer?);
        }
        Ok(Value::Array(all))
    }
}

/// Whether this can be the answer to that: a script's begins with one of its words, behind which may have to be a number.
fn fits(call: &Call, reply: Reply) -> Result<Reply, Fault> {
    let to_script = |script: &Script, reply: &Reply| {
        let word = reply.text(0);
        let counts = matches!(word, "granted" | "extended" | "still-held");
        script.words.contains(&word) && (!counts || reply.int(1).is_some())
    };
    let fits = match call {
        Call::Script(script, ..) => to_script(script, &reply),
        Call::Scan { .. } => {
            let cursor = reply.text(0);
            let digits = cursor.bytes().all(|byte| byte.is_ascii_digit());
            matches!(reply.at(1), Reply::List(_)) && !cursor.is_empty() && digits
        }
        Call::Many(script, locks) => {
            reply.items().len() == locks.len() && reply.items().iter().all(|reply| to_script(script, reply))
        }
    };
    if fits { Ok(reply) } else { Err(Fault::garbage("an answer to something else")) }
}

/// Whether the server is taken to know the script.
enum Known {
    Yes,
    No,
}

fn eval(known: Known, script: &Script, keys: &[String], args: &[String]) -> redis::Cmd {
    let mut cmd = redis::cmd(match known {
        Known::Yes => "EVALSHA",
        Known::No => "EVAL",
    });
    cmd.arg(match known {
        Known::Yes => script.sha1(),
        Known::No => script.body,
    });
    cmd.arg(keys.len()).arg(keys).arg(args);
    cmd
}
