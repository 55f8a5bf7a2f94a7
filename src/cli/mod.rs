//! The definition of the command line: every flag with its help text, variable and default.
//!
//! This file only names the variables. config.rs reads them: clap would take an empty variable for a value, and does
//! not know redlock.conf.

mod hints;
pub(crate) mod label;
pub(crate) mod parse;
pub(crate) mod values;

use crate::lock::history::periods::OncePer;
use clap::{ArgAction, Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use values::{
    FOREVER, LARGEST_NUMBER, duration, hold_time, lock_name, pattern, period, remembered, signal, token, ttl,
    wait_time, watch, whole,
};

/// The version, with the commit if `make` built redlock from a repository.
const VERSION: &str = match option_env!("REDLOCK_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// one job at a time, on any number of machines
///
/// A distributed lock in Redis for shell scripts, cron jobs and CI.
#[derive(Debug, Parser)]
#[command(name = "redlock", bin_name = "redlock", version = VERSION)]
#[command(arg_required_else_help = true, disable_help_subcommand = true, max_term_width = 80)]
#[command(disable_help_flag = true, disable_version_flag = true)]
#[command(override_usage = "redlock COMMAND [OPTIONS]")]
#[command(help_template = "{name} {version}: {about}\n\n{before-help}{all-args}{after-help}\n")]
#[command(before_help = EXAMPLES, after_help = STATUSES_SHORT, after_long_help = STATUSES_LONG)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version)]
    version: Option<bool>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The most runs that `log -n` can ask for: as many as 1,000 locks can keep.
const MOST_LINES: usize = 1_000_000;

const EXAMPLES: &str = "  0 3 * * *   redlock run backup --once-per day --max-run 90m -- ./backup
  30 7 * * *  redlock check -q";

/// The headings of the options of run and acquire in the help.
const LOCK: &str = "Lock";
const CRONTAB: &str = "Crontab";
const JOB: &str = "The job and its end";

/// The last line of each command's help, instead of the options that all commands have.
const COMMON: &str = "All options: --help. Those of every command (--redis, -q ...): redlock --help";

const STATUSES_SHORT: &str = "\
Exit status: 0 done; run: the command's own (126 127: cannot execute, not found)
   1 check: not in order  64 usage  69 Redis unreachable  70 internal  74 output
   75 held  76 lease lost  77 not its token  78 refused  124 --max-run

Redis: --redis redis://HOST:PORT or REDLOCK_REDIS. More: redlock [run] --help";

const STATUSES_LONG: &str = "\
Exit status:
    0  done; for run, the command exited 0
    N  run: the command's own status
    1  check: something is wrong, or there is nothing to check
   64  usage: a bad option, name, duration or URL, or an unsafe combination
   69  no quorum of nodes can be reached, or can serve now, or this machine
       lacks memory or the like, or killed redlock's keeper; doctor: a check
       has failed
   70  internal error
   74  the result could not be written
   75  another still holds the lock at the end of the wait, or it is closed, or
       --newest forbids the run (-E N: N instead; with --once-per see run --help)
   76  run: the lease was lost while the command ran
   77  the token does not hold the lock
   78  refused; retrying will not help: password, ACL, certificate, sandbox
  124  run: the job exceeded --max-run and was stopped
  126  run: the command cannot be executed
  127  run: the command was not found
  When a signal ends the command, or the wait, redlock is killed by
  the same signal.

Durations are written 500ms, 30s, 1m 30s or 2h; a bare number, such as 10 or
0.5, is seconds. An unset variable is read from ~/.config/redlock/redlock.conf,
then from /etc/redlock.conf, in lines like REDLOCK_REDIS=redis://10.0.0.1.

The job of run finds REDLOCK_NAME, REDLOCK_TOKEN and REDLOCK_FENCING_TOKEN in
its environment; with --slots REDLOCK_SLOT; and REDLOCK_HELD, the tokens of all
enclosing leases.";

/// The commands.
#[derive(Debug, Subcommand)]
#[command(defer = true)] // for command(), below
pub(crate) enum Command {
    /// Run a command while holding a lock
    ///
    /// Acquires the lock, starts COMMAND, renews the lease while it runs, and releases the lock when it ends. The exit status
    /// is the command's. If the lease cannot be renewed, the job is stopped before another holder can have the lock.
    Run(Box<RunArgs>),
    /// Take a lock and print its token
    ///
    /// Prints the token, which extend and release need, alone on one line of standard output. Nothing renews the lease, which ends
    /// after --ttl, unless --while-pid names the process that needs it.
    Acquire(AcquireArgs),
    /// Extend a lease
    ///
    /// Never shortens a lease, and never brings a lost one back. In a job of `redlock run`, the name and the token can be left
    /// out.
    #[command(alias = "renew")]
    Extend(ExtendArgs),
    /// Release a lock
    ///
    /// Frees the lock. A lock that was re-entered has several holds: each call releases one, and the last frees it. In a job of
    /// `redlock run`, the name and the token can be left out; a job that releases its own lease has lost it, and is stopped.
    Release(ReleaseArgs),
    /// End another's job, and keep the lock closed
    ///
    /// Asks redlock run or --while-pid on the holder's host to stop the job, waits until the job is over, and says who has
    /// the lock then. Ctrl-C ends only the wait. A lease that nothing renews, such as a script's with acquire, cannot be
    /// stopped: 75, and nothing is written.
    Stop(StopArgs),
    /// Show who holds a lock, and how its last run ended; or all locks
    ///
    /// Without a name: every held lock under the prefix. With several names: a table of these locks. A name with a *,
    /// such as 'job-*', stands for all held locks that match; with --all, for the free ones, too. With -q: exit 0 if the
    /// lock is free, 75 if it is held.
    Status(StatusArgs),
    /// Say which jobs are not in order, and what did not happen
    ///
    /// Judges each lock that is called with --once-per P, so that P says how often it is to succeed. A line for each finding:
    /// overdue (no success in P, or --due D, and a twelfth of it), failed (the last run), hangs (a run takes much longer than
    /// usual), hosts (--min-hosts). Exits with 0 if all is in order, 1 if not or if there is nothing to check, 69 if that is not known.
    Check(CheckArgs),
    /// Delete what Redis remembers of a free lock
    ///
    /// Its runs, its hosts, what check expects of it, and the number of --newest; not the fencing counter. For a job that is gone for good.
    Forget(ForgetArgs),
    /// Show whether jobs ran: who, when, how long, and the result
    ///
    /// A line for each run, newest last: its start (local time), how long it took, user@host (label), and how it ended. Without a
    /// name: the runs of all locks under the prefix. Redis remembers the last 20 runs of each lock (--log N of run and acquire sets how
    /// many), its last success and its last failure, for 100 days.
    Log(LogArgs),
    /// Wait until a lock is free, without taking it
    ///
    /// Exits 0 once the lock is free, or 75 when the time is up.
    Wait(WaitArgs),
    /// Check whether Redis is ready for locks
    ///
    /// Checks every node, and says of each problem how it harms locks and how to fix it. Changes nothing on the servers.
    #[command(override_usage = "redlock doctor [OPTIONS]")]
    Doctor,
    /// Print shell completions
    Completions(CompletionsArgs),
}

/// The form of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    #[default]
    Text,
    Json,
    /// Metrics: status only.
    Prometheus,
    /// A line for a monitoring plugin: check only.
    Nagios,
    /// A picture for a terminal, and for a browser: log only.
    Chart,
    Html,
    /// Lines for a shell's eval: acquire only.
    Env,
}

impl Format {
    /// The name of this format as a value of `--format`.
    pub fn word(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The forms in which this command can print its results.
pub fn formats(command: &str) -> &'static [Format] {
    match command {
        // run leaves standard output to the job, and completions prints a script.
        "run" | "completions" => &[],
        "acquire" => &[Format::Text, Format::Json, Format::Env],
        "status" => &[Format::Text, Format::Json, Format::Prometheus],
        "check" => &[Format::Text, Format::Json, Format::Nagios],
        "log" => &[Format::Text, Format::Json, Format::Chart, Format::Html],
        _ => &[Format::Text, Format::Json],
    }
}

/// The fate of a job whose lease is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnLost {
    Stop,
    Continue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

// The options of every command, before or after its name. Settings stay texts: config.rs reads them in the same way as
// variables. (No doc comment: clap would take it for the description of the command.)
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Settings, for every command")]
pub(crate) struct Common {
    /// Redis address; with several, more than half must agree
    ///
    /// redis://[user:password@]host[:port][/db], rediss:// for the same over TLS, unix:///path.sock[?db=n],
    /// redis+sentinel://h1,h2,h3/SERVICE[/db], redis+cluster://h1,h2,h3, or local:[/DIR] for a server that redlock starts for
    /// the jobs of one machine. Repeat the option, or separate URLs by commas, for several independent masters; more than
    /// half must agree [env: REDLOCK_REDIS, REDIS_URL] [default: redis://127.0.0.1:6379]
    #[arg(long, global = true, value_name = "URL", action = ArgAction::Append)]
    pub(crate) redis: Vec<String>,
    /// The key in Redis is this prefix followed by the name [env: REDLOCK_PREFIX] [default: redlock:]
    #[arg(long, global = true, value_name = "P")]
    pub(crate) prefix: Option<String>,
    /// Time limit for one request to one node; above ttl/2 it counts as ttl/2 [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20,
    /// from 100ms to 1s; with a single node ttl/10, from 250ms to 3s]
    #[arg(long, global = true, value_name = "D")]
    pub(crate) node_timeout: Option<String>,
    /// A node started less than D ago grants no lock, because it may have forgotten a lease. D must cover the longest lease in
    /// use on these nodes: set it if leases longer than 30s are used alongside shorter ones [env: REDLOCK_QUARANTINE]
    /// [default: the ttl, at least 30s; with a single node 0]
    #[arg(long, global = true, value_name = "D")]
    pub(crate) quarantine: Option<String>,
    /// Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) password_file: Option<String>,
    /// Trust the certificates in FILE (PEM) instead of the system's [env: REDLOCK_TLS_CA]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tls_ca: Option<String>,
    /// The client certificate (PEM) to show to the server [env: REDLOCK_TLS_CERT]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tls_cert: Option<String>,
    /// The key (PEM) of the client certificate [env: REDLOCK_TLS_KEY]
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) tls_key: Option<String>,
    /// Count a lease, and each renewal, only after N replicas have it (WAIT); if N counts every replica, a failover loses no
    /// lease [env: REDLOCK_REPLICAS] [default: 0]
    #[arg(long, global = true, value_name = "N")]
    pub(crate) replicas: Option<String>,
    /// How the holder appears to others; for run and acquire only [env: REDLOCK_LABEL] [default: the name of the script or command]
    #[arg(long, global = true, value_name = "TEXT")]
    pub(crate) label: Option<String>,
    /// How many runs the log of the lock keeps, 0 for none; for run and acquire only [env: REDLOCK_LOG] [default: 20]
    #[arg(long, global = true, value_name = "N")]
    pub(crate) log: Option<String>,
    /// Output format: text or json; also env for a shell's eval (acquire), chart or html for a picture (log), prometheus
    /// (status), nagios (check); run and completions have none [default: text]
    #[arg(long, global = true, value_name = "FORMAT", value_enum, default_value = "text", hide_possible_values = true)]
    #[arg(hide_default_value = true)]
    pub(crate) format: Format,
    /// Print errors only
    #[arg(short, long, global = true, overrides_with = "quiet")]
    pub(crate) quiet: bool,
    /// Print more detail
    #[arg(short, long, global = true, overrides_with = "verbose")]
    pub(crate) verbose: bool,
    /// Print help (-h: one screen, --help: all of it)
    #[arg(short, long, global = true, action = ArgAction::Help)]
    pub(crate) help: Option<bool>,
}

// The name of a lock, as an option or as a plain argument. (No doc comment, for the same reason as `Common`.)
#[derive(Debug, Args)]
pub(crate) struct NameArgs {
    /// The name of the lock, as an option instead of NAME
    #[arg(long = "name", value_name = "NAME", value_parser = lock_name, hide_short_help = true)]
    option: Option<String>,
    /// The name of the lock
    #[arg(value_name = "NAME", value_parser = lock_name, conflicts_with = "option")]
    plain: Option<String>,
}

impl NameArgs {
    pub(crate) fn name(&self) -> Option<&str> {
        self.option.as_deref().or(self.plain.as_deref())
    }
}

// The names of several locks, as options or as plain arguments. (No doc comment, for the same reason as `Common`.)
#[derive(Debug, Args)]
pub(crate) struct NamesArgs {
    /// The name of a lock, as an option instead of NAME
    #[arg(long = "name", value_name = "NAME", value_parser = pattern, hide_short_help = true)]
    option: Vec<String>,
    /// One or more locks; a * in quotes matches anything
    #[arg(value_name = "NAME", value_parser = pattern)]
    pub(crate) names: Vec<String>,
}

impl NamesArgs {
    /// Moves the names of all `--name` into `names`, which is then sorted, and has each name once.
    pub(crate) fn gather(&mut self) {
        self.names.append(&mut self.option);
        self.names.sort();
        self.names.dedup();
    }

    /// The name, if there is exactly one, and it has no `*`.
    pub(crate) fn one(&self) -> Option<&str> {
        match self.names.as_slice() {
            [name] if !name.contains('*') => Some(name),
            _ => None,
        }
    }
}

// The common options of run and acquire. (No doc comment, for the same reason as `Common`.)
#[derive(Debug, Args)]
#[command(next_help_heading = LOCK)]
pub(crate) struct LeaseArgs {
    /// The name of the lock, as an option instead of NAME; run can hold several
    ///
    /// 1 to 512 bytes without control characters and without *. The key in Redis is the prefix followed by the name.
    /// run takes the option several times: the job needs all of these locks, and --wait is for all together. The locks
    /// are taken in the byte order of their names, so that two such calls cannot wait for each other.
    #[arg(long = "name", value_name = "NAME", value_parser = lock_name, hide_short_help = true)]
    pub(crate) names: Vec<String>,
    /// How long a lease lasts unrenewed
    ///
    /// If redlock or its machine dies, the lock is free again after that time. From 100ms (run, --while-pid: 500ms) to 30 days.
    #[arg(long, value_name = "D", default_value = "30s", value_parser = ttl)]
    pub(crate) ttl: Duration,
    /// Try once, like flock -n (the default)
    #[arg(short = 'n', long = "nonblock", alias = "nb", conflicts_with = "wait", hide_short_help = true)]
    #[arg(overrides_with = "nonblock")]
    pub(crate) nonblock: bool,
    /// Share the lock with other --shared holders
    ///
    /// Many readers or one writer, like flock -s: holders with --shared exclude holders without it, and the reverse. All
    /// wait in one line, first come, first served. The last of -s and -x counts.
    #[arg(short, long, overrides_with_all = ["shared", "exclusive"])]
    pub(crate) shared: bool,
    /// One holder at a time, like flock -x (the default)
    #[arg(short = 'x', long, short_alias = 'e', hide_short_help = true, overrides_with_all = ["shared", "exclusive"])]
    exclusive: bool,
    /// At most L holders, each with a slot of its own
    ///
    /// L is from 1 to 10000, and the same for all holders of this name. The slot, 0 to L-1, is in REDLOCK_SLOT.
    #[arg(long, value_name = "L", value_parser = whole(1_u32, 10_000))]
    #[arg(conflicts_with_all = ["shared", "exclusive"])]
    pub(crate) slots: Option<u32>,
    /// Exit with N, not 75, if the lock is held
    ///
    /// From 0 to 255. N also replaces the 75 of --newest; with --once-per it replaces only the 0 of a job that is done or
    /// being done. If an enclosing job holds the lock, the status stays 75. acquire
    /// refuses 0, since a script would go on without the lock.
    #[arg(short = 'E', long, value_name = "N", value_parser = whole(0, u8::MAX))]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Re-enter the lock if an enclosing run holds it
    ///
    /// If an enclosing redlock run already holds this lock, re-enter its lease instead of waiting for it; otherwise this option
    /// changes nothing. With --token: re-enter the lease of that token, or fail with 77.
    #[arg(long, conflicts_with_all = ["shared", "slots"], hide_short_help = true)]
    pub(crate) reentrant: bool,
    /// With --reentrant: the token of the lease to re-enter
    #[arg(long, value_name = "T", value_parser = token, hide_short_help = true, requires = "reentrant")]
    pub(crate) token: Option<String>,
    /// Exit with 75 if a call with a larger N has come
    ///
    /// For deployments: N grows from one pipeline to the next, as $GITHUB_RUN_NUMBER or $CI_PIPELINE_IID do. Once a call
    /// with N has stood in line or got the lock, no call with a smaller number gets it, even if the job with N fails or
    /// gives up: run that job again, with the same N. The holder is not disturbed, nor are calls without this option. A
    /// refused call exits with 75, or the status of -E. release --force of the free lock forgets N; otherwise Redis
    /// remembers N for 100 days. From 0 to 9007199254740991.
    #[arg(long, value_name = "N", value_parser = whole(0, LARGEST_NUMBER), hide_short_help = true)]
    #[arg(help_heading = "Deployment")]
    #[arg(conflicts_with_all = ["shared", "slots", "reentrant"])]
    pub(crate) newest: Option<u64>,
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock run NAME [OPTIONS] -- COMMAND [ARG]...\n       \
                            redlock run NAME [OPTIONS] -c LINE\n \
                            e.g.: redlock run --name backup --ttl 30s -- ./job.sh")]
pub(crate) struct RunArgs {
    /// The name of the lock
    #[arg(value_name = "NAME", value_parser = lock_name, hide_short_help = true)]
    pub(crate) plain: Option<String>,
    /// Wait in line for the lock, for at most D
    ///
    /// Without D: forever. Without --wait, or with 0: try once. redlock also waits for a Redis that cannot be reached.
    #[arg(short, long, value_name = "D", value_parser = wait_time, num_args = 0..=1, help_heading = LOCK)]
    #[arg(default_missing_value = FOREVER)]
    pub(crate) wait: Option<Duration>,
    /// Run at most once in each P, on the host that comes first
    ///
    /// For crontabs. P is the period of the crontab: hour, day, week, month (30d), or a duration from 1s to 100d; 0, the default, is
    /// off. A call is turned away if a run with this option began less than P/2 before the call, or after it, and succeeded.
    /// After a failure the next in line runs the job, or whichever host comes next. The option also sets what a crontab
    /// needs; each part has its own way back. It is quiet, as with -q, unless standard error is a terminal (-v). It waits in
    /// line for P/12, at most 2h, and for up to P/2 while a run of this period goes on (--wait D; -n tries once). It exits
    /// with 0 if the job is done or being done (-E N), and with 75 if something else holds the lock: then only the call
    /// that was first in line prints a line.
    #[arg(long, value_name = "P", value_parser = period, help_heading = CRONTAB)]
    #[arg(conflicts_with_all = ["shared", "slots", "reentrant", "newest"])]
    pub(crate) once_per: Option<Duration>,
    /// With --once-per: at most N runs begin in each P
    ///
    /// From 1 to 100, on all hosts together, whatever became of the runs. N = 1 is for a job that must not be repeated: it runs at most once, though
    /// it fails or its host dies, and a call does not wait unless --wait says so.
    #[arg(long, value_name = "N", value_parser = whole(1_u64, 100), help_heading = CRONTAB)]
    pub(crate) tries: Option<u64>,
    /// With --once-per: check expects a success each D, not each P
    ///
    /// For a job that comes less often than P says: --once-per day --due 3d from Monday to Friday. From P to 100d.
    #[arg(long, value_name = "D", value_parser = period, help_heading = CRONTAB, hide_short_help = true)]
    pub(crate) due: Option<Duration>,
    /// Stop the job after D, and exit with 124
    ///
    /// The job gets SIGTERM (--signal), then SIGKILL (--kill-after). 0, the default, means no limit, as with timeout(1).
    #[arg(long, value_name = "D", value_parser = duration, help_heading = CRONTAB)]
    pub(crate) max_run: Option<Duration>,
    /// Append the job's standard error to FILE
    ///
    /// redlock's own messages stay on its standard error. If the run fails, redlock prints the job's last lines there,
    /// up to 1,024 bytes, with -q too, and the log of the lock keeps them for log -v and status. The job's errors may hold secrets. FILE is created for this user alone.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    #[arg(help_heading = CRONTAB)]
    pub(crate) keep_errors: Option<PathBuf>,
    /// Ask the job to stop with SIG, not SIGTERM
    ///
    /// SIG is a name, such as INT, or a number, as for timeout -s. redlock sends it to the whole job when the lease is lost
    /// and when --max-run has passed. Signals that redlock gets are passed on as they are.
    #[arg(long, value_name = "SIG", value_parser = signal, default_value = "TERM", hide_default_value = true)]
    #[arg(help_heading = JOB)]
    pub(crate) signal: i32,
    /// Send SIGKILL D after the job was asked to stop
    ///
    /// Whoever asked: redlock, because the lease is lost or --max-run has passed, or you, by SIGTERM, SIGINT, SIGQUIT or
    /// --signal to redlock. Sooner if the lease ends; a long D leaves less time to ride out an outage. Without it, or with 0: a
    /// sixth of the ttl, at most 10s, if redlock asked; never if you did.
    #[arg(long, value_name = "D", value_parser = duration, help_heading = JOB)]
    pub(crate) kill_after: Option<Duration>,
    /// When the lease is lost: stop or continue
    ///
    /// stop, the default: no process of the job is left when the lease can expire. continue: the job runs on without the
    /// lock, and the exit status is 76.
    #[arg(long, value_name = "WHAT", value_enum, hide_possible_values = true, hide_short_help = true)]
    #[arg(help_heading = JOB)]
    pub(crate) on_lost: Option<OnLost>,
    /// The job lasts until its last process ends
    ///
    /// Without this option the job ends with COMMAND, and anything COMMAND left in the background runs on without the lock.
    #[arg(long, hide_short_help = true, help_heading = JOB)]
    pub(crate) whole: bool,
    /// Run LINE with /bin/sh -c instead of COMMAND
    #[arg(short = 'c', value_name = "LINE", conflicts_with = "command", help_heading = JOB)]
    pub(crate) line: Option<OsString>,
    /// The command and its arguments; started directly, without a shell
    #[arg(value_name = "COMMAND", last = true, num_args = 1..)]
    #[arg(hide_short_help = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
    // The last: its heading would be that of the arguments behind it.
    #[command(flatten)]
    pub(crate) taking: LeaseArgs,
}

impl RunArgs {
    pub(crate) fn once_per(&self) -> Option<OncePer> {
        let period = self.once_per?;
        let named = self.wait.map(|wait| wait.min(period / 2));
        let wait = named.or_else(|| self.taking.nonblock.then_some(Duration::ZERO));
        Some(OncePer { period, wait, tries: self.tries, due: self.due })
    }
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock acquire NAME [OPTIONS]")]
pub(crate) struct AcquireArgs {
    /// The name of the lock
    #[arg(value_name = "NAME", value_parser = lock_name, conflicts_with = "names")]
    pub(crate) plain: Option<String>,
    /// Wait in line for the lock, for at most D
    ///
    /// Without D: forever. Without --wait, or with 0: try once. redlock also waits for a Redis that cannot be reached.
    #[arg(short, long, value_name = "D", value_parser = wait_time, num_args = 0..=1, help_heading = LOCK)]
    #[arg(default_value = "0", default_missing_value = FOREVER, hide_default_value = true)]
    pub(crate) wait: Duration,
    /// Renew the lease until process PID ends, then release it
    ///
    /// A background process does this: in a script, write --while-pid $$. The lease can still be
    /// released by its token.
    #[arg(long, value_name = "PID", value_parser = whole(1, i32::MAX), conflicts_with = "reentrant", help_heading = LOCK)]
    pub(crate) while_pid: Option<i32>,
    /// With --while-pid, when the lease is lost: stop or continue
    ///
    /// stop, the default: PID and its descendants are stopped before the lease can expire. continue: they go on, and a message on the
    /// standard error of PID says so.
    #[arg(long, value_name = "WHAT", value_enum, hide_possible_values = true, hide_short_help = true)]
    #[arg(requires = "while_pid", help_heading = LOCK)]
    pub(crate) on_lost: Option<OnLost>,
    // The last, as in RunArgs.
    #[command(flatten)]
    pub(crate) taking: LeaseArgs,
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock extend NAME --token T [--ttl D] [OPTIONS]")]
pub(crate) struct ExtendArgs {
    #[command(flatten)]
    pub(crate) lock: NameArgs,
    /// The token that acquire printed
    #[arg(long, value_name = "T", value_parser = token)]
    pub(crate) token: Option<String>,
    /// Make the lease last at least D from now
    ///
    /// The time printed is about 1 % shorter, to allow for clock drift [default: the lease's ttl]
    #[arg(long, value_name = "D", value_parser = ttl)]
    pub(crate) ttl: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock release NAME (--token T | --force) [OPTIONS]")]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) lock: NameArgs,
    /// The token that acquire printed; for --force its first eight characters, which status shows, are enough
    #[arg(long, value_name = "T", value_parser = token)]
    pub(crate) token: Option<String>,
    /// Free the lock now; the holder's job may still be running: redlock stop ends it
    #[arg(long)]
    pub(crate) force: bool,
    /// The exit status of the work, for the log
    ///
    /// From 0 to 255. In a trap, in single quotes: trap 'redlock release NAME --token "$token" --status $? || :' EXIT, and a second
    /// one: trap 'exit 130' HUP INT TERM, since after a signal bash runs the first with status 0
    #[arg(long, value_name = "S", value_parser = whole(0, u8::MAX), conflicts_with = "force")]
    pub(crate) status: Option<u8>,
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock stop NAME [--token T] [--for D] [OPTIONS]")]
pub(crate) struct StopArgs {
    #[command(flatten)]
    pub(crate) lock: NameArgs,
    /// Of several holders, the one whose token begins with T, as status shows it; all stops all of them
    #[arg(long, value_name = "T", value_parser = token)]
    pub(crate) token: Option<String>,
    /// Close the lock for D first: nobody gets it until then
    ///
    /// At most 30d; also of a free lock. Who waits keeps its place; calls that do not wait exit with 75, with --once-per
    /// with 0. 0 opens the lock, from any host, and calls the next in line; no job is stopped then.
    #[arg(long = "for", value_name = "D", value_parser = hold_time)]
    pub(crate) closes: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock status [NAME...] [OPTIONS]")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) locks: NamesArgs,
    /// In a list: also locks that are free, if their last runs are known
    #[arg(short, long)]
    pub(crate) all: bool,
    /// Exit 0 if this token holds the lock, else 77
    #[arg(long, value_name = "T", value_parser = token)]
    pub(crate) token: Option<String>,
    /// List the hosts that came to the lock, and the result of each
    ///
    /// The latest first: when the host last asked for the lock, and whether it then took the lock, others had the lock, or
    /// the job had already succeeded (--once-per). The latest 100 hosts are known.
    #[arg(long)]
    pub(crate) hosts: bool,
    /// Refresh every D [default: 2s], on a terminal in place; a list begins with the worst
    ///
    /// On a terminal q ends the watch, as Ctrl-C does.
    #[arg(long, value_name = "D", value_parser = watch, default_missing_value = "2s", num_args = 0..=1)]
    #[arg(conflicts_with = "token")]
    pub(crate) watch: Option<Duration>,
}

impl StatusArgs {
    pub(crate) fn answers_by_status(&self, quiet: bool) -> bool {
        self.token.is_some() || quiet
    }
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock check [NAME...] [--within D] [--min-hosts N] [OPTIONS]")]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub(crate) locks: NamesArgs,
    /// The last success is to have ended within D, whatever --once-per says
    ///
    /// With names only. A lock that is called without --once-per needs it.
    #[arg(long, value_name = "D", value_parser = remembered)]
    pub(crate) within: Option<Duration>,
    /// At least N hosts are to have come
    ///
    /// From 1 to 100. A host has come when it asked for the lock, whatever the answer was; the latest 100 are known. The line
    /// names those that last came earlier.
    #[arg(long, value_name = "N", value_parser = whole(1_usize, 100))]
    pub(crate) min_hosts: Option<usize>,
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock forget NAME [OPTIONS]")]
pub(crate) struct ForgetArgs {
    #[command(flatten)]
    pub(crate) lock: NameArgs,
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock log [NAME...] [-n N] [--since D] [OPTIONS]")]
pub(crate) struct LogArgs {
    #[command(flatten)]
    pub(crate) locks: NamesArgs,
    /// Show the last N runs, of all these locks together
    #[arg(short = 'n', long = "lines", value_name = "N", value_parser = whole(1, MOST_LINES))]
    pub(crate) lines: Option<usize>,
    /// Show runs that ended within the last D, or are still running [default of a picture: 1d]
    #[arg(long, value_name = "D", value_parser = remembered)]
    pub(crate) since: Option<Duration>,
    /// Show only runs that failed, or whose lease ran out
    #[arg(long)]
    pub(crate) failed: bool,
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock wait NAME [--timeout D] [OPTIONS]")]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) lock: NameArgs,
    /// Wait for at most D [default: forever]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock completions SHELL")]
pub(crate) struct CompletionsArgs {
    /// bash, zsh or fish
    #[arg(value_name = "SHELL", value_enum, hide_possible_values = true)]
    pub(crate) shell: Shell,
}

/// For parsing, man pages and completions. The options of a subcommand are defined only if the command line has it,
/// because to define all takes 0.25 ms of 2.5.
pub fn command() -> clap::Command {
    Cli::command()
        // The one screen of `redlock -h` has room for the commands only.
        .mut_args(|arg| arg.global(false).hide_short_help(true))
        .mut_subcommands(|command| {
            let options = match command.get_name() {
                "run" => with_common::<RunArgs>,
                "acquire" => with_common::<AcquireArgs>,
                "extend" => with_common::<ExtendArgs>,
                "release" => with_common::<ReleaseArgs>,
                "stop" => with_common::<StopArgs>,
                "status" => with_common::<StatusArgs>,
                "check" => with_common::<CheckArgs>,
                "forget" => with_common::<ForgetArgs>,
                "log" => with_common::<LogArgs>,
                "wait" => with_common::<WaitArgs>,
                "completions" => with_common::<CompletionsArgs>,
                _ => with_common::<NoArgs>,
            };
            command.after_help(COMMON).defer(options)
        })
}

// The arguments of a command that has none of its own. (No doc comment, for the same reason as `Common`.)
#[derive(Args)]
struct NoArgs {}

/// Adds the options of the command `A`, and those of every command, which are hidden from the help. clap merges
/// `redlock -q status` and `redlock status -q`. (clap's own way, which adds the options to all commands at each start,
/// takes 0.1 ms.)
fn with_common<A: Args>(command: clap::Command) -> clap::Command {
    Common::augment_args(A::augment_args(command))
        .mut_args(|arg| if arg.is_global_set() { arg.hide(true) } else { arg })
}

impl Cli {
    /// The common options of `run` and `acquire`; the other commands take no lease.
    pub(crate) fn taking(&self) -> Option<&LeaseArgs> {
        match &self.command {
            Command::Run(args) => Some(&args.taking),
            Command::Acquire(args) => Some(&args.taking),
            _ => None,
        }
    }

    pub(crate) fn is_once(&self) -> bool {
        matches!(&self.command, Command::Run(args) if args.once_per.is_some())
    }

    /// On the command line; of several locks of `run`, the first. None for `status` of several locks.
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.command {
            Command::Extend(args) => args.lock.name(),
            Command::Release(args) => args.lock.name(),
            Command::Stop(args) => args.lock.name(),
            Command::Wait(args) => args.lock.name(),
            Command::Forget(args) => args.lock.name(),
            Command::Check(args) => args.locks.one(),
            Command::Status(args) => args.locks.one(),
            _ => self.taking()?.names.first().map(String::as_str),
        }
    }
}
