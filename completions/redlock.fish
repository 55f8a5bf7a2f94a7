# Completions of redlock for fish 3.1 and later.

# The names of the locks on the nodes that the options on the line name; none when the nodes do not answer soon.
function __redlock_names
    set -l tokens (commandline -opc)
    set -l nodes
    for at in (seq (count $tokens))
        switch $tokens[$at]
            case --
                break
            case --redis --prefix --password-file --tls-ca --tls-cert --tls-key
                set -a nodes $tokens[$at..(math $at + 1)]
            case '--redis=*' '--prefix=*' '--password-file=*' '--tls-*=*'
                set -a nodes $tokens[$at]
        end
    end
    timeout 1 redlock status --all --format json --node-timeout 200ms $nodes 2>/dev/null |
        grep -o '{"name":"[^"\\\\]*"' | cut -d '"' -f 4
end

# Sets the caller's `places` to what can be at the cursor, and its `rest` to the words of the job before the cursor.
function __redlock_parse --no-scope-shadowing
    set -l command
    set -l name
    set places job
    set rest (commandline -opc)[2..]
    while set -q rest[1]
        switch $rest[1]
            case --name '--name=*'
                set name given
        end
        switch $rest[1]
            case --due --for --format --keep-errors --kill-after --label --log --max-run --min-hosts --name --newest --node-timeout --on-lost --once-per --password-file --prefix --quarantine --redis --replicas --signal --since --slots --status --timeout --tls-ca --tls-cert --tls-key --token --tries --ttl --while-pid --within -E --conflict-exit-code -c --lines
                set -e rest[1]
            case --watch -w --wait
                string match -q -- '-*' "$rest[2]"; or set -e rest[1]
            case --
                test "$command" = run; or set places
                set -e rest[1]
                return
            case '-*'
            case '*'
                if set -q command[1]
                    set name given
                else
                    set command $rest[1]
                end
        end
        set -e rest[1]
    end
    set places options $command
    switch "$command $name"
        case ' *'
            set -a places start command
        case 'help '
            set -a places command
        case 'run given'
            set -a places separator
        case 'completions '
            set -a places shell
        case 'help *' 'doctor *'
        case '* ' 'status *' 'log *' 'check *'
            set -a places lock
    end
end

function __redlock_at --argument-names place
    set -l places
    set -l rest
    __redlock_parse
    contains -- $place $places
end

function __redlock_job
    set -l places
    set -l rest
    __redlock_parse
    __fish_complete_subcommand --commandline (string escape -- $rest) (commandline -ct)
end

