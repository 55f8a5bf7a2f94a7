//! First tries and typing mistakes: each wrong input, and the one line that says what is wrong and what to write.

use crate::support::{Redis, Test, any, like, redlock};

const HELP: &str =
    "-h, --help and -V run no command; leave them out (a server is given with --redis redis://HOST:PORT/DB)";

/// Command lines that are refused with 64, and their messages. `'X'; …` stands for `unexpected argument 'X' found; …`.
const LINES: [(&str, &str); 198] = [
    // One argument too many.
    ("release x 3f2a9c01", "unexpected second argument; a token is written --token T: redlock release NAME <any>"),
    ("extend x 3f2a9c01", "unexpected second argument; a token is written --token T: redlock extend NAME <any>"),
    ("acquire x y", "'y'; acquire starts no command; use redlock run NAME -- COMMAND"),
    ("acquire x -- true", "'true'; acquire starts no command; use redlock run NAME -- COMMAND"),
    ("wait x y", "'y'; redlock wait NAME [--timeout D]"),
    ("doctor x", "'x'; redlock doctor"),
    ("completions bash zsh", "'zsh'; redlock completions SHELL"),
    ("run x true", "put -- before the command: redlock run NAME -- COMMAND"),
    // Missing names, commands, options and values.
    ("acquire", "missing lock name: redlock acquire NAME"),
    ("wait", "missing lock name: redlock wait NAME"),
    ("stop", "missing lock name: redlock stop NAME"),
    ("run x", "missing command: redlock run NAME -- COMMAND"),
    ("completions", "missing <SHELL>; redlock completions SHELL"),
    ("acquire --name", "a value is required for '--name <NAME>' but none was supplied"),
    ("extend --token t", "missing lock name: give NAME and --token T, or set REDLOCK_NAME and REDLOCK_TOKEN"),
    ("release --token t", "missing lock name: give NAME and --token T, or set REDLOCK_NAME and REDLOCK_TOKEN"),
    ("extend x", "missing --token, which acquire printed"),
    ("release x", "missing --token; without it, --force frees the lock now; redlock stop NAME ends another's job"),
    ("acquire x --token t", "missing --reentrant; redlock acquire NAME"),
    // An empty token, as a script has it after a failed acquire.
    ("extend x --token ", "invalid value '' for '--token <T>': empty token: did acquire fail?"),
    ("release x --token ", "invalid value '' for '--token <T>': empty token: did acquire fail?"),
    ("release x --token=", "invalid value '' for '--token <T>': empty token: did acquire fail?"),
    ("release x --force --token ", "invalid value '' for '--token <T>': empty token: did acquire fail?"),
    ("status x --token ", "invalid value '' for '--token <T>': empty token: did acquire fail?"),
    ("acquire x --reentrant --token ", "invalid value '' for '--token <T>': empty token: did acquire fail?"),
    // Combinations that make no sense.
    ("acquire x -E 0", "-E 0 would let a script go on without the lock; it is for run only"),
    ("release x --revoke", "'--revoke'; redlock stop NAME"),
    ("release --revoke --token 0123456789 x -q", "'--revoke'; redlock stop NAME"),
    (
        "stop x --token abc",
        "--token is too short to tell whose lease is meant; give the eight characters that status shows",
    ),
    ("stop x --for 0 --token all", "--for 0 opens the lock, and stops nobody; leave out --token"),
    ("stop x --for 31d", "invalid value '31d' for '--for <D>': the longest is 30 days"),
    ("extend x --name y --token t", "the argument '[NAME]' cannot be used with '--name <NAME>'"),
    ("status x --watch -q", "--watch never ends, so it gives no status; leave out -q"),
    // Options that are cut short, belong to other commands, or do not exist.
    ("run x --once -- true", "'--once'; --once-per?"),
    (
        "run x --once-per 200d -- true",
        "invalid value '200d' for '--once-per <P>': P is hour, day, week, month, or a duration from 1s to 100d",
    ),
    ("run x --once-per day --wait 13h -- true", "--wait 13h is more than half the period of --once-per; at most 12h"),
    ("run x --tries 3 -- true", "--tries counts the runs of a period; add it, as in --once-per day --tries 3"),
    ("run x --once-per day --tries 0 -- true", "invalid value '0' for '--tries <N>': not a whole number from 1 to 100"),
    ("run x --hold-at-least 10m -- true", "'--hold-at-least'; to run at most once: --once-per day --tries 1"),
    ("run x --max 5 -- true", "'--max'; --slots?"),
    ("run x --kill 5 -- true", "'--kill'; --kill-after?"),
    ("run x --tls-c x -- true", "'--tls-c'; --tls-ca?"),
    ("run --nam x -- true", "'--nam'; --name?"),
    ("status --watc", "'--watc'; --watch?"),
    ("log --wait", "'--wait'; it is an option of run and acquire"),
    ("-x", "'-x'; it is an option of run and acquire"),
    ("log --bogus", "'--bogus'; redlock log -h shows its options"),
    ("-n backup echo", "'-n'; it is an option of run, acquire and log"),
    ("--bogus", "'--bogus'; redlock -h lists the commands"),
    // Words of other tools.
    ("run x --nowait -- true", "'--nowait'; one try is the default, as with -n"),
    ("acquire x --no-wait", "'--no-wait'; one try is the default, as with -n"),
    ("run x --lease 30s -- true", "'--lease'; run, acquire and extend have --ttl"),
    ("acquire x --expire 30s", "'--expire'; run, acquire and extend have --ttl"),
    (
        "run -t 30s x -- true",
        "'-t'; for how long to wait: run and acquire have --wait, wait has --timeout; for the lease: --ttl",
    ),
    ("run -k 5 x -- true", "'-k'; run has --kill-after"),
    ("run x --grace 5s -- true", "'--grace'; run has --kill-after"),
    // flock
    ("run -o x -- true", "'-o'; a lock is not an open file, so there is nothing to close"),
    ("run -F x -- true", "'-F'; redlock stays beside the job, to renew the lease"),
    ("run -u x", "'-u'; put -- before the command: redlock run NAME -- COMMAND"),
    ("run --timeout 5 x -- true", "'--timeout'; run and acquire have --wait, wait has --timeout"),
    ("-w 5 backup true", "'-w'; run and acquire have --wait, wait has --timeout"),
    ("run backup -n true", "put -- before the command: redlock run NAME -- COMMAND"),
    ("run backup true -n", "put -- before the command: redlock run NAME -- COMMAND"),
    ("run --name backup true", "put -- before the command: redlock run NAME -- COMMAND"),
    ("run --name backup ls -l", "'-l'; put -- before the command: redlock run NAME -- COMMAND"),
    ("run --name backup --wait 5 true", "put -- before the command: redlock run NAME -- COMMAND"),
    ("run x --name y -- true", "several locks are written --name A --name B"),
    ("run -c true", "missing lock name: redlock run NAME -- COMMAND"),
    (
        "run backup --wait true",
        "invalid value 'true' for '--wait [<D>]': <any>; to wait forever: NAME --wait [-- COMMAND]",
    ),
    // consul lock, whose options have one dash
    ("run -try=5s x -- true", "'-try'; run and acquire have --wait, wait has --timeout"),
    ("run -n=3 x -- true", "-n has no value"),
    ("run --redis=redis://a=b -sq=3 x -- true", "-sq has no value"),
    ("run -name=x -- true", "long options have two dashes: --name"),
    ("run -wait 5m x -- true", "long options have two dashes: --wait"),
    (
        "run -child-exit-code x -- true",
        "'-child-exit-code'; -E N is the status if the lock is held; redlock passes the job's status on",
    ),
    ("run x -timeout=5s -- true", "'-timeout'; run and acquire have --wait, wait has --timeout"),
    ("run x -http-addr=h:1 -- true", "'-http-addr'; use --redis redis://HOST:PORT/DB (rediss:// with TLS)"),
    ("run x -verbose -- true", "long options have two dashes: --verbose"),
    ("-redis redis://h status", "long options have two dashes: --redis"),
    ("run x --try 5s -- true", "'--try'; run and acquire have --wait, wait has --timeout"),
    ("run x --monitor-retry 5 -- true", "'--monitor-retry'; run and acquire have --wait, wait has --timeout"),
    (
        "run x --child-exit-code -- true",
        "'--child-exit-code'; -E N is the status if the lock is held; redlock passes the job's status on",
    ),
    (
        "run x --exit-code 3 -- true",
        "'--exit-code'; -E N is the status if the lock is held; redlock passes the job's status on",
    ),
    ("run x --shell=false -- true", "'--shell'; run has -c"),
    // etcdctl lock
    ("run x --endpoints h:1 -- true", "'--endpoints'; use --redis redis://HOST:PORT/DB (rediss:// with TLS)"),
    ("lock x --ttl 10", "unrecognized subcommand 'lock'; redlock run or redlock acquire?"),
    // timeout(1)
    ("run x --max-time 5 -- true", "'--max-time'; --max-run?"),
    ("run x --runtime 5 -- true", "'--runtime'; --max-run?"),
    ("run x --deadline 5 -- true", "'--deadline'; --max-run?"),
    (
        "run x --signal nope -- true",
        "invalid value 'nope' for '--signal <SIG>': no signal; one is written TERM, SIGINT or 15",
    ),
    ("run x --preserve-status -- true", "'--preserve-status'; redlock always passes on signals and the job's status"),
    ("run x --foreground -- true", "'--foreground'; redlock always passes on signals and the job's status"),
    // lockrun, setlock, solo
    ("run --lockfile=/tmp/x -- true", "'--lockfile'; the lock is NAME, a plain argument, or --name"),
    ("run x --maxtime=5 -- true", "'--maxtime'; --max-run?"),
    ("run x --retries=5 -- true", "'--retries'; run and acquire have --wait, wait has --timeout"),
    ("run x --sleep=5 -- true", "'--sleep'; redlock run -h shows its options"),
    ("run -port=3801 true", "'-port'; use --redis redis://HOST:PORT/DB (rediss:// with TLS)"),
    ("run -N x true", "'-N'; put -- before the command: redlock run NAME -- COMMAND"),
    // sem
    ("run --id x -- true", "'--id'; the lock is NAME, a plain argument, or --name"),
    ("run x --jobs 3 -- true", "'--jobs'; --slots?"),
    ("run x --fg -- true", "'--fg'; redlock always passes on signals and the job's status"),
    // cronsul, cronlock, crontabs
    ("run x --every 1d -- true", "'--every'; --once-per?"),
    ("run x --daily -- true", "'--daily'; --once-per day"),
    ("run x --once-every 1d -- true", "'--once-every'; --once-per?"),
    ("run x --cancel-in-progress -- true", "<any>redlock stop NAME, then redlock run<any>"),
    ("run x --lock-delay 5s -- true", "<any>redlock needs none<any>"),
    ("run x -t 5 -- true", "<any>run and acquire have --wait<any>"),
    ("run x -p 6379 -- true", "<any>--redis redis://HOST:PORT/DB<any>"),
    ("log --chart", "<any>; --format chart"),
    ("log -o jobs.html", "<any>; --format html > FILE"),
    ("locks", "<any>; redlock status?"),
    ("force-unlock x", "<any>redlock release NAME --force<any>"),
    ("run x --interval 1d -- true", "'--interval'; --once-per?"),
    // redis-cli
    ("status --host h", "'--host'; use --redis redis://HOST:PORT/DB (rediss:// with TLS)"),
    ("status --url redis://h", "'--url'; use --redis redis://HOST:PORT/DB (rediss:// with TLS)"),
    ("status --port 6380", "'--port'; use --redis redis://HOST:PORT/DB (rediss:// with TLS)"),
    ("acquire x --db 1", "'--db'; use --redis redis://HOST:PORT/DB (rediss:// with TLS)"),
    ("--tls status", "'--tls'; use --redis redis://HOST:PORT/DB (rediss:// with TLS)"),
    ("status -p 6380", "'-p'; use --redis redis://HOST:PORT/DB (rediss:// with TLS)"),
    ("ping", "unrecognized subcommand 'ping'; redlock doctor?"),
    ("get x", "unrecognized subcommand 'get'; redlock status?"),
    // tail, journalctl
    ("log -5", "'-5'; -n N shows the last N"),
    ("log -f", "'-f'; redlock status --watch?"),
    ("log x --follow", "'--follow'; redlock status --watch?"),
    ("log --tail 5", "'--tail'; -n?"),
    ("log -n 0", "invalid value '0' for '--lines <N>': not a whole number from 1 to 1000000"),
    ("logs x", "unrecognized subcommand 'logs'; log?"),
    // Misspelt words, and other words for options and commands.
    ("run x --reddis redis://h -- true", "'--reddis'; --redis?"),
    ("acquire x --verbos", "'--verbos'; --verbose?"),
    ("acquire x --ttll 5", "'--ttll'; --ttl?"),
    ("run -nsq x --quite -- true", "'--quite'; --quiet?"),
    ("log x --sicne 5", "'--sicne'; --since?"),
    ("relase x", "unrecognized subcommand 'relase'; release?"),
    ("aquire", "unrecognized subcommand 'aquire'; acquire?"),
    ("stauts", "unrecognized subcommand 'stauts'; status?"),
    ("nightly", "unrecognized subcommand 'nightly'; redlock -h lists the commands"),
    // Only run has a command.
    ("backup -- ./job.sh", "unrecognized subcommand 'backup'; redlock run NAME -- COMMAND?"),
    ("-q backup --wait 5m -- wait", "unrecognized subcommand 'backup'; redlock run NAME -- COMMAND?"),
    ("backup -c ./job.sh", "unrecognized subcommand 'backup'; redlock run NAME -- COMMAND?"),
    ("rnu x -- true", "unrecognized subcommand 'rnu'; redlock run NAME -- COMMAND?"),
    // In other tools -h names the host.
    ("run x -h h -- true", HELP),
    ("run x -h h -c true", HELP),
    ("-h h run x -- true", HELP),
    ("run x --help -- true", HELP),
    ("-V run x -- true", HELP),
    ("run x --limit 3 -- true", "'--limit'; run and acquire have --slots, log has -n"),
    ("log x --limit 3", "'--limit'; -n?"),
    ("run -j 3 x -- true", "'-j'; --slots?"),
    ("status -j", "'-j'; --format json?"),
    ("status x --json", "'--json'; --format json?"),
    ("run --json x -- true", "'--json'; run prints no results; standard output is the job's"),
    (
        "run x --password=s3cret -- true",
        "'--password'; --password-file or REDLOCK_PASSWORD; ps would show a password to all",
    ),
    ("history", "unrecognized subcommand 'history'; redlock log?"),
    ("last x", "unrecognized subcommand 'last'; redlock log?"),
    ("ps", "unrecognized subcommand 'ps'; redlock status?"),
    ("list", "unrecognized subcommand 'list'; redlock status?"),
    ("unlock x", "unrecognized subcommand 'unlock'; redlock release?"),
    ("refresh x", "unrecognized subcommand 'refresh'; redlock extend?"),
    ("lock x", "unrecognized subcommand 'lock'; redlock run or redlock acquire?"),
    ("watch x", "unrecognized subcommand 'watch'; redlock status --watch?"),
    ("statu", "unrecognized subcommand 'statu'; status?"),
    // A form of results that the command does not have.
    ("run x --format json -- true", "run has no --format"),
    ("--format text run x -- true", "run has no --format"),
    ("status --format env", "status has no --format env; it has text, json, prometheus<any>"),
    ("acquire x --format prometheus", "acquire has no --format prometheus; it has text, json, env"),
    ("log --format env", "log has no --format env; it has text, json, chart, html"),
    ("log --format yaml", "log has no --format yaml; it has text, json, chart, html"),
    ("--format yaml acquire x", "acquire has no --format yaml; it has text, json, env"),
    ("run x --format yaml -- true", "run has no --format"),
    // Durations.
    (
        "log --since yesterday",
        "invalid value 'yesterday' for '--since <D>': a duration is written 500ms, 30s or 1m 30s",
    ),
    ("log --since PT5M", "invalid value 'PT5M' for '--since <D>': a duration is written 500ms, 30s or 1m 30s"),
    ("log --since 5M", "invalid value '5M' for '--since <D>': 5M is 5 months; 5m?"),
    (
        "log --since 1month",
        "invalid value '1month' for '--since <D>': months and years vary in length; write days, as in 30d",
    ),
    ("acquire x --ttl 1:30", "invalid value '1:30' for '--ttl <D>': a duration is written 500ms, 30s or 1m 30s"),
    ("acquire x --ttl -5", "a duration or a number cannot be negative: -5"),
    ("acquire x --ttl -5s", "a duration or a number cannot be negative: -5"),
    ("acquire x --wait -5", "a duration or a number cannot be negative: -5"),
    ("acquire x --ttl=-5", "invalid value '-5' for '--ttl <D>': a duration cannot be negative"),
    ("acquire x --ttl 0", "invalid value '0' for '--ttl <D>': the shortest is 100ms, for run and --while-pid 500ms"),
    (
        "run x --ttl 99ms -- true",
        "invalid value '99ms' for '--ttl <D>': the shortest is 100ms, for run and --while-pid 500ms",
    ),
    (
        "run x --wait  -- true",
        "invalid value '' for '--wait [<D>]': a duration is written 500ms, 30s or 1m 30s; to wait forever: NAME --wait [-- COMMAND]",
    ),
    (
        "acquire x --wait infinity",
        "invalid value 'infinity' for '--wait [<D>]': <any>; to wait forever: NAME --wait [-- COMMAND]",
    ),
    ("status x --watch ever", "invalid value 'ever' for '--watch [<D>]': <any>; the default: [NAME] --watch"),
    ("acquire x --ttl 31days", "invalid value '31days' for '--ttl <D>': the longest is 30 days"),
    ("acquire x --ttl 99999999999999999999s", "invalid value '99999999999999999999s' for '--ttl <D>': too long"),
    ("acquire x --node-timeout -5", "a duration or a number cannot be negative: -5"),
    // Numbers.
    ("acquire x --slots x", "invalid value 'x' for '--slots <L>': not a whole number from 1 to 10000"),
    ("acquire x --slots 3.5", "invalid value '3.5' for '--slots <L>': not a whole number from 1 to 10000"),
    ("acquire x --slots 0", "invalid value '0' for '--slots <L>': not a whole number from 1 to 10000"),
    ("acquire x --slots -1", "a duration or a number cannot be negative: -1"),
    ("run x -E x -- true", "invalid value 'x' for '--conflict-exit-code <N>': not a whole number from 0 to 255"),
    ("run x -E 256 -- true", "invalid value '256' for '--conflict-exit-code <N>': not a whole number from 0 to 255"),
    ("log -n x", "invalid value 'x' for '--lines <N>': not a whole number from 1 to 1000000"),
    ("log -n -1", "'-1'; -n N shows the last N"),
    (
        "acquire x --while-pid 99999999999",
        "invalid value '99999999999' for '--while-pid <PID>': not a whole number from 1 to 2147483647",
    ),
    ("acquire x --replicas x", "in --replicas: not a whole number from 0 to 4294967295"),
    ("acquire x --log x", "in --log: not a whole number from 0 to 200"),
    (
        "status x --redis redis://h:port",
        "in --redis: cannot use \"redis://h:port\": the port must be a number from 1 to 65535",
    ),
];

