//! The command line: every flag with its help text, variable and default, and which flags cannot be together. Knows clap
//! and humantime, and nothing else of redlock, so that the test which makes completions/ and man/ can include this file.
//!
//! Variables are only named here: clap takes an empty variable for a value, and knows no configuration file.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SHORTEST_TTL: Duration = Duration::from_millis(100);
/// Three tries to renew a shorter lease, and a grace, do not fit into it.
const SHORTEST_TTL_OF_RUN: Duration = Duration::from_millis(500);
/// The longest lease, and so the longest of everything that is measured by one.
pub(crate) const LONGEST_TTL: Duration = Duration::from_secs(30 * 24 * 3600);
const SHORTEST_WATCH: Duration = Duration::from_millis(100);
/// In bytes.
pub(crate) const LONGEST_NAME: usize = 512;
/// In bytes.
pub(crate) const LONGEST_LABEL: usize = 256;
/// How much of a token `status` shows, and `release` needs to know whose lease is meant.
const SHOWN_OF_TOKEN: usize = 8;

/// With the commit where `make` has built it from a repository.
const VERSION: &str = match option_env!("REDLOCK_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// What became of the command line.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// It can be understood.
    Cli(Box<Cli>),
    /// `--help` or `--version`: for standard output, and all is well.
    Show(String),
    /// Nothing was asked for: the short screen, for standard error.
    Bare(String),
    /// It cannot be understood: one line that says why.
    Wrong(String),
}

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

/// The examples of the short screen; cron's is the one that is hardest to get right.
const EXAMPLES: &str = "\
Examples:
  redlock run --name backup -- ./backup.sh            fails at once if held
  redlock run --name deploy --wait 10m -- ./deploy    waits up to ten minutes
  redlock run --name report -q -E 0 --hold-at-least 50s -- ./report    for cron";

const STATUSES_SHORT: &str = "\
Exit status: 0 done; run: the command's own (126 127: cannot execute, not found)
   64 usage error      70 internal error   75 held by another (-E N: N instead)
   69 Redis unreachable or unable to serve 76 run: the lease was lost
   74 output failed                        77 the token does not hold the lock
   78 refused: password, ACL, certificate 124 run: --max-run exceeded

'redlock run -h' shows the options of run, 'redlock --help' everything.";

const STATUSES_LONG: &str = "\
Exit status:
    0  done; for run, the command exited 0
    N  run: the command's own status
   64  usage: a bad option, name, duration or URL, or an unsafe combination
   69  no quorum of nodes could be reached, or they cannot serve now; for
       doctor, something is broken
   70  internal error
   74  the result could not be written
   75  another holds the lock, and the wait is over (-E N: N instead)
   76  run: the lease was lost while the command ran
   77  the token does not hold the lock
   78  refused; retrying will not help: password, ACL, certificate
  124  run: the job exceeded --max-run and was stopped
  126  run: the command cannot be executed
  127  run: the command was not found
  When a signal ends the command, or the wait, redlock dies of the same signal.

Durations are written 500ms, 30s, 1m 30s, 2h or 0. An unset variable is read
from ~/.config/redlock/redlock.conf, then from /etc/redlock.conf, in lines like
REDLOCK_REDIS=redis://10.0.0.1.";

/// What is asked for.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command while holding a lock
    ///
    /// Acquires the lock, starts COMMAND, renews the lease while it runs, and releases the lock when it ends. The exit status
    /// is the command's. If the lease cannot be renewed, the job is stopped before another holder can have the lock.
    Run(Box<Deferred<RunArgs>>),
    /// Take a lock and print its token
    ///
    /// The token, alone on one line of standard output, is what extend and release need. The lease is not renewed: it ends
    /// after --ttl.
    Acquire(Deferred<AcquireArgs>),
    /// Extend a lease
    ///
    /// Never shortens a lease, and never brings a lost one back. In a job of `redlock run`, the name and the token can be left
    /// out.
    #[command(alias = "renew")]
    Extend(Deferred<ExtendArgs>),
    /// Release a lock
    ///
    /// Releases one hold, and frees the lock with the last. In a job of `redlock run`, the name and the token can be left out;
    /// a job that releases its own lease has lost it, and is stopped.
    Release(Deferred<ReleaseArgs>),
    /// Show who holds a lock, or all locks
    ///
    /// Without a name: every lock under the prefix. With several names, or a * in one: those that match, as a table.
    Status(Deferred<StatusArgs>),
    /// Wait until a lock is free, without taking it
    ///
    /// Exits 0 once the lock is free, or 75 when the time is up.
    Wait(Deferred<WaitArgs>),
    /// Check whether Redis is ready for locks
    ///
    /// Looks at every node, and says what is wrong, what that means for locks, and how to mend it. Changes nothing there.
    Doctor(Deferred<DoctorArgs>),
    /// Print shell completions
    Completions(Deferred<CompletionsArgs>),
}

