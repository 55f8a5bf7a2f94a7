# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_redlock_global_optspecs
    string join \n V/version redis= prefix= node-timeout= quarantine= password-file= label= format= q/quiet v/verbose h/help
end

function __fish_redlock_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_redlock_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_redlock_using_subcommand
    set -l cmd (__fish_redlock_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c redlock -n "__fish_redlock_needs_command" -l redis -d 'The Redis; of several, more than half must agree' -r
complete -c redlock -n "__fish_redlock_needs_command" -l prefix -d 'What is put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_needs_command" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_needs_command" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it if leases longer than 30s are used beside shorter ones [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_needs_command" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_needs_command" -l label -d 'What others see of the holder; for run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_needs_command" -l format -d 'How results are printed: text or json; for acquire also env, lines for a shell. run prints no results [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_needs_command" -s V -l version -d 'Print the version'
complete -c redlock -n "__fish_redlock_needs_command" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_needs_command" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_needs_command" -s h -l help -d 'Print help (-h: one screen, --help: all of it)'
complete -c redlock -n "__fish_redlock_needs_command" -f -a "run" -d 'Run a command while holding a lock'
complete -c redlock -n "__fish_redlock_needs_command" -f -a "acquire" -d 'Take a lock and print its token'
complete -c redlock -n "__fish_redlock_needs_command" -f -a "extend" -d 'Extend a lease'
complete -c redlock -n "__fish_redlock_needs_command" -f -a "release" -d 'Release a lock'
complete -c redlock -n "__fish_redlock_needs_command" -f -a "status" -d 'Show who holds a lock, or all locks'
complete -c redlock -n "__fish_redlock_needs_command" -f -a "wait" -d 'Wait until a lock is free, without taking it'
complete -c redlock -n "__fish_redlock_needs_command" -f -a "completions" -d 'Print shell completions'
complete -c redlock -n "__fish_redlock_using_subcommand run" -l name -d 'The name of the lock' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l ttl -d 'How long the lease lasts without a renewal' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -s E -l conflict-exit-code -d 'Exit with N if another holds the lock' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l token -d 'With --reentrant: the token of the lease to share' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -s w -l wait -d 'Wait in line for the lock, for at most D' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l grace -d 'Time between SIGTERM and SIGKILL' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l kill-after -d 'SIGKILL the job D after TERM, INT or QUIT' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l on-lost -d 'When the lease is lost: stop or continue' -r -f -a "stop\t''
continue\t''"
complete -c redlock -n "__fish_redlock_using_subcommand run" -l hold-at-least -d 'Keep the lock for D, however quick the job is' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l max-run -d 'Stop the job after D, and exit with 124' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -s c -d 'Run LINE by /bin/sh -c instead of COMMAND' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l redis -d 'The Redis; of several, more than half must agree' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l prefix -d 'What is put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it if leases longer than 30s are used beside shorter ones [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand run" -l label -d 'What others see of the holder; for run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l format -d 'How results are printed: text or json; for acquire also env, lines for a shell. run prints no results [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_using_subcommand run" -s n -d 'Try once, as flock -n: the default'
complete -c redlock -n "__fish_redlock_using_subcommand run" -l reentrant -d 'Share the lock if an enclosing run holds it'
complete -c redlock -n "__fish_redlock_using_subcommand run" -l whole -d 'The job lasts until its last process ends'
complete -c redlock -n "__fish_redlock_using_subcommand run" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_using_subcommand run" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_using_subcommand run" -s h -l help -d 'Print help (-h: one screen, --help: all of it)'
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l name -d 'The name of the lock' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l ttl -d 'How long the lease lasts without a renewal' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -s E -l conflict-exit-code -d 'Exit with N if another holds the lock' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l token -d 'With --reentrant: the token of the lease to share' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -s w -l wait -d 'Wait in line for the lock, for at most D' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l redis -d 'The Redis; of several, more than half must agree' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l prefix -d 'What is put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it if leases longer than 30s are used beside shorter ones [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l label -d 'What others see of the holder; for run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l format -d 'How results are printed: text or json; for acquire also env, lines for a shell. run prints no results [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -s n -d 'Try once, as flock -n: the default'
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l reentrant -d 'Share the lock if an enclosing run holds it'
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -s h -l help -d 'Print help (-h: one screen, --help: all of it)'
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l name -d 'The name of the lock' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l token -d 'The token that acquire printed' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l ttl -d 'Make the lease last at least D from now [default: the ttl it was taken with]' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l redis -d 'The Redis; of several, more than half must agree' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l prefix -d 'What is put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it if leases longer than 30s are used beside shorter ones [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l label -d 'What others see of the holder; for run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l format -d 'How results are printed: text or json; for acquire also env, lines for a shell. run prints no results [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_using_subcommand extend" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_using_subcommand extend" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_using_subcommand extend" -s h -l help -d 'Print help (-h: one screen, --help: all of it)'
complete -c redlock -n "__fish_redlock_using_subcommand release" -l name -d 'The name of the lock' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l token -d 'The token that acquire printed; for --revoke and --force its first eight characters, which status shows, are enough' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l redis -d 'The Redis; of several, more than half must agree' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l prefix -d 'What is put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it if leases longer than 30s are used beside shorter ones [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand release" -l label -d 'What others see of the holder; for run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l format -d 'How results are printed: text or json; for acquire also env, lines for a shell. run prints no results [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_using_subcommand release" -l revoke -d 'End another\'s lease safely: its job is stopped, then the lock is free'
complete -c redlock -n "__fish_redlock_using_subcommand release" -l force -d 'Free the lock now, though its job may still be running'
complete -c redlock -n "__fish_redlock_using_subcommand release" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_using_subcommand release" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_using_subcommand release" -s h -l help -d 'Print help (-h: one screen, --help: all of it)'
complete -c redlock -n "__fish_redlock_using_subcommand status" -l name -d 'A lock' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l token -d 'Exit 0 if this token holds the lock, else 77' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l watch -d 'Show it again every D (2s)' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l redis -d 'The Redis; of several, more than half must agree' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l prefix -d 'What is put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it if leases longer than 30s are used beside shorter ones [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand status" -l label -d 'What others see of the holder; for run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l format -d 'How results are printed: text or json; for acquire also env, lines for a shell. run prints no results [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_using_subcommand status" -l exit-code -d 'Exit 0 if the lock is free, 75 if it is held; so does -q, which prints nothing'
complete -c redlock -n "__fish_redlock_using_subcommand status" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_using_subcommand status" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_using_subcommand status" -s h -l help -d 'Print help (-h: one screen, --help: all of it)'
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l name -d 'The name of the lock' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l timeout -d 'Wait for at most D [default: for ever]' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l redis -d 'The Redis; of several, more than half must agree' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l prefix -d 'What is put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it if leases longer than 30s are used beside shorter ones [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l label -d 'What others see of the holder; for run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l format -d 'How results are printed: text or json; for acquire also env, lines for a shell. run prints no results [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_using_subcommand wait" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_using_subcommand wait" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_using_subcommand wait" -s h -l help -d 'Print help (-h: one screen, --help: all of it)'
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l redis -d 'The Redis; of several, more than half must agree' -r
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l prefix -d 'What is put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it if leases longer than 30s are used beside shorter ones [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l label -d 'What others see of the holder; for run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l format -d 'How results are printed: text or json; for acquire also env, lines for a shell. run prints no results [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_using_subcommand completions" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_using_subcommand completions" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_using_subcommand completions" -s h -l help -d 'Print help (-h: one screen, --help: all of it)'