#[test]
fn each_has_its_one_true_line() {
    let mut wrong = String::new();
    for (line, said) in LINES {
        let test = Test::bare().env("REDLOCK_REDIS", "redis://127.0.0.1:1").args(line.split(' '));
        let finished = test.status(64).stderr(any()).run();
        let said = match said.strip_prefix('\'').and_then(|said| said.split_once("'; ")) {
            Some((argument, advice)) => format!("unexpected argument '{argument}' found; {advice}"),
            None => said.to_owned(),
        };
        let expected = like(format!("redlock: {said}\n"));
        if !expected.matches(&finished.stderr) {
            wrong += &format!("redlock {line}\n  says      {:?}\n  and not   {said:?}\n", finished.stderr);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn an_address_that_is_no_url_is_told_what_one_is() {
    for address in ["redis//h", "redis:/h", "rediss//h", "redis:6379", "h:6379", ":6379", "unix:/s", "/s", "local"] {
        let said = format!(
            "redlock: in --redis: cannot use \"{address}\": not a URL; write redis://HOST:PORT, unix:///PATH or local:\n"
        );
        Test::bare().args(["status", "x", "--redis", address]).status(64).stderr(said).run();
    }
}

#[test]
fn an_address_that_is_configured_is_not_advised_to_be() {
    // It does not matter whether a server runs at that address.
    let test = Test::bare().args(["status", "x", "--redis", "redis://127.0.0.1:6379", "--node-timeout", "1s"]);
    let said = test.any_end().stdout(any()).stderr(any()).run().stderr;
    assert!(!said.contains("set --redis"), "{said}");
}

#[test]
fn days_are_told_as_days() {
    let redis = Redis::start();
    redlock(&redis, "run -q x -- false").status(1).run();
    let said = "x: no success within 32d, none is known; 1 host came<any>\n<any>\n";
    redlock(&redis, "check x --within 32d").status(1).stdout(like(said)).run();
}