/// The arguments of a command, and the options of every command behind its name. They are defined when the command is called:
/// to define those of all commands at each start, or to hand clap's `global` options down to all, takes 0.1 ms each.
#[derive(Debug)]
pub(crate) struct Deferred<T> {
    args: T,
    common: Common,
}

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.defer(|command| Common::augment_args(T::augment_args(command)))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Deferred::<T>::augment_args(command)
    }
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Deferred<T>, clap::Error> {
        Ok(Deferred { args: T::from_arg_matches(matches)?, common: Common::from_arg_matches(matches)? })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Deferred::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<T> Deref for Deferred<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.args
    }
}

impl<T> DerefMut for Deferred<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.args
    }
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
    /// Lines for a shell's eval: acquire only.
    Env,
}

/// What happens to a job whose lease is lost.
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

/// How long to wait in line for a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// One try.
    No,
    Forever,
    For(Duration),
}

impl Wait {
    fn of(option: Option<Option<Duration>>) -> Wait {
        match option {
            None | Some(Some(Duration::ZERO)) => Wait::No,
            Some(None) => Wait::Forever,
            Some(Some(time)) => Wait::For(time),
        }
    }
}

// What every command takes, before or after its name. They say where and who, never what. (clap would make a doc comment
// the description of the command.)
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Common {
    /// Redis address; with several, more than half must agree
    ///
    /// redis://[user:password@]host[:port][/db], rediss:// for the same over TLS, unix:///path.sock[?db=n],
    /// redis+sentinel://h1,h2,h3/SERVICE[/db], redis+cluster://h1,h2,h3, or local:[/DIR] for a server that redlock starts for
    /// the jobs of one machine. Repeat the option, or separate URLs by commas, for several independent masters; more than
    /// half must agree [env: REDLOCK_REDIS, REDIS_URL] [default: redis://127.0.0.1:6379]
    #[arg(long, value_name = "URL", action = ArgAction::Append)]
    pub(crate) redis: Vec<String>,
    /// The key in Redis is this prefix followed by the name [env: REDLOCK_PREFIX] [default: redlock:]
    #[arg(long, value_name = "P", hide_short_help = true)]
    pub(crate) prefix: Option<String>,
    /// Time limit for one request to one node [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single
    /// node ttl/10 within 250ms to 3s; never more than ttl/2]
    #[arg(long, value_name = "D", value_parser = duration, hide_short_help = true)]
    pub(crate) node_timeout: Option<Duration>,
    /// A node started less than D ago grants no lock, because it may have forgotten a lease. D must cover the longest lease in
    /// use on these nodes: set it if leases longer than 30s are used beside shorter ones [env: REDLOCK_QUARANTINE]
    /// [default: the ttl, at least 30s; with a single node 0]
    #[arg(long, value_name = "D", value_parser = duration, hide_short_help = true)]
    pub(crate) quarantine: Option<Duration>,
    /// Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub(crate) password_file: Option<PathBuf>,
    /// Trust the certificates in FILE (PEM) instead of the system's [env: REDLOCK_TLS_CA]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub(crate) tls_ca: Option<PathBuf>,
    /// The client certificate (PEM) to show to the server [env: REDLOCK_TLS_CERT]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key (PEM) of the client certificate [env: REDLOCK_TLS_KEY]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Count a lease, and each renewal, only after N replicas have it (WAIT), so that a fail-over does not lose it [env:
    /// REDLOCK_REPLICAS] [default: 0]
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(crate) replicas: Option<u32>,
    /// How the holder appears to others; for run and acquire only [env: REDLOCK_LABEL] [default: the command's base name]
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub(crate) label: Option<String>,
    /// Output format: text, json, or (acquire only) env for a shell's eval. run prints no results [default: text]
    #[arg(long = "format", value_name = "FORMAT", value_enum, hide_short_help = true, hide_possible_values = true)]
    pub(crate) given_format: Option<Format>,
    #[arg(skip)]
    pub(crate) format: Format,
    /// Print errors only
    #[arg(short, long, overrides_with = "quiet")]
    pub(crate) quiet: bool,
    /// Print more detail
    #[arg(short, long, overrides_with = "verbose")]
    pub(crate) verbose: bool,
    /// Print help (-h: one screen, --help: all of it)
    #[arg(short, long, action = ArgAction::Help)]
    pub(crate) help: Option<bool>,
}

// Which lock: by an option or as a plain argument. (No doc comment, as above.)
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The name of the lock
    #[arg(long = "name", value_name = "N", value_parser = lock_name)]
    option: Option<String>,
    /// The name of the lock
    #[arg(value_name = "NAME", value_parser = lock_name, conflicts_with = "option")]
    plain: Option<String>,
}

impl Named {
    pub(crate) fn name(&self) -> Option<&str> {
        self.option.as_deref().or(self.plain.as_deref())
    }
}

