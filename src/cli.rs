//! The command line: every flag, its help text, variable and default. Knows clap and humantime, and nothing of ours, so
//! that the test which makes completions/ and man/ can include this file as it is.
//!
//! Whether a combination makes sense is not decided here but in `plan.rs`, and variables are only named here: clap takes
//! an empty variable for a value, and knows no configuration file.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

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
#[command(name = "redlock", bin_name = "redlock", version)]
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
    common: Common,
}

/// The examples of the short screen; cron's is the one that nobody gets right at once.
const EXAMPLES: &str = "\
Examples:
  redlock run --name backup -- ./backup.sh            fails at once when held
  redlock run --name deploy --wait 10m -- ./deploy    queues for ten minutes
  redlock run --name report -q -E 0 --hold-at-least 50s -- ./report    for cron";

const STATUSES_SHORT: &str = "\
Exit status:
    0 done; run: the command's own          75 held by another (-E N: N instead)
   64 usage                                 76 the lease was lost on the way
   69 Redis cannot be reached               77 the token does not hold the lock
   70 a fault   74 result not written       78 refused: password, ACL
  124 --max-run is over                126 127 the command cannot run, not found

'redlock run -h' shows the options of run, 'redlock --help' everything.";

const STATUSES_LONG: &str = "\
Exit status:
    0  done; for run, the command exited 0
    N  run: the command's own status
   64  usage: bad flag, name, duration, URL, or what cannot be safe together
   69  no quorum of nodes could be reached, or they cannot serve now
   70  a fault in redlock itself
   74  the result could not be written
   75  the lock is held by another, and the wait is over (-E N replaces it)
   76  run: the lease was lost while the command ran
   77  the token does not hold the lock
   78  refused for good: password, ACL
  124  run --max-run: the job ran too long and was stopped
  126  run: the command cannot be executed
  127  run: the command was not found
  When a signal ends the command, or our waiting, redlock dies of it too.

Durations are written 500ms, 30s, 1m 30s, 2h; 0 is zero. A variable that is not
set is looked up in ~/.config/redlock/redlock.conf, then in /etc/redlock.conf,
lines REDLOCK_X=value.";

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
    Acquire(AcquireArgs),
    Extend(ExtendArgs),
    Release(ReleaseArgs),
    Status(StatusArgs),
    Wait(WaitArgs),
    Completions(CompletionsArgs),
}

/// The commands. What clap derives would define the flags of all of them at each start; here only those of the one that
/// is called are.
impl Subcommand for Command {
    fn augment_subcommands(redlock: clap::Command) -> clap::Command {
        let command = |name, about| clap::Command::new(name).about(about);
        redlock
            .subcommand(command("run", "Run a command while holding a lock").defer(RunArgs::augment_args))
            .subcommand(command("acquire", "Take a lock and print its token").defer(AcquireArgs::augment_args))
            .subcommand(command("extend", "Lengthen a lease").alias("renew").defer(ExtendArgs::augment_args))
            .subcommand(command("release", "Give a lease up").defer(ReleaseArgs::augment_args))
            .subcommand(command("status", "Show who holds a lock, or all locks").defer(StatusArgs::augment_args))
            .subcommand(command("wait", "Wait until a lock is free, taking nothing").defer(WaitArgs::augment_args))
            .subcommand(
                command("completions", "Print the completions for a shell").defer(CompletionsArgs::augment_args),
            )
            .subcommand_required(true)
    }

    fn augment_subcommands_for_update(redlock: clap::Command) -> clap::Command {
        Command::augment_subcommands(redlock)
    }

    fn has_subcommand(_: &str) -> bool {
        false
    }
}

