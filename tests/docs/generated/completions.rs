//! The completions, made from the templates completions/src/redlock.{bash,zsh,fish}. Words like @OPTIONS@ in a template
//! are replaced by parts of the definition of the command line.

use super::{Files, cli, text};
use clap::{Arg, ArgAction, Command, ValueHint};

/// The signals that programs take for a wish to end; `--signal` takes any.
const SIGNALS: &str = "TERM INT QUIT HUP USR1 USR2 KILL";

/// The text replaces `@word@` in a script's template.
type Meanings = Vec<(&'static str, String)>;

/// The scripts, by the names that the shells look for.
pub(super) fn scripts() -> Files {
    let mut redlock = cli::command();
    redlock.build();
    let script = |template: &str, meanings: Meanings| {
        meanings.iter().fold(text(template), |script, (word, meaning)| script.replace(&format!("@{word}@"), meaning))
    };
    let scripts = [
        ("redlock.bash", script("redlock.bash", bash(&redlock))),
        ("_redlock", script("redlock.zsh", zsh(&redlock))),
        ("redlock.fish", script("redlock.fish", fish(&redlock))),
    ];
    scripts.map(|(name, script)| (name.to_owned(), script)).into()
}

fn bash(redlock: &Command) -> Meanings {
    let options = all(redlock).map(|command| {
        let name = if command.get_name() == "redlock" { "''" } else { command.get_name() };
        // If an option has a long form, this form is enough.
        let options = options(command).map(|option| forms(option).pop().unwrap());
        format!("    {name}) options='{}' ;;", joined(options, " "))
    });
    let formats = all(redlock).map(|command| {
        let name = if command.get_name() == "redlock" { "''" } else { command.get_name() };
        format!("            {name}) candidates=({}) ;;", formats(command))
    });
    let choices = every_option(redlock).into_iter().filter(|option| !is_format(option) && has_choices(option));
    let choices = choices
        .map(|option| format!("        {}) candidates=({}) ;;", forms(option).join(" | "), self::choices(option)));
    let files = every_option(redlock).into_iter().filter(|option| is_file(option)).flat_map(forms);
    vec![
        ("COMMANDS", joined(redlock.get_subcommands().map(|command| command.get_name().to_owned()), " ")),
        ("OPTIONS", joined(options, "\n")),
        ("CHOICES", joined(choices, "\n")),
        ("FILES", joined(files, " | ")),
        ("FORMATS", joined(formats, "\n")),
        ("VALUE", joined(with_value(redlock, 1), " | ")),
        ("OPTIONAL_VALUE", joined(with_value(redlock, 0), " | ")),
    ]
}

fn zsh(redlock: &Command) -> Meanings {
    let commands = redlock.get_subcommands().map(|command| {
        let description = format!("{}:{}", command.get_name(), command.get_about().unwrap());
        format!("        {}", quoted(&description, "'\\''"))
    });
    let with_own = all(redlock).filter(|command| own(redlock, command).next().is_some());
    let own = with_own.map(|command| {
        let options = joined(own(redlock, command).flat_map(|option| zsh_option(command, option)), "\n");
        format!("    ({})\n        options+=(\n{options}\n        )\n        ;;", command.get_name())
    });
    vec![
        ("COMMANDS", joined(commands, "\n")),
        ("COMMON", joined(common(redlock).flat_map(|option| zsh_option(redlock, option)), "\n")),
        ("OPTIONS", joined(own, "\n")),
    ]
}

/// The specifications of an option for zsh's `_arguments`: one for each form of the option.
fn zsh_option(command: &Command, option: &Arg) -> Vec<String> {
    let all = forms(option);
    let (excluded, action) = match all[0].as_str() {
        // These commands take several names, so `--name` may be repeated. The others take one: the first argument, or
        // `--name`.
        "--name" if ["run", "status", "log", "check"].contains(&command.get_name()) => {
            ("*".to_owned(), "_redlock_names".to_owned())
        }
        "--name" => ("(1 --name)".to_owned(), "_redlock_names".to_owned()),
        _ if is_file(option) => (format!("({})", all.join(" ")), "_files".to_owned()),
        _ if is_format(option) => (format!("({})", all.join(" ")), format!("({})", formats(command))),
        _ if matches!(option.get_action(), ArgAction::Append) => ("*".to_owned(), " ".to_owned()),
        _ if !has_choices(option) => (format!("({})", all.join(" ")), " ".to_owned()),
        _ => (format!("({})", all.join(" ")), format!("({})", choices(option))),
    };
    let line = |form: &String| {
        let about = about(option);
        let sign = if form.starts_with("--") { "=" } else { "+" };
        let specification = match least_values(option) {
            None => format!("{excluded}{form}[{about}]"),
            Some(0) => format!("{excluded}{form}{sign}[{about}]::value:{action}"),
            Some(_) => format!("{excluded}{form}{sign}[{about}]:value:{action}"),
        };
        format!("        {}", quoted(&specification, "'\\''"))
    };
    all.iter().map(line).collect()
}

fn fish(redlock: &Command) -> Meanings {
    let commands = redlock.get_subcommands().map(|command| {
        let about = quoted(&command.get_about().unwrap().to_string(), "\\'");
        format!("complete -c redlock -n '__redlock_at command' -a {} -d {about}", command.get_name())
    });
    let common = common(redlock).map(|option| fish_option("options", redlock, option));
    let own = all(redlock).flat_map(|command| {
        let place = if command.get_name() == "redlock" { "start" } else { command.get_name() };
        own(redlock, command).map(move |option| fish_option(place, command, option))
    });
    vec![
        ("COMMANDS", joined(commands, "\n")),
        ("OPTIONS", joined(common.chain(own), "\n")),
        ("VALUE", joined(with_value(redlock, 1), " ")),
        ("OPTIONAL_VALUE", joined(with_value(redlock, 0), " ")),
    ]
}

fn fish_option(place: &str, command: &Command, option: &Arg) -> String {
    let mut line = format!("complete -c redlock -n '__redlock_at {place}'");
    for form in forms(option) {
        line += &form.replacen("--", " -l ", 1).replacen('-', " -s ", usize::from(!form.starts_with("--")));
    }
    line += &match (option.get_long(), least_values(option)) {
        (Some("name"), _) => " -xa '(__redlock_names)'".to_owned(),
        _ if is_file(option) => " -rF".to_owned(),
        _ if is_format(option) => format!(" -xa '{}'", formats(command)),
        (_, Some(1..)) if !has_choices(option) => " -x".to_owned(),
        (_, Some(1..)) => format!(" -xa '{}'", choices(option)),
        _ => String::new(),
    };
    format!("{line} -d {}", quoted(&about(option), "\\'"))
}

/// `redlock` itself and its commands.
fn all(redlock: &Command) -> impl Iterator<Item = &Command> {
    std::iter::once(redlock).chain(redlock.get_subcommands())
}

/// The options that this command does not refuse.
fn options(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_accepted = |option: &&Arg| match option.get_long() {
        Some("format") => !formats(command).is_empty(),
        Some("label" | "log") => ["redlock", "run", "acquire"].contains(&command.get_name()),
        _ => true,
    };
    command.get_arguments().filter(|argument| !argument.is_positional()).filter(is_accepted)
}

/// The options that every command has.
fn common(redlock: &Command) -> impl Iterator<Item = &Arg> {
    let of_every_command = |option: &&Arg| {
        let mut commands = redlock.get_subcommands();
        commands.all(|command| options(command).any(|other| other.get_id() == option.get_id()))
    };
    options(redlock).filter(of_every_command)
}

/// Leaves out those that every command has.
fn own<'a>(redlock: &'a Command, command: &'a Command) -> impl Iterator<Item = &'a Arg> {
    options(command).filter(|option| common(redlock).all(|common| common.get_id() != option.get_id()))
}

/// The options of all commands, each once.
fn every_option(redlock: &Command) -> Vec<&Arg> {
    let mut options: Vec<&Arg> = all(redlock).flat_map(options).collect();
    options.sort_by_key(|option| forms(option));
    options.dedup_by_key(|option| forms(option));
    options
}

/// The forms of all options that need a value (`least` is 1), or of all with an optional value (`least` is 0). A form
/// such as `-n` is left out, because it needs a value in `log`, and takes none in `run`.
fn with_value(redlock: &Command, least: usize) -> impl Iterator<Item = String> {
    let all = every_option(redlock);
    let others = all.iter().filter(|option| least_values(option) != Some(least)).flat_map(|option| forms(option));
    let others: Vec<String> = others.collect();
    let options = all.into_iter().filter(move |option| least_values(option) == Some(least));
    options.flat_map(forms).filter(move |form| !others.contains(form))
}

/// None for an option without values.
fn least_values(option: &Arg) -> Option<usize> {
    option.get_action().takes_values().then(|| option.get_num_args().unwrap().min_values())
}

/// The short and the long form of an option, as far as it has them, such as `-q` and `--quiet`.
fn forms(option: &Arg) -> Vec<String> {
    let short = option.get_short().map(|short| format!("-{short}"));
    short.into_iter().chain(option.get_long().map(|long| format!("--{long}"))).collect()
}

fn is_file(option: &Arg) -> bool {
    option.get_value_hint() == ValueHint::FilePath
}

fn is_format(option: &Arg) -> bool {
    option.get_long() == Some("format")
}

/// The values of `--format` that this command accepts; for `redlock` itself, all values.
fn formats(command: &Command) -> String {
    match command.get_name() {
        "redlock" => choices(command.get_arguments().find(|option| is_format(option)).unwrap()),
        name => joined(cli::formats(name).iter().map(|format| format.word()), " "),
    }
}

fn has_choices(option: &Arg) -> bool {
    !choices(option).is_empty()
}

/// The values from which an option takes one, with blanks between them; empty if it takes any value.
fn choices(option: &Arg) -> String {
    if option.get_long() == Some("signal") {
        return SIGNALS.to_owned();
    }
    joined(option.get_possible_values().iter().map(|value| value.get_name().to_owned()), " ")
}

/// The first sentence of the option's help text, without the variables and defaults in brackets.
fn about(option: &Arg) -> String {
    let help = option.get_help().unwrap().to_string();
    help.split(" [").next().unwrap().split(". ").next().unwrap().to_owned()
}

fn quoted(text: &str, quote: &str) -> String {
    format!("'{}'", text.replace('\'', quote))
}

fn joined(words: impl Iterator<Item = String>, between: &str) -> String {
    words.collect::<Vec<_>>().join(between)
}