// What run and acquire have in common. (No doc comment, as above.)
#[derive(Debug, Args)]
pub(crate) struct Taking {
    /// The name, however it was given.
    #[arg(skip)]
    pub(crate) name: String,
    /// The name of the lock
    ///
    /// 1 to 512 bytes without control characters. The key in Redis is the prefix followed by the name.
    #[arg(long = "name", value_name = "N", value_parser = lock_name)]
    option: Option<String>,
    /// How long the lease lasts without a renewal
    ///
    /// If redlock or its machine dies, the lock is free again after that time. From 100ms (run: 500ms) to 30 days.
    #[arg(long, value_name = "D", default_value = "30s", value_parser = ttl)]
    pub(crate) ttl: Duration,
    /// Try once, as flock -n: the default
    #[arg(short = 'n', conflicts_with = "wait", hide_short_help = true)]
    once: bool,
    /// Exit with N, not 75, if the lock is held
    ///
    /// From 0 to 255. acquire refuses 0, since a script would go on without the lock.
    #[arg(short = 'E', long, value_name = "N", value_parser = exit_status)]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Share the lock if an enclosing run holds it
    ///
    /// If an enclosing redlock run already holds this lock, or --token does, share its lease instead of waiting for it.
    /// Otherwise this option changes nothing.
    #[arg(long)]
    pub(crate) reentrant: bool,
    /// With --reentrant: the token of the lease to share
    #[arg(long, value_name = "T", value_parser = token, hide_short_help = true)]
    pub(crate) token: Option<String>,
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock run --name N [OPTIONS] [--] COMMAND [ARG]...\n       \
                            redlock run N [OPTIONS] -- COMMAND [ARG]...")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) taking: Taking,
    /// Wait in line for the lock, for at most D
    ///
    /// Without D: for ever. Without --wait, or with 0: try once. If D is left out, put -- before the command. It also
    /// waits for a Redis that cannot be reached.
    #[arg(short, long, value_name = "D", display_order = 1, value_parser = wait_time)]
    wait: Option<Option<Duration>>,
    /// Time between SIGTERM and SIGKILL
    ///
    /// Applies when redlock stops the job because the lease is lost or --max-run has passed. A grace too long for the ttl is
    /// refused [default: ttl/4, at most 10s]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// Send SIGKILL D after SIGTERM, SIGINT or SIGQUIT
    ///
    /// Counted from the first of these signals that redlock gets, like timeout -k. 0, the default, means never.
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) kill_after: Option<Duration>,
    /// When the lease is lost: stop or continue
    ///
    /// stop, the default: no process of the job is left when the lease can expire. continue: the job runs on without the
    /// lock, and the exit status is 76.
    #[arg(long, value_name = "WHAT", value_enum, default_value = "stop", hide_possible_values = true)]
    #[arg(hide_default_value = true)]
    pub(crate) on_lost: OnLost,
    /// Keep the lock for at least D
    ///
    /// Even if the job ends sooner. Counted from when the lock was acquired, whatever the command's status; redlock itself
    /// ends with the command. Use it for one crontab on several hosts whose clocks differ.
    #[arg(long, value_name = "D", value_parser = hold_time)]
    pub(crate) hold_at_least: Option<Duration>,
    /// Stop the job after D, and exit with 124
    ///
    /// SIGTERM, then SIGKILL after the grace. 0, the default, means no limit, as with timeout(1).
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) max_run: Option<Duration>,
    /// The job lasts until its last process ends
    ///
    /// Without this option the job ends with COMMAND, and anything COMMAND left in the background runs on without the lock.
    #[arg(long)]
    pub(crate) whole: bool,
    /// Run LINE with /bin/sh -c instead of COMMAND
    #[arg(short = 'c', value_name = "LINE", hide_short_help = true)]
    line: Option<OsString>,
    /// The command and its arguments; started directly, without a shell
    #[arg(value_name = "COMMAND", required_unless_present = "line", trailing_var_arg = true, num_args = 1..)]
    #[arg(hide_short_help = true, value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

impl RunArgs {
    pub(crate) fn wait(&self) -> Wait {
        Wait::of(self.wait)
    }

    /// What the job is called where no label is given: the base name of the command, or of the first word of `-c`. Never
    /// its arguments, which may hold secrets.
    pub(crate) fn base_name(&self) -> String {
        let line = self.line.as_ref().map(|line| line.to_string_lossy());
        let first = match &line {
            Some(line) => line.split_whitespace().next().unwrap_or_default().into(),
            None => self.command.first().map(|command| command.to_string_lossy()).unwrap_or_default(),
        };
        let name = Path::new(first.as_ref()).file_name().unwrap_or_default().to_string_lossy();
        // A letter has 4 bytes at most.
        name.chars().take(LONGEST_LABEL / 4).map(|letter| if letter.is_control() { '?' } else { letter }).collect()
    }
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock acquire NAME [OPTIONS]")]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    pub(crate) taking: Taking,
    /// The name of the lock
    #[arg(value_name = "NAME", value_parser = lock_name, conflicts_with = "option")]
    plain: Option<String>,
    /// Wait in line for the lock, for at most D
    ///
    /// Without D: for ever. Without --wait, or with 0: try once. It also waits for a Redis that cannot be reached.
    #[arg(short, long, value_name = "D", display_order = 1, value_parser = wait_time)]
    wait: Option<Option<Duration>>,
}