impl FromArgMatches for Command {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Command, clap::Error> {
        let missing = || clap::Error::new(ErrorKind::MissingSubcommand);
        let (name, matches) = matches.subcommand().ok_or_else(missing)?;
        Ok(match name {
            "run" => Command::Run(Box::new(RunArgs::from_arg_matches(matches)?)),
            "acquire" => Command::Acquire(AcquireArgs::from_arg_matches(matches)?),
            "extend" => Command::Extend(ExtendArgs::from_arg_matches(matches)?),
            "release" => Command::Release(ReleaseArgs::from_arg_matches(matches)?),
            "status" => Command::Status(StatusArgs::from_arg_matches(matches)?),
            "wait" => Command::Wait(WaitArgs::from_arg_matches(matches)?),
            "completions" => Command::Completions(CompletionsArgs::from_arg_matches(matches)?),
            _ => return Err(missing()),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Command::from_arg_matches(matches)?;
        Ok(())
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
    Elvish,
    Powershell,
}

/// What every command takes, before or after its name. They say where and who, never what.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Common {
    /// A Redis; where there are several, most must agree
    ///
    /// redis://[user:password@]host[:port][/db] or unix:///path.sock[?db=n]. Several, repeated or separated by commas, are
    /// independent masters, of which more than half must agree [env: REDLOCK_REDIS, REDIS_URL] [default: redis://127.0.0.1:6379]
    #[arg(long, value_name = "URL", action = ArgAction::Append)]
    pub(crate) redis: Vec<String>,
    /// Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]
    #[arg(long, value_name = "P", hide_short_help = true)]
    pub(crate) prefix: Option<String>,
    /// How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a
    /// single node ttl/10 within 250ms to 3s]
    #[arg(long, value_name = "D", value_parser = duration, hide_short_help = true)]
    pub(crate) node_timeout: Option<Duration>,
    /// A node that was started less than D ago does not vote, since it may have forgotten a lease [env: REDLOCK_QUARANTINE]
    /// [default: the ttl; with a single node 0]
    #[arg(long, value_name = "D", value_parser = duration, hide_short_help = true)]
    pub(crate) quarantine: Option<Duration>,
    /// Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, hide_short_help = true)]
    pub(crate) password_file: Option<PathBuf>,
    /// What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command's base name]
    #[arg(long, value_name = "TEXT", hide_short_help = true)]
    pub(crate) label: Option<String>,
    /// How results are printed: text, json, or, with acquire, env: lines for a shell's eval; run has none to print
    /// [default: text]
    #[arg(long, value_name = "FORMAT", value_enum, hide_short_help = true, hide_possible_values = true)]
    pub(crate) format: Option<Format>,
    /// Silence talk; failures still print
    #[arg(short, long, overrides_with = "quiet")]
    pub(crate) quiet: bool,
    /// Tell more
    #[arg(short, long, overrides_with = "verbose")]
    pub(crate) verbose: bool,
    /// Print help: -h in short, --help all of it
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// Which lock, for the commands that take it as a plain argument too.
#[derive(Debug, Args)]
pub(crate) struct Named {
    /// The lock
    #[arg(long = "name", value_name = "N")]
    pub(crate) name: Option<String>,
    /// The lock
    #[arg(value_name = "NAME")]
    pub(crate) plain: Option<String>,
}

/// What run and acquire have in common.
#[derive(Debug, Args)]
pub(crate) struct Taking {
    /// The lock
    ///
    /// 1 to 512 bytes, without control characters; with the prefix before it, the key in Redis.
    #[arg(long, value_name = "N")]
    pub(crate) name: String,
    /// The length of lease asked for
    ///
    /// The lock is free that long after the last renewal, whatever happens. From 100ms (run: 500ms) to 30 days.
    #[arg(long, value_name = "D", default_value = "30s", value_parser = duration)]
    pub(crate) ttl: Duration,
    /// Exit with N when the lock is held by another
    ///
    /// 0 to 255 in the place of 75; acquire takes no 0, since a script would go on without the lock.
    #[arg(short = 'E', long, value_name = "N")]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Enter the lease that we run under once more
    ///
    /// Where the job around us, or --token, already holds this lock, its lease gets one more hold, and nobody waits for
    /// himself. Where not, this changes nothing.
    #[arg(long)]
    pub(crate) reentrant: bool,
    /// The lease to enter, with --reentrant
    #[arg(long, value_name = "T", hide_short_help = true)]
    pub(crate) token: Option<String>,
}

/// Run a command while holding a lock
///
/// Acquires the lock, starts COMMAND, renews the lease while it runs, and releases the lock at its end. The status is the
/// command's. If the lease is lost, the job is stopped before anybody else can have the lock.
#[derive(Debug, Args)]
#[command(override_usage = "redlock run --name N [OPTIONS] [--] COMMAND [ARG]...")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) taking: Taking,
    /// Queue for the lock, with D for D at most
    ///
    /// Without it, and with 0: one try. Put -- before the command where D is left out.
    #[arg(long, value_name = "D", display_order = 1, value_parser = wait_before_command)]
    pub(crate) wait: Option<Option<Duration>>,
    /// SIGTERM to SIGKILL when we stop the job
    ///
    /// When the lease is lost, or --max-run is over. One that does not fit into the ttl is refused [default: ttl/4, at most
    /// 10s]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) grace: Option<Duration>,
    /// SIGKILL D after a TERM, INT or QUIT sent to us
    ///
    /// Like timeout -k; 0 and the default are never.
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) kill_after: Option<Duration>,
    /// When the lease is lost: stop, or continue
    ///
    /// stop, the default: the job is gone before the lease can expire. continue: it is let run, and the status is 76 at
    /// its end.
    #[arg(long, value_name = "WHAT", value_enum, default_value = "stop", hide_possible_values = true)]
    #[arg(hide_default_value = true)]
    pub(crate) on_lost: OnLost,
    /// Keep the lock that long, however quick the job
    ///
    /// Counted from when it was acquired, whatever the command's status; redlock itself ends with the command. For
    /// crontabs of hosts whose clocks differ.
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) hold_at_least: Option<Duration>,
    /// Stop the job when it has run for D; exit 124
    ///
    /// SIGTERM, and SIGKILL after the grace. 0 and the default are no limit, as for timeout(1).
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) max_run: Option<Duration>,
    /// The job lasts until its last process ends
    ///
    /// Without it the end of COMMAND is the end of the job, and what it left in the background runs on without the lock.
    #[arg(long)]
    pub(crate) whole: bool,
    /// The command and its arguments, started directly, not through a shell
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true, num_args = 1.., hide_short_help = true)]
    #[arg(value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Take a lock and print its token