complete -c redlock -f
complete -c redlock -n '__redlock_at lock' -a '(__redlock_names)'
complete -c redlock -n '__redlock_at separator' -a --
complete -c redlock -n '__redlock_at job' -a '(__redlock_job)'
complete -c redlock -n '__redlock_at shell' -a 'bash zsh fish'
complete -c redlock -n '__redlock_at command' -a run -d 'Run a command while holding a lock'
complete -c redlock -n '__redlock_at command' -a acquire -d 'Take a lock and print its token'
complete -c redlock -n '__redlock_at command' -a extend -d 'Extend a lease'
complete -c redlock -n '__redlock_at command' -a release -d 'Release a lock'
complete -c redlock -n '__redlock_at command' -a stop -d 'End another\'s job, and keep the lock closed'
complete -c redlock -n '__redlock_at command' -a status -d 'Show who holds a lock, and how its last run ended; or all locks'
complete -c redlock -n '__redlock_at command' -a check -d 'Say which jobs are not in order, and what did not happen'
complete -c redlock -n '__redlock_at command' -a forget -d 'Delete what Redis remembers of a free lock'
complete -c redlock -n '__redlock_at command' -a log -d 'Show whether jobs ran: who, when, how long, and the result'
complete -c redlock -n '__redlock_at command' -a wait -d 'Wait until a lock is free, without taking it'
complete -c redlock -n '__redlock_at command' -a doctor -d 'Check whether Redis is ready for locks'
complete -c redlock -n '__redlock_at command' -a completions -d 'Print shell completions'
complete -c redlock -n '__redlock_at options' -l redis -x -d 'Redis address; with several, more than half must agree'
complete -c redlock -n '__redlock_at options' -l prefix -x -d 'The key in Redis is this prefix followed by the name'
complete -c redlock -n '__redlock_at options' -l node-timeout -x -d 'Time limit for one request to one node; above ttl/2 it counts as ttl/2'
complete -c redlock -n '__redlock_at options' -l quarantine -x -d 'A node started less than D ago grants no lock, because it may have forgotten a lease'
complete -c redlock -n '__redlock_at options' -l password-file -rF -d 'Read the password from the first line of FILE'
complete -c redlock -n '__redlock_at options' -l tls-ca -rF -d 'Trust the certificates in FILE (PEM) instead of the system\'s'
complete -c redlock -n '__redlock_at options' -l tls-cert -rF -d 'The client certificate (PEM) to show to the server'
complete -c redlock -n '__redlock_at options' -l tls-key -rF -d 'The key (PEM) of the client certificate'
complete -c redlock -n '__redlock_at options' -l replicas -x -d 'Count a lease, and each renewal, only after N replicas have it (WAIT); if N counts every replica, a failover loses no lease'
complete -c redlock -n '__redlock_at options' -s q -l quiet -d 'Print errors only'
complete -c redlock -n '__redlock_at options' -s v -l verbose -d 'Print more detail'
complete -c redlock -n '__redlock_at options' -s h -l help -d 'Print help (-h: one screen, --help: all of it)'
complete -c redlock -n '__redlock_at start' -s V -l version -d 'Print the version'
complete -c redlock -n '__redlock_at start' -l label -x -d 'How the holder appears to others; for run and acquire only'
complete -c redlock -n '__redlock_at start' -l log -x -d 'How many runs the log of the lock keeps, 0 for none; for run and acquire only'
complete -c redlock -n '__redlock_at start' -l format -xa 'text json prometheus nagios chart html env' -d 'Output format: text or json; also env for a shell\'s eval (acquire), chart or html for a picture (log), prometheus (status), nagios (check); run and completions have none'
complete -c redlock -n '__redlock_at run' -s w -l wait -d 'Wait in line for the lock, for at most D'
complete -c redlock -n '__redlock_at run' -l once-per -x -d 'Run at most once in each P, on the host that comes first'
complete -c redlock -n '__redlock_at run' -l tries -x -d 'With --once-per: at most N runs begin in each P'
complete -c redlock -n '__redlock_at run' -l due -x -d 'With --once-per: check expects a success each D, not each P'
complete -c redlock -n '__redlock_at run' -l max-run -x -d 'Stop the job after D, and exit with 124'
complete -c redlock -n '__redlock_at run' -l keep-errors -rF -d 'Append the job\'s standard error to FILE'
complete -c redlock -n '__redlock_at run' -l signal -xa 'TERM INT QUIT HUP USR1 USR2 KILL' -d 'Ask the job to stop with SIG, not SIGTERM'
complete -c redlock -n '__redlock_at run' -l kill-after -x -d 'Send SIGKILL D after the job was asked to stop'
complete -c redlock -n '__redlock_at run' -l on-lost -xa 'stop continue' -d 'When the lease is lost: stop or continue'
complete -c redlock -n '__redlock_at run' -l whole -d 'The job lasts until its last process ends'
complete -c redlock -n '__redlock_at run' -s c -x -d 'Run LINE with /bin/sh -c instead of COMMAND'
complete -c redlock -n '__redlock_at run' -l name -xa '(__redlock_names)' -d 'The name of the lock, as an option instead of NAME; run can hold several'
complete -c redlock -n '__redlock_at run' -l ttl -x -d 'How long a lease lasts unrenewed'
complete -c redlock -n '__redlock_at run' -s n -l nonblock -d 'Try once, like flock -n (the default)'
complete -c redlock -n '__redlock_at run' -s s -l shared -d 'Share the lock with other --shared holders'
complete -c redlock -n '__redlock_at run' -s x -l exclusive -d 'One holder at a time, like flock -x (the default)'
complete -c redlock -n '__redlock_at run' -l slots -x -d 'At most L holders, each with a slot of its own'
complete -c redlock -n '__redlock_at run' -s E -l conflict-exit-code -x -d 'Exit with N, not 75, if the lock is held'
complete -c redlock -n '__redlock_at run' -l reentrant -d 'Re-enter the lock if an enclosing run holds it'
complete -c redlock -n '__redlock_at run' -l token -x -d 'With --reentrant: the token of the lease to re-enter'
complete -c redlock -n '__redlock_at run' -l newest -x -d 'Exit with 75 if a call with a larger N has come'
complete -c redlock -n '__redlock_at run' -l label -x -d 'How the holder appears to others; for run and acquire only'
complete -c redlock -n '__redlock_at run' -l log -x -d 'How many runs the log of the lock keeps, 0 for none; for run and acquire only'
complete -c redlock -n '__redlock_at acquire' -s w -l wait -d 'Wait in line for the lock, for at most D'
complete -c redlock -n '__redlock_at acquire' -l while-pid -x -d 'Renew the lease until process PID ends, then release it'
complete -c redlock -n '__redlock_at acquire' -l on-lost -xa 'stop continue' -d 'With --while-pid, when the lease is lost: stop or continue'
complete -c redlock -n '__redlock_at acquire' -l name -xa '(__redlock_names)' -d 'The name of the lock, as an option instead of NAME; run can hold several'
complete -c redlock -n '__redlock_at acquire' -l ttl -x -d 'How long a lease lasts unrenewed'
complete -c redlock -n '__redlock_at acquire' -s n -l nonblock -d 'Try once, like flock -n (the default)'
complete -c redlock -n '__redlock_at acquire' -s s -l shared -d 'Share the lock with other --shared holders'
complete -c redlock -n '__redlock_at acquire' -s x -l exclusive -d 'One holder at a time, like flock -x (the default)'
complete -c redlock -n '__redlock_at acquire' -l slots -x -d 'At most L holders, each with a slot of its own'
complete -c redlock -n '__redlock_at acquire' -s E -l conflict-exit-code -x -d 'Exit with N, not 75, if the lock is held'
complete -c redlock -n '__redlock_at acquire' -l reentrant -d 'Re-enter the lock if an enclosing run holds it'
complete -c redlock -n '__redlock_at acquire' -l token -x -d 'With --reentrant: the token of the lease to re-enter'
complete -c redlock -n '__redlock_at acquire' -l newest -x -d 'Exit with 75 if a call with a larger N has come'
complete -c redlock -n '__redlock_at acquire' -l label -x -d 'How the holder appears to others; for run and acquire only'
complete -c redlock -n '__redlock_at acquire' -l log -x -d 'How many runs the log of the lock keeps, 0 for none; for run and acquire only'
complete -c redlock -n '__redlock_at acquire' -l format -xa 'text json env' -d 'Output format: text or json; also env for a shell\'s eval (acquire), chart or html for a picture (log), prometheus (status), nagios (check); run and completions have none'
complete -c redlock -n '__redlock_at extend' -l name -xa '(__redlock_names)' -d 'The name of the lock, as an option instead of NAME'
complete -c redlock -n '__redlock_at extend' -l token -x -d 'The token that acquire printed'
complete -c redlock -n '__redlock_at extend' -l ttl -x -d 'Make the lease last at least D from now'
complete -c redlock -n '__redlock_at extend' -l format -xa 'text json' -d 'Output format: text or json; also env for a shell\'s eval (acquire), chart or html for a picture (log), prometheus (status), nagios (check); run and completions have none'
complete -c redlock -n '__redlock_at release' -l name -xa '(__redlock_names)' -d 'The name of the lock, as an option instead of NAME'
complete -c redlock -n '__redlock_at release' -l token -x -d 'The token that acquire printed; for --force its first eight characters, which status shows, are enough'
complete -c redlock -n '__redlock_at release' -l force -d 'Free the lock now; the holder\'s job may still be running: redlock stop ends it'
complete -c redlock -n '__redlock_at release' -l status -x -d 'The exit status of the work, for the log'
complete -c redlock -n '__redlock_at release' -l format -xa 'text json' -d 'Output format: text or json; also env for a shell\'s eval (acquire), chart or html for a picture (log), prometheus (status), nagios (check); run and completions have none'
complete -c redlock -n '__redlock_at stop' -l name -xa '(__redlock_names)' -d 'The name of the lock, as an option instead of NAME'
complete -c redlock -n '__redlock_at stop' -l token -x -d 'Of several holders, the one whose token begins with T, as status shows it; all stops all of them'
complete -c redlock -n '__redlock_at stop' -l for -x -d 'Close the lock for D first: nobody gets it until then'
complete -c redlock -n '__redlock_at stop' -l format -xa 'text json' -d 'Output format: text or json; also env for a shell\'s eval (acquire), chart or html for a picture (log), prometheus (status), nagios (check); run and completions have none'
complete -c redlock -n '__redlock_at status' -l name -xa '(__redlock_names)' -d 'The name of a lock, as an option instead of NAME'
complete -c redlock -n '__redlock_at status' -s a -l all -d 'In a list: also locks that are free, if their last runs are known'
complete -c redlock -n '__redlock_at status' -l token -x -d 'Exit 0 if this token holds the lock, else 77'
complete -c redlock -n '__redlock_at status' -l hosts -d 'List the hosts that came to the lock, and the result of each'
complete -c redlock -n '__redlock_at status' -l watch -d 'Refresh every D'
complete -c redlock -n '__redlock_at status' -l format -xa 'text json prometheus' -d 'Output format: text or json; also env for a shell\'s eval (acquire), chart or html for a picture (log), prometheus (status), nagios (check); run and completions have none'
complete -c redlock -n '__redlock_at check' -l name -xa '(__redlock_names)' -d 'The name of a lock, as an option instead of NAME'
complete -c redlock -n '__redlock_at check' -l within -x -d 'The last success is to have ended within D, whatever --once-per says'
complete -c redlock -n '__redlock_at check' -l min-hosts -x -d 'At least N hosts are to have come'
complete -c redlock -n '__redlock_at check' -l format -xa 'text json nagios' -d 'Output format: text or json; also env for a shell\'s eval (acquire), chart or html for a picture (log), prometheus (status), nagios (check); run and completions have none'
complete -c redlock -n '__redlock_at forget' -l name -xa '(__redlock_names)' -d 'The name of the lock, as an option instead of NAME'
complete -c redlock -n '__redlock_at forget' -l format -xa 'text json' -d 'Output format: text or json; also env for a shell\'s eval (acquire), chart or html for a picture (log), prometheus (status), nagios (check); run and completions have none'
complete -c redlock -n '__redlock_at log' -l name -xa '(__redlock_names)' -d 'The name of a lock, as an option instead of NAME'
complete -c redlock -n '__redlock_at log' -s n -l lines -x -d 'Show the last N runs, of all these locks together'
complete -c redlock -n '__redlock_at log' -l since -x -d 'Show runs that ended within the last D, or are still running'
complete -c redlock -n '__redlock_at log' -l failed -d 'Show only runs that failed, or whose lease ran out'
complete -c redlock -n '__redlock_at log' -l format -xa 'text json chart html' -d 'Output format: text or json; also env for a shell\'s eval (acquire), chart or html for a picture (log), prometheus (status), nagios (check); run and completions have none'
complete -c redlock -n '__redlock_at wait' -l name -xa '(__redlock_names)' -d 'The name of the lock, as an option instead of NAME'
complete -c redlock -n '__redlock_at wait' -l timeout -x -d 'Wait for at most D'
complete -c redlock -n '__redlock_at wait' -l format -xa 'text json' -d 'Output format: text or json; also env for a shell\'s eval (acquire), chart or html for a picture (log), prometheus (status), nagios (check); run and completions have none'
complete -c redlock -n '__redlock_at doctor' -l format -xa 'text json' -d 'Output format: text or json; also env for a shell\'s eval (acquire), chart or html for a picture (log), prometheus (status), nagios (check); run and completions have none'