impl AcquireArgs {
    pub(crate) fn wait(&self) -> Wait {
        Wait::of(self.wait)
    }
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock extend NAME --token T [--ttl D] [OPTIONS]")]
pub(crate) struct ExtendArgs {
    #[command(flatten)]
    pub(crate) named: Named,
    /// The token that acquire printed
    #[arg(long, value_name = "T", value_parser = token)]
    pub(crate) token: Option<String>,
    /// Make the lease last at least D from now
    ///
    /// What is printed is D less 1 % for clock drift [default: the ttl it was taken with]
    #[arg(long, value_name = "D", value_parser = ttl)]
    pub(crate) ttl: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock release NAME (--token T | --revoke | --force) [OPTIONS]")]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) named: Named,
    /// The token that acquire printed; for --revoke and --force its first eight characters, which status shows, are enough
    #[arg(long, value_name = "T", value_parser = token)]
    pub(crate) token: Option<String>,
    /// End another holder's lease safely: its job is stopped first
    #[arg(long, conflicts_with = "force")]
    pub(crate) revoke: bool,
    /// Free the lock now; the holder's job may still be running
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock status [NAME...] [OPTIONS]")]
pub(crate) struct StatusArgs {
    /// A lock
    #[arg(long = "name", value_name = "N", value_parser = lock_name)]
    option: Vec<String>,
    /// A lock, or several; a * in quotes stands for anything
    #[arg(value_name = "NAME", value_parser = lock_name)]
    plain: Vec<String>,
    /// Exit 0 if this token holds the lock, else 77
    #[arg(long, value_name = "T", value_parser = token)]
    pub(crate) token: Option<String>,
    /// Exit 0 if the lock is free, 75 if it is held; so does -q, which prints nothing
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// Refresh every D [default: 2s]
    #[arg(long, value_name = "D", value_parser = watch_time, default_missing_value = "2s", num_args = 0..=1)]
    pub(crate) watch: Option<Duration>,
}

impl StatusArgs {
    /// The names as they were given, each once.
    pub(crate) fn names(&self) -> &[String] {
        &self.plain
    }