///
/// The token, alone on one line of standard output, is what extend and release ask for. Nobody renews the lease: it ends
/// after --ttl.
#[derive(Debug, Args)]
#[command(override_usage = "redlock acquire --name N [OPTIONS]")]
pub(crate) struct AcquireArgs {
    #[command(flatten)]
    pub(crate) taking: Taking,
    /// Queue for the lock, with D for D at most
    ///
    /// Without it, and with 0: one try.
    #[arg(long, value_name = "D", display_order = 1, value_parser = duration)]
    pub(crate) wait: Option<Option<Duration>>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Lengthen a lease
///
/// Never shortens a lease, and never brings a lost one back. Inside a job of `redlock run` name and token are known.
#[derive(Debug, Args)]
#[command(override_usage = "redlock extend --name N --token T [--ttl D] [OPTIONS]")]
pub(crate) struct ExtendArgs {
    #[command(flatten)]
    pub(crate) named: Named,
    /// The token that acquire printed
    #[arg(long, value_name = "T")]
    pub(crate) token: Option<String>,
    /// The lease lasts for D at least from now [default: the ttl it was taken with]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Give a lease up
///
/// Frees the lock with the last hold. Inside a job of `redlock run` name and token are known; a job that gives up its own
/// lease has lost it, and is stopped.
#[derive(Debug, Args)]
#[command(override_usage = "redlock release --name N (--token T | --revoke | --force) [OPTIONS]")]
pub(crate) struct ReleaseArgs {
    #[command(flatten)]
    pub(crate) named: Named,
    /// The token that acquire printed; with --revoke and --force, the eight characters that status shows
    #[arg(long, value_name = "T")]
    pub(crate) token: Option<String>,
    /// End somebody's lease safely: its job is stopped, and the lock is free when that is done
    #[arg(long, conflicts_with = "force")]
    pub(crate) revoke: bool,
    /// Free the lock now, while its job may still run
    #[arg(long)]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Show who holds a lock, or all locks
///
/// Without a name: every lock under the prefix.
#[derive(Debug, Args)]
#[command(override_usage = "redlock status [--name N] [OPTIONS]")]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) named: Named,
    /// Exit 0 when this token holds the lock, else 77
    #[arg(long, value_name = "T")]
    pub(crate) token: Option<String>,
    /// Exit 0 when the lock is free, 75 when it is held; so does -q
    #[arg(long)]
    pub(crate) exit_code: bool,
    /// Show it again every D
    #[arg(long, value_name = "D", value_parser = watch_before_name, default_missing_value = "2s", num_args = 0..=1)]
    pub(crate) watch: Option<Duration>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Wait until a lock is free, taking nothing
///
/// Exits 0 once the lock is free, and 75 when the time is up before.
#[derive(Debug, Args)]
#[command(override_usage = "redlock wait --name N [--timeout D] [OPTIONS]")]
pub(crate) struct WaitArgs {
    #[command(flatten)]
    pub(crate) named: Named,
    /// Wait for D at most [default: for ever]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// Print the completions for a shell
#[derive(Debug, Args)]
#[command(override_usage = "redlock completions SHELL")]
pub(crate) struct CompletionsArgs {
    /// bash, zsh, fish, elvish or powershell
    #[arg(value_name = "SHELL", value_enum, hide_possible_values = true)]
    pub(crate) shell: Shell,
    #[command(flatten)]
    pub(crate) common: Common,
}

/// The definition of the command line, for parsing and for what is made from it.
pub(crate) fn command() -> clap::Command {
    // The short screen of `redlock` itself has room for the commands only.
    Cli::command().mut_args(|arg| arg.hide_short_help(true))
}

/// Reads a command line, program name first.
pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Parsed {
    let arguments = help_as_flag(arguments.into_iter().collect());
    let parsed = command().try_get_matches_from(&arguments).and_then(|matches| Cli::from_arg_matches(&matches));
    let error = match parsed {
        Ok(cli) => return Parsed::Cli(Box::new(cli)),
        Err(error) => error,
    };
    let text = error.render().to_string();
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Parsed::Show(text),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Parsed::Bare(text),
        ErrorKind::InvalidSubcommand => Parsed::Wrong(unknown_command(&error)),
        ErrorKind::MissingRequiredArgument if one_line(&text).contains("--name") => {
            Parsed::Wrong("which lock? --name is missing".to_owned())
        }
        _ => Parsed::Wrong(one_line(&text) + &hint(&error, &arguments)),
    }
}

/// `help [COMMAND]` as `[COMMAND] --help`. clap's own command of that name would define the flags of all commands at each
/// start, and take a line of the short screen.
fn help_as_flag(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let is_help = |arguments: &[OsString]| arguments.get(1).is_some_and(|first| first == "help");
    if is_help(&arguments) {
        while is_help(&arguments) {
            arguments.remove(1);
        }
        arguments.truncate(2);
        arguments.push("--help".into());
    }
    arguments
}

/// A text that clap tells about an error.
fn told(error: &clap::Error, what: ContextKind) -> &str {
    match error.get(what) {
        Some(ContextValue::String(text)) => text,
        _ => "",
    }
}

/// What to say to a word that is no command, and which one may have been meant: never one that is hidden.
fn unknown_command(error: &clap::Error) -> String {
    let word = told(error, ContextKind::InvalidSubcommand);
    let similar = match error.get(ContextKind::SuggestedSubcommand) {
        Some(ContextValue::Strings(names)) => names.as_slice(),
        Some(ContextValue::String(name)) => std::slice::from_ref(name),
        _ => &[],
    };
    let redlock = command();
    let mut meant: Vec<&str> = redlock
        .get_subcommands()
        .map(clap::Command::get_name)
        .filter(|name| similar.iter().any(|one| one == name) || one_letter_off(word, name))
        .collect();
    match (meant.pop(), meant.join(", ")) {
        (None, _) => format!("no command {word:?}; see redlock -h"),
        (Some(only), others) if others.is_empty() => format!("no command {word:?}; {only}?"),
        (Some(last), others) => format!("no command {word:?}; {others} or {last}?"),
    }
}

/// Whether one letter more or less makes the one word the other.
fn one_letter_off(one: &str, other: &str) -> bool {
    let (short, long) = match one.len() < other.len() {
        true => (one.as_bytes(), other.as_bytes()),
        false => (other.as_bytes(), one.as_bytes()),
    };
    short.len() + 1 == long.len()
        && (0..long.len()).any(|at| long[..at] == short[..at] && long[at + 1..] == short[at..])
}

/// What else to say to arguments that are taken for something that they are not.
fn hint(error: &clap::Error, arguments: &[OsString]) -> String {
    let unexpected = match error.kind() {
        ErrorKind::UnknownArgument => told(error, ContextKind::InvalidArg),
        // The value that is missing stands there, and was taken for flags.
        ErrorKind::InvalidValue if told(error, ContextKind::InvalidValue).is_empty() => "-",
        _ => return String::new(),
    };
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    if !unexpected.starts_with('-') {
        let command = words.iter().skip(1).find(|word| !word.starts_with('-'));
        let named = words.iter().any(|word| word.starts_with("--name"));
        return match command.is_some_and(|command| command == "acquire") {
            true if named => "; acquire starts no command, run does: redlock run --name N -- COMMAND".into(),
            true => format!("; --name {unexpected}?"),
            false => String::new(),
        };
    }
    let value = words.windows(2).find_map(|pair| {
        let (flag, value) = (pair[0].as_ref(), pair[1].as_ref());
        let flags = value.len() > 2
            && value.starts_with(unexpected)
            && !value.starts_with("--")
            && !value.chars().any(char::is_control);
        (flags && flag.starts_with("--") && flag.len() > 2).then_some((flag, value))
    });
    match value {
        Some((flag, value)) if value[1..].starts_with(|c: char| c.is_ascii_digit()) => {
            format!("; a negative number after {flag}?")
        }
        Some((flag, value)) => {
            format!("; a value that begins with - is written {flag}={value}")
        }
        None => String::new(),
    }
}

/// clap's paragraphs on one line, without the usage. A tip stays, unless it says how to pass a flag on as a value.
fn one_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let kept =
        text.split("\n\n").filter(|part| !part.starts_with("Usage:") && !part.starts_with("For more information"));
    let lines = kept.flat_map(|part| part.split("  tip: ")).filter(|part| !part.starts_with("to pass"));
    let lines = lines
        .map(|part| part.split_whitespace().collect::<Vec<_>>().join(" "))
        .map(|part| part.replace("<COMMAND>...", "COMMAND"))
        .filter(|part| !part.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

/// Whether a command line that could not be understood asked for this format: its failure is to be told in it too.
pub(crate) fn wants(format: &str, arguments: &[OsString]) -> bool {
    let before_command = || arguments.iter().skip(1).take_while(|argument| *argument != "--");
    let asked =
        before_command().zip(before_command().skip(1)).any(|(flag, value)| flag == "--format" && value == format);
    let run = before_command().any(|argument| argument == "run");
    let joined = format!("--format={format}");
    !run && (asked || before_command().any(|argument| argument == joined.as_str()))
}

impl Cli {
    pub(crate) fn is_acquire(&self) -> bool {
        matches!(self.command, Command::Acquire(_))
    }

    /// The options of every command, those before and those after its name together; of two the later one counts.
    pub(crate) fn common(&self) -> Common {
        let later = match &self.command {
            Command::Run(args) => &args.common,
            Command::Acquire(args) => &args.common,
            Command::Extend(args) => &args.common,
            Command::Release(args) => &args.common,
            Command::Status(args) => &args.common,
            Command::Wait(args) => &args.common,
            Command::Completions(args) => &args.common,
        };
        let (earlier, later) = (self.common.clone(), later.clone());
        Common {
            redis: [earlier.redis, later.redis].concat(),
            prefix: later.prefix.or(earlier.prefix),
            node_timeout: later.node_timeout.or(earlier.node_timeout),
            quarantine: later.quarantine.or(earlier.quarantine),
            password_file: later.password_file.or(earlier.password_file),
            label: later.label.or(earlier.label),
            format: later.format.or(earlier.format),
            quiet: later.quiet || earlier.quiet,
            verbose: later.verbose || earlier.verbose,
            help: None,
        }
    }

    /// The name as it was given, for a message about what is wrong with the rest.
    pub(crate) fn name(&self) -> Option<&str> {
        let named = match &self.command {
            Command::Run(args) => return Some(&args.taking.name),
            Command::Acquire(args) => return Some(&args.taking.name),
            Command::Extend(args) => &args.named,
            Command::Release(args) => &args.named,
            Command::Status(args) => &args.named,
            Command::Wait(args) => &args.named,
            Command::Completions(_) => return None,
        };
        named.name.as_deref().or(named.plain.as_deref())
    }

    /// What the status of "held by another" is replaced with.
    pub(crate) fn conflict(&self) -> Option<u8> {
        match &self.command {
            Command::Run(args) => args.taking.conflict_exit_code,
            Command::Acquire(args) => args.taking.conflict_exit_code,
            _ => None,
        }
    }

    /// Whether results, and so failures, are printed as JSON; `run`'s standard output belongs to its job.
    pub(crate) fn json(&self) -> bool {
        !matches!(self.command, Command::Run(_)) && self.common().format == Some(Format::Json)
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
        return Err("a duration is never negative".to_owned());
    }
    // humantime panics where the sum of its units is exactly one second more than fits; nobody needs numbers that long.
    if text.len() > 40 || text.split(|c: char| !c.is_ascii_digit()).any(|number| number.len() > 12) {
        return Err("too long".to_owned());
    }
    for unit in text.split(|c: char| !c.is_alphabetic()) {
        match unit {
            "M" => return Err(months(text)),
            "month" | "months" | "y" | "yr" | "yrs" | "year" | "years" => {
                return Err(format!("{text}: months and years differ in length; say it in days, like 30d"));
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
        humantime::DurationError::Empty => "empty; a duration is written 500ms, 30s or 1m 30s".to_owned(),
        _ => "not a duration; one is written 500ms, 30s or 1m 30s".to_owned(),
    })
}

/// What to say to `5M`.
fn months(text: &str) -> String {
    const WORDS: [&str; 13] =
        ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
    let number = text.strip_suffix('M').unwrap_or_default().trim_end();
    match number.parse::<usize>().ok().and_then(|number| WORDS.get(number)) {
        Some(&"one") => "1M is one month; 1m?".to_owned(),
        Some(word) => format!("{text} is {word} months; {number}m?"),
        None => format!("{text}: M is months; m?"),
    }
}

/// `run --wait [D]`, which may have swallowed the command.
fn wait_before_command(text: &str) -> Result<Duration, String> {
    let bare_number = text.bytes().all(|byte| byte.is_ascii_digit());
    duration(text).map_err(|why| match bare_number {
        true => why,
        false => format!("{why}; if it is the command, put -- before it: --wait -- {text}"),
    })
}

/// `status --watch [D]`, which may have swallowed the name.
fn watch_before_name(text: &str) -> Result<Duration, String> {
    duration(text).map_err(|why| match text.starts_with(|c: char| c.is_ascii_digit()) {
        true => why,
        false => format!("{why}; if it is the name, put it before --watch"),
    })
}