    /// The lock that is asked about, if it is one.
    pub(crate) fn one_name(&self) -> Option<&str> {
        match self.names() {
            [name] if !name.contains('*') => Some(name),
            _ => None,
        }
    }
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock wait NAME [--timeout D] [OPTIONS]")]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) named: Named,
    /// Wait for at most D [default: for ever]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Debug, Args)]
#[command(override_usage = "redlock doctor [OPTIONS]")]
pub(crate) struct DoctorArgs {}

#[derive(Debug, Args)]
#[command(override_usage = "redlock completions SHELL")]
pub(crate) struct CompletionsArgs {
    /// bash, zsh or fish
    #[arg(value_name = "SHELL", value_enum, hide_possible_values = true)]
    pub(crate) shell: Shell,
}

/// The definition of the command line, for parsing and for what is made from it.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}

/// Reads a command line, program name first.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Parsed {
    let arguments = help_as_option(arguments.into_iter().collect());
    let mut redlock = command();
    if arguments.iter().skip(1).all(|argument| argument.as_encoded_bytes().starts_with(b"-")) {
        // The short screen of `redlock` itself has room for the commands only.
        redlock = redlock.mut_args(|arg| arg.hide_short_help(true));
    }
    let mut read = |arguments: &[OsString]| {
        redlock.try_get_matches_from_mut(arguments).and_then(|matches| Cli::from_arg_matches(&matches))
    };
    let first = read(&arguments);
    let parsed = match first.as_ref().ok().and_then(|cli| name_as_option(cli, &arguments)) {
        Some(rearranged) => read(&rearranged),
        None => first,
    };
    let error = match parsed {
        Ok(mut cli) => {
            return match cli.settle().and_then(|()| check(&cli)) {
                Ok(()) => Parsed::Cli(Box::new(cli)),
                Err(why) => Parsed::Wrong(why),
            };
        }
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Parsed::Show(error.render().to_string()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Parsed::Bare(error.render().to_string()),
        _ => Parsed::Wrong(complaint(&error, &arguments)),
    }
}

/// `help [COMMAND]` as `[COMMAND] --help`: clap's own command of that name takes a line of the short screen.
fn help_as_option(mut arguments: Vec<OsString>) -> Vec<OsString> {
    if arguments.get(1).is_some_and(|first| first == "help") {
        arguments.remove(1);
        arguments.truncate(2);
        arguments.push("--help".into());
    }
    arguments
}

/// `run N [OPTIONS] -- COMMAND` as `run --name=N [OPTIONS] -- COMMAND`: to clap, a command begins with N.
fn name_as_option(cli: &Cli, arguments: &[OsString]) -> Option<Vec<OsString>> {
    let Command::Run(run) = &cli.command else { return None };
    let (before, tail) = arguments.split_at(arguments.len().checked_sub(run.command.len())?);
    let is_name = run.taking.option.is_none() && tail.iter().any(|word| word == "--");
    let is_name = is_name && before.last().is_none_or(|word| word != "--");
    let mut name = OsString::from("--name=");
    name.push(tail.first().filter(|_| is_name)?);
    Some([before, &[name], &tail[1..]].concat())
}

impl Cli {
    /// Brings what can be written in several ways into one form.
    fn settle(&mut self) -> Result<(), String> {
        self.merge_common();
        // Like timeout(1): zero switches a limit off.
        let limit = |limit: &mut Option<Duration>| *limit = limit.filter(|limit| !limit.is_zero());
        match &mut self.command {
            Command::Run(args) => {
                let missing =
                    "which lock? the name and -- go before the command: redlock run NAME -- COMMAND, or --name NAME";
                args.taking.name = args.taking.option.take().ok_or(missing)?;
                if let Some(line) = &args.line {
                    if let Some(command) = args.command.first() {
                        return Err(format!("two commands: -c and {}", command.display()));
                    }
                    args.command = ["/bin/sh".into(), "-c".into(), line.clone()].into();
                }
                limit(&mut args.kill_after);
                limit(&mut args.max_run);
                limit(&mut args.hold_at_least);
            }
            Command::Acquire(args) => {
                let name = args.taking.option.take().or(args.plain.take());
                args.taking.name = name.ok_or("which lock? give its name")?;
            }
            Command::Status(args) => {
                let StatusArgs { option, plain, .. } = &mut **args;
                plain.append(option);
                plain.sort();
                plain.dedup();
            }
            Command::Release(args) => {
                // As `status` shows it.
                args.token = args.token.take().map(|token| token.trim_end_matches('…').to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    /// The options of every command, those before and those behind its name together; of two the later one counts.
    fn merge_common(&mut self) {
        let later = match &mut self.command {
            Command::Run(args) => &mut args.common,
            Command::Acquire(args) => &mut args.common,
            Command::Extend(args) => &mut args.common,
            Command::Release(args) => &mut args.common,
            Command::Status(args) => &mut args.common,
            Command::Wait(args) => &mut args.common,
            Command::Doctor(args) => &mut args.common,
            Command::Completions(args) => &mut args.common,
        };
        let (earlier, later) = (std::mem::take(&mut self.common), std::mem::take(later));
        self.common = Common {
            redis: [earlier.redis, later.redis].concat(),
            prefix: later.prefix.or(earlier.prefix),
            node_timeout: later.node_timeout.or(earlier.node_timeout),
            quarantine: later.quarantine.or(earlier.quarantine),
            password_file: later.password_file.or(earlier.password_file),
            tls_ca: later.tls_ca.or(earlier.tls_ca),
            tls_cert: later.tls_cert.or(earlier.tls_cert),
            tls_key: later.tls_key.or(earlier.tls_key),
            replicas: later.replicas.or(earlier.replicas),
            label: later.label.or(earlier.label),
            given_format: later.given_format.or(earlier.given_format),
            format: later.given_format.or(earlier.given_format).unwrap_or_default(),
            quiet: later.quiet || earlier.quiet,
            verbose: later.verbose || earlier.verbose,
            help: None,
        };
    }

    /// The name as it was given.
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.command {
            Command::Run(args) => Some(&args.taking.name),
            Command::Acquire(args) => Some(&args.taking.name),
            Command::Extend(args) => args.named.name(),
            Command::Release(args) => args.named.name(),
            Command::Status(args) => args.one_name(),
            Command::Wait(args) => args.named.name(),
            _ => None,
        }
    }

    /// What the status of "held by another" is replaced with.
    pub(crate) fn conflict(&self) -> Option<u8> {
        match &self.command {
            Command::Run(args) => args.taking.conflict_exit_code,
            Command::Acquire(args) => args.taking.conflict_exit_code,
            _ => None,
        }
    }

    /// `run`'s standard output belongs to its job.
    pub(crate) fn is_run(&self) -> bool {
        matches!(self.command, Command::Run(_))
    }
}

/// Refuses what cannot be together, as far as it takes neither the environment nor the arithmetic of a lease to know.
fn check(cli: &Cli) -> Result<(), String> {
    let refuse = |wrong: bool, why: &str| if wrong { Err(why.to_owned()) } else { Ok(()) };
    let Common { quiet, verbose, format, label, .. } = &cli.common;
    refuse(*quiet && *verbose, "--quiet and --verbose contradict each other")?;
    let acquires = matches!(cli.command, Command::Acquire(_));
    refuse(*format == Format::Env && !acquires, "--format env is for acquire only; there are text and json")?;
    let takes = acquires || matches!(cli.command, Command::Run(_));
    refuse(label.is_some() && !takes, "--label is for run and acquire only")?;
    let taking = |taking: &Taking| {
        let pointless = taking.token.is_some() && !taking.reentrant;
        refuse(pointless, "--token needs --reentrant: it is the lease to share")
    };
    match &cli.command {
        Command::Run(args) => {
            taking(&args.taking)?;
            refuse(args.taking.ttl < SHORTEST_TTL_OF_RUN, "--ttl: the shortest for run is 500ms")?;
            refuse(args.command.iter().take(1).any(|command| command.is_empty()), "the command is empty")
        }
        Command::Acquire(args) => {
            taking(&args.taking)?;
            let unsafe_zero = args.taking.conflict_exit_code == Some(0);
            refuse(unsafe_zero, "-E 0 would let a script go on without the lock; it is for run only")
        }
        Command::Release(args) => {
            let shown = args.token.as_ref().is_none_or(|token| token.chars().count() >= SHOWN_OF_TOKEN);
            refuse(
                (args.revoke || args.force) && !shown,
                "--token is too short to tell whose lease is meant; give the eight characters that status shows",
            )
        }
        Command::Status(args) => {
            let answers = args.token.is_some() || args.exit_code || *quiet;
            refuse(
                answers && args.one_name().is_none(),
                "--token, --exit-code and -q ask about one lock; give its name",
            )?;
            refuse(
                args.watch.is_some() && answers,
                "--watch never ends, so it gives no status; leave out --token, --exit-code and -q",
            )
        }
        Command::Wait(args) => refuse(args.named.name().is_none(), "which lock? give its name"),
        _ => Ok(()),
    }
}

/// Where the habits of flock, consul and others lead astray: what they write, what it is called here, and with which commands.
const MEANT: [(&str, &str, &[&str]); 10] = [
    ("lock", "redlock run or redlock acquire?", &[]),
    ("unlock", "redlock release?", &[]),
    ("refresh", "redlock extend?", &[]),
    ("list", "redlock status?", &[]),
    ("ls", "redlock status?", &[]),
    ("--json", "--format json?", &["acquire", "extend", "release", "status"]),
    ("--timeout", "--wait?", &["run", "acquire"]),
    ("--retry", "--wait?", &["run", "acquire"]),
    ("--shell", "-c?", &["run"]),
    ("-s", "every lock is exclusive", &["run", "acquire"]),
];

/// One line that says what is wrong: mostly clap's own words.
fn complaint(error: &clap::Error, arguments: &[OsString]) -> String {
    let told = |what| match error.get(what) {
        Some(ContextValue::String(text)) => text.clone(),
        Some(ContextValue::Strings(texts)) => texts.join(" "),
        _ => String::new(),
    };
    let (command, argument) = (told(ContextKind::InvalidSubcommand), told(ContextKind::InvalidArg));
    let given = |command: &&str| arguments.get(1..).unwrap_or_default().iter().any(|argument| argument == command);
    let meant = |word: &str| {
        let mut hints = MEANT.iter().filter(|(_, _, with)| with.is_empty() || with.iter().any(given));
        hints.find(|(known, ..)| *known == word).map(|(_, meant, _)| meant)
    };
    match error.kind() {
        ErrorKind::MissingSubcommand => "which command? redlock -h shows them".to_owned(),
        ErrorKind::InvalidSubcommand => match meant(&command) {
            Some(meant) => format!("no command {command:?}; {meant}"),
            None if arguments.iter().any(|argument| argument == "--") => {
                format!("no command {command:?}; redlock run {command} -- COMMAND?")
            }
            None => format!("no command {command:?}; redlock -h shows all commands"),
        },
        ErrorKind::UnknownArgument if meant(&argument).is_some() => {
            format!("no option {argument}; {}", meant(&argument).unwrap_or(&""))
        }
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            format!("no option {}; -h shows them", argument.replace(char::is_control, "?"))
        }
        ErrorKind::MissingRequiredArgument if argument.contains("COMMAND") => {
            "which command? COMMAND is missing: redlock run N -- COMMAND".to_owned()
        }
        ErrorKind::ArgumentConflict if told(ContextKind::PriorArg) == "[NAME]" => {
            "two names, one by --name and one without".to_owned()
        }
        ErrorKind::MissingRequiredArgument => "which shell? bash, zsh or fish".to_owned(),
        _ => {
            // Without its tips, which guess, and the usage.
            let text = error.render().to_string();
            let text = text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
            text.split_whitespace().collect::<Vec<_>>().join(" ").replace(char::is_control, "?")
        }
    }
}

/// The format that a command line asks for which could not be understood: its failure is to be told in it too.
pub(crate) fn wanted_format(arguments: &[OsString]) -> Format {
    let before_command = arguments.iter().take_while(|argument| *argument != "--");
    let line: String = before_command.map(|argument| format!(" {} ", argument.to_string_lossy())).collect();
    let line = line.replace("  ", " ").replace('=', " ");
    let has = |words: &str| line.contains(words);
    match () {
        () if has(" run ") => Format::Text,
        () if has(" --format json") => Format::Json,
        // What a shell evaluates comes from acquire alone.
        () if has(" acquire ") && has(" --format env") => Format::Env,
        () => Format::Text,
    }
}

/// A name of a lock.
fn lock_name(text: &str) -> Result<String, String> {
    match text {
        "" => Err("the name is empty".to_owned()),
        _ if text.len() > LONGEST_NAME => Err(format!("the name is longer than {LONGEST_NAME} bytes")),
        _ if text.chars().any(char::is_control) => Err("the name has a control character in it".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// A token, which is empty where a script went on after a failed `acquire`.
fn token(text: &str) -> Result<String, String> {
    match text {
        "" => Err("empty token: did acquire fail?".to_owned()),
        _ if text.contains(char::is_whitespace) => Err("a token has no white space in it".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

fn exit_status(text: &str) -> Result<u8, String> {
    text.parse().map_err(|_| "an exit status is a number from 0 to 255".to_owned())
}

/// The length of a lease, in whole milliseconds as Redis counts.
fn ttl(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        ttl if ttl < SHORTEST_TTL => Err("the shortest is 100ms".to_owned()),
        ttl if ttl > LONGEST_TTL => Err("the longest is 30 days".to_owned()),
        ttl => Ok(Duration::from_millis(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))),
    }
}

fn hold_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        time if time > LONGEST_TTL => Err("the longest is 30 days".to_owned()),
        time => Ok(time),
    }
}

/// `--wait [D]`, which may have swallowed the command or the name.
fn wait_time(text: &str) -> Result<Duration, String> {
    duration(text).map_err(|why| match text.starts_with(|c: char| c.is_ascii_digit()) {
        true => why,
        false => format!("{why}; before a command write --wait -- {text}, or put the name first"),
    })
}

/// `status --watch [D]`, which may have swallowed the name.
fn watch_time(text: &str) -> Result<Duration, String> {
    match duration(text) {
        Ok(time) if time < SHORTEST_WATCH => Err("the shortest is 100ms".to_owned()),
        Err(why) if !text.starts_with(|c: char| c.is_ascii_digit()) => {
            Err(format!("{why}; to give a name, put the name first"))
        }
        result => result,
    }
}

/// A duration in humantime's syntax, or `0`.
///
/// # Errors
/// A number without a unit, months and years (`5M` is hardly ever meant), and what humantime does not understand.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
        return Err(format!("a number needs a unit: {text}s?"));
    }
    if text.starts_with('-') {
        return Err("a duration cannot be negative".to_owned());
    }
    // humantime panics where the sum of its units is exactly one second more than fits; no duration needs numbers that long.
    if text.len() > 40 || text.split(|c: char| !c.is_ascii_digit()).any(|number| number.len() > 12) {
        return Err("too long".to_owned());
    }
    for unit in text.split(|c: char| !c.is_alphabetic()) {
        match unit {
            "M" => {
                let number = text.trim_end_matches('M').trim_end();
                return Err(format!("{text} is {number} months; {number}m?"));
            }
            "month" | "months" | "y" | "yr" | "yrs" | "year" | "years" => {
                return Err("months and years vary in length; write days, as in 30d".to_owned());
            }
            _ => {}
        }
    }
    humantime::parse_duration(text).map_err(|error| match error {
        humantime::DurationError::UnknownUnit { unit, value, .. } if unit.is_empty() => {
            format!("a unit is missing: {value}s?")
        }
        humantime::DurationError::UnknownUnit { unit, .. } => {
            format!("no unit {unit:?}; there are ms, s, m, h, d and w")
        }
        humantime::DurationError::NumberOverflow => "too long, or too fine".to_owned(),
        _ => "a duration is written 500ms, 30s or 1m 30s".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Parsed {
        parse(["redlock"].into_iter().chain(line.split(' ')).map(OsString::from))
    }

    fn cli(line: &str) -> Cli {
        match parsed(line) {
            Parsed::Cli(cli) => *cli,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn run(line: &str) -> Box<Deferred<RunArgs>> {
        match cli(line).command {
            Command::Run(args) => args,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn refused(line: &str) -> String {
        match parsed(line) {
            Parsed::Wrong(why) => why,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn durations() {
        let is = |text, time| assert_eq!(duration(text), Ok(time), "{text}");
        is("0", Duration::ZERO);
        is(" 500ms ", Duration::from_millis(500));
        is("1m 30s", Duration::from_secs(90));
        is("1.5s", Duration::from_millis(1500));
        is("2weeks", Duration::from_secs(14 * 86_400));
        let is = |text, why: &str| assert_eq!(duration(text), Err(why.to_owned()), "{text}");
        is("30", "a number needs a unit: 30s?");
        is("1m 30", "a unit is missing: 30s?");
        is("5M", "5M is 5 months; 5m?");
        is("1h 40M", "1h 40M is 1h 40 months; 1h 40m?");
        is("1y", "months and years vary in length; write days, as in 30d");
        is("", "a duration is written 500ms, 30s or 1m 30s");
        is("3 parsecs", "no unit \"parsecs\"; there are ms, s, m, h, d and w");
        is("18446744073709551615s 1000ms", "too long");
        is("0.00000000001s", "too long, or too fine");
        for bad in ["-5s", "s", "5 5", "1e3s", "٣s", "5s,", "\u{0}", "5µ", ".5s", "5.s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_command_begins_where_the_flags_end() {
        let of = |line| {
            let run = run(line);
            let RunArgs { taking, command, .. } = &**run;
            let words = command.iter().map(|word| word.to_string_lossy().into_owned());
            (taking.name.clone(), words.collect::<Vec<_>>().join(" "))
        };
        let is = |name: &str, command: &str| (name.to_owned(), command.to_owned());
        assert_eq!(of("run --name x cmd -v --name y"), is("x", "cmd -v --name y"));
        assert_eq!(of("run --name x -- cmd -- -q"), is("x", "cmd -- -q"));
        assert_eq!(of("run --name x cmd -- -q"), is("x", "cmd -- -q"));
        assert_eq!(of("run --name x --wait -q cmd"), is("x", "cmd"));
        assert_eq!(of("-q run x -- cmd -- -q"), is("x", "cmd -- -q"));
        assert_eq!(of("run x --wait 5m --redis redis://a -- cmd"), is("x", "cmd"));
        assert_eq!(of("run x -c ls --"), is("x", "/bin/sh -c ls"));
        assert_eq!(of("run -n -c ls --name x"), is("x", "/bin/sh -c ls"));
        let nameless = "which lock? the name and -- go before the command: redlock run NAME -- COMMAND, or --name NAME";
        for line in ["run x cmd", "run -- x -- cmd", "run -- cmd", "run -c ls"] {
            assert_eq!(refused(line), nameless, "{line}");
        }
        let no_command = "which command? COMMAND is missing: redlock run N -- COMMAND";
        assert_eq!(refused("run --name x"), no_command);
        assert_eq!(refused("run x --"), no_command);
        assert!(refused("run --wait ./job.sh").ends_with("write --wait -- ./job.sh, or put the name first"));
        assert_eq!(refused("run --name x -c ls cmd"), "two commands: -c and cmd");
    }

    #[test]
    fn waits_and_limits() {
        assert_eq!(run("run x -- true").wait(), Wait::No);
        assert_eq!(run("run --name x --wait -- true").wait(), Wait::Forever);
        assert_eq!(run("run -w 5m x -- true").wait(), Wait::For(Duration::from_secs(300)));
        assert_eq!(run("run x --wait=0 -- true").wait(), Wait::No);
        assert!(refused("run x -n --wait -- true").contains("cannot be used with"));
        let run = run("run x --kill-after 0 --max-run 0s --hold-at-least 0 --ttl 500ms -- true");
        assert_eq!((run.kill_after, run.max_run, run.hold_at_least), (None, None, None));
        assert_eq!(refused("run x --ttl 499ms -- true"), "--ttl: the shortest for run is 500ms");
    }

    #[test]
    fn options_of_every_command_go_before_and_after_its_name() {
        let Common { redis, prefix, quiet, .. } = cli("--redis a -q run --prefix p: x -- true").common;
        assert_eq!((redis.join(" ").as_str(), prefix.as_deref(), quiet), ("a", Some("p:"), true));
        assert_eq!(cli("--prefix p status --prefix q").common.prefix.as_deref(), Some("q"));
        assert_eq!(refused("-q status -v"), "--quiet and --verbose contradict each other");
        assert!(cli("run x --format json -- true").is_run() && !cli("status x --format json").is_run());
    }

    #[test]
    fn labels_never_show_arguments() {
        assert_eq!(run("run x -- /usr/bin/pg_dump --password=secret").base_name(), "pg_dump");
        assert_eq!(run(&format!("run x -- {}", "ü".repeat(200))).base_name(), "ü".repeat(64));
        let line = ["redlock", "run", "--name", "x", "-c", " /bin/mysql -psecret | wc"].map(OsString::from);
        let Parsed::Cli(cli) = parse(line) else { panic!("refused") };
        assert!(matches!(cli.command, Command::Run(run) if run.base_name() == "mysql"));
    }

    #[test]
    fn what_cannot_be_understood_is_one_line() {
        let lines = [
            "bogus",
            "run",
            "run -x",
            "run x --name y -- z",
            "--format xml status",
            "completions foo",
            "completions",
            "extend --ttl",
            "-q",
            "acquire --name",
            "acquire --\u{1b}[3m",
            "acquire a\u{7}\nb",
        ];
        for line in lines {
            let why = refused(line);
            assert!(!why.contains("Usage:") && !why.contains("  "), "{why}");
            assert!(!why.contains(char::is_control), "{why}");
        }
        let format = |line: &str| wanted_format(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        for line in ["redlock acquire --format json --ttl 30", "redlock --format=json bogus"] {
            assert_eq!(format(line), Format::Json, "{line}");
        }
        assert_eq!(format("redlock acquire --format=env"), Format::Env);
        for line in [
            "redlock run --format json",
            "redlock --format json run",
            "redlock acquire -- --format json",
            "redlock status --format env",
        ] {
            assert_eq!(format(line), Format::Text, "{line}");
        }
    }

    #[test]
    fn the_short_screen_is_one_screen() {
        for line in ["-h", "run -h"] {
            let Parsed::Show(text) = parsed(line) else { panic!("no help") };
            assert!(text.lines().count() <= 24, "{text}");
            assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        }
    }
}
