# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_redlock_global_optspecs
    string join \n V/version redis= prefix= node-timeout= quarantine= password-file= tls-ca= tls-cert= tls-key= replicas= label= format= q/quiet v/verbose h/help
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

complete -c redlock -n "__fish_redlock_needs_command" -l redis -d 'A Redis; where there are several, most must agree' -r
complete -c redlock -n "__fish_redlock_needs_command" -l prefix -d 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_needs_command" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_needs_command" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it where leases longer than 30s and shorter ones are mixed [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_needs_command" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_needs_command" -l tls-ca -d 'Trust the certificates in FILE (PEM) instead of the system\'s [env: REDLOCK_TLS_CA]' -r -F
complete -c redlock -n "__fish_redlock_needs_command" -l tls-cert -d 'The client certificate (PEM) to show to the server [env: REDLOCK_TLS_CERT]' -r -F
complete -c redlock -n "__fish_redlock_needs_command" -l tls-key -d 'The key (PEM) of the client certificate [env: REDLOCK_TLS_KEY]' -r -F
complete -c redlock -n "__fish_redlock_needs_command" -l replicas -d 'Count a lease, and each renewal, only after N replicas have it (WAIT), so that a fail-over does not lose it [env: REDLOCK_REPLICAS] [default: 0]' -r
complete -c redlock -n "__fish_redlock_needs_command" -l label -d 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_needs_command" -l format -d 'How results are printed: text, json, or, with acquire, env: lines for a shell\'s eval; run has none to print [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_needs_command" -s V -l version -d 'Print the version'
complete -c redlock -n "__fish_redlock_needs_command" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_needs_command" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_needs_command" -s h -l help -d 'Print help: -h in short, --help all of it'
complete -c redlock -n "__fish_redlock_needs_command" -f -a "run" -d 'Run a command while holding a lock'
complete -c redlock -n "__fish_redlock_needs_command" -f -a "acquire" -d 'Take a lock and print its token'
complete -c redlock -n "__fish_redlock_needs_command" -f -a "extend" -d 'Extend a lease'
complete -c redlock -n "__fish_redlock_needs_command" -f -a "release" -d 'Release a lock'
complete -c redlock -n "__fish_redlock_needs_command" -f -a "status" -d 'Show who holds a lock, or all locks'
complete -c redlock -n "__fish_redlock_needs_command" -f -a "wait" -d 'Wait until a lock is free, taking nothing'
complete -c redlock -n "__fish_redlock_needs_command" -f -a "completions" -d 'Print the completions for a shell'
complete -c redlock -n "__fish_redlock_using_subcommand run" -l name -d 'The lock' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l ttl -d 'The length of lease asked for' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -s E -l conflict-exit-code -d 'Exit with N when the lock is held by another' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l token -d 'The lease to share, with --reentrant' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -s w -l wait -d 'Wait in line for the lock, for at most D' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l grace -d 'SIGTERM to SIGKILL when redlock stops the job' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l kill-after -d 'SIGKILL D after redlock gets TERM, INT or QUIT' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l on-lost -d 'When the lease is lost: stop, or continue' -r -f -a "stop\t''
continue\t''"
complete -c redlock -n "__fish_redlock_using_subcommand run" -l hold-at-least -d 'Keep the lock that long, however quick the job' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l max-run -d 'Stop the job when it has run for D; exit 124' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -s c -d 'Run LINE by /bin/sh -c, in the place of COMMAND' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l redis -d 'A Redis; where there are several, most must agree' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l prefix -d 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it where leases longer than 30s and shorter ones are mixed [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand run" -l tls-ca -d 'Trust the certificates in FILE (PEM) instead of the system\'s [env: REDLOCK_TLS_CA]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand run" -l tls-cert -d 'The client certificate (PEM) to show to the server [env: REDLOCK_TLS_CERT]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand run" -l tls-key -d 'The key (PEM) of the client certificate [env: REDLOCK_TLS_KEY]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand run" -l replicas -d 'Count a lease, and each renewal, only after N replicas have it (WAIT), so that a fail-over does not lose it [env: REDLOCK_REPLICAS] [default: 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l label -d 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_using_subcommand run" -l format -d 'How results are printed: text, json, or, with acquire, env: lines for a shell\'s eval; run has none to print [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_using_subcommand run" -s n -d 'Try once: the default, spelled out as for flock'
complete -c redlock -n "__fish_redlock_using_subcommand run" -l reentrant -d 'Share the lock if an enclosing run holds it'
complete -c redlock -n "__fish_redlock_using_subcommand run" -l whole -d 'The job lasts until its last process ends'
complete -c redlock -n "__fish_redlock_using_subcommand run" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_using_subcommand run" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_using_subcommand run" -s h -l help -d 'Print help: -h in short, --help all of it'
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l name -d 'The lock' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l ttl -d 'The length of lease asked for' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -s E -l conflict-exit-code -d 'Exit with N when the lock is held by another' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l token -d 'The lease to share, with --reentrant' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -s w -l wait -d 'Wait in line for the lock, for at most D' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l redis -d 'A Redis; where there are several, most must agree' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l prefix -d 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it where leases longer than 30s and shorter ones are mixed [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l tls-ca -d 'Trust the certificates in FILE (PEM) instead of the system\'s [env: REDLOCK_TLS_CA]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l tls-cert -d 'The client certificate (PEM) to show to the server [env: REDLOCK_TLS_CERT]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l tls-key -d 'The key (PEM) of the client certificate [env: REDLOCK_TLS_KEY]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l replicas -d 'Count a lease, and each renewal, only after N replicas have it (WAIT), so that a fail-over does not lose it [env: REDLOCK_REPLICAS] [default: 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l label -d 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l format -d 'How results are printed: text, json, or, with acquire, env: lines for a shell\'s eval; run has none to print [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -s n -d 'Try once: the default, spelled out as for flock'
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -l reentrant -d 'Share the lock if an enclosing run holds it'
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_using_subcommand acquire" -s h -l help -d 'Print help: -h in short, --help all of it'
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l name -d 'The lock' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l token -d 'The token that acquire printed' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l ttl -d 'The lease lasts for D at least from now [default: the ttl it was taken with]' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l redis -d 'A Redis; where there are several, most must agree' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l prefix -d 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it where leases longer than 30s and shorter ones are mixed [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l tls-ca -d 'Trust the certificates in FILE (PEM) instead of the system\'s [env: REDLOCK_TLS_CA]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l tls-cert -d 'The client certificate (PEM) to show to the server [env: REDLOCK_TLS_CERT]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l tls-key -d 'The key (PEM) of the client certificate [env: REDLOCK_TLS_KEY]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l replicas -d 'Count a lease, and each renewal, only after N replicas have it (WAIT), so that a fail-over does not lose it [env: REDLOCK_REPLICAS] [default: 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l label -d 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_using_subcommand extend" -l format -d 'How results are printed: text, json, or, with acquire, env: lines for a shell\'s eval; run has none to print [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_using_subcommand extend" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_using_subcommand extend" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_using_subcommand extend" -s h -l help -d 'Print help: -h in short, --help all of it'
complete -c redlock -n "__fish_redlock_using_subcommand release" -l name -d 'The lock' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l token -d 'The token that acquire printed; with --revoke and --force, the eight characters that status shows' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l redis -d 'A Redis; where there are several, most must agree' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l prefix -d 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it where leases longer than 30s and shorter ones are mixed [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand release" -l tls-ca -d 'Trust the certificates in FILE (PEM) instead of the system\'s [env: REDLOCK_TLS_CA]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand release" -l tls-cert -d 'The client certificate (PEM) to show to the server [env: REDLOCK_TLS_CERT]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand release" -l tls-key -d 'The key (PEM) of the client certificate [env: REDLOCK_TLS_KEY]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand release" -l replicas -d 'Count a lease, and each renewal, only after N replicas have it (WAIT), so that a fail-over does not lose it [env: REDLOCK_REPLICAS] [default: 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l label -d 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_using_subcommand release" -l format -d 'How results are printed: text, json, or, with acquire, env: lines for a shell\'s eval; run has none to print [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_using_subcommand release" -l revoke -d 'End another\'s lease safely: its job is stopped, and the lock is free when that is done'
complete -c redlock -n "__fish_redlock_using_subcommand release" -l force -d 'Free the lock now, while its job may still run'
complete -c redlock -n "__fish_redlock_using_subcommand release" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_using_subcommand release" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_using_subcommand release" -s h -l help -d 'Print help: -h in short, --help all of it'
complete -c redlock -n "__fish_redlock_using_subcommand status" -l name -d 'The lock' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l token -d 'Exit 0 when this token holds the lock, else 77' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l watch -d 'Show it again every D' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l redis -d 'A Redis; where there are several, most must agree' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l prefix -d 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it where leases longer than 30s and shorter ones are mixed [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand status" -l tls-ca -d 'Trust the certificates in FILE (PEM) instead of the system\'s [env: REDLOCK_TLS_CA]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand status" -l tls-cert -d 'The client certificate (PEM) to show to the server [env: REDLOCK_TLS_CERT]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand status" -l tls-key -d 'The key (PEM) of the client certificate [env: REDLOCK_TLS_KEY]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand status" -l replicas -d 'Count a lease, and each renewal, only after N replicas have it (WAIT), so that a fail-over does not lose it [env: REDLOCK_REPLICAS] [default: 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l label -d 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_using_subcommand status" -l format -d 'How results are printed: text, json, or, with acquire, env: lines for a shell\'s eval; run has none to print [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_using_subcommand status" -l exit-code -d 'Exit 0 when the lock is free, 75 when it is held; so does -q'
complete -c redlock -n "__fish_redlock_using_subcommand status" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_using_subcommand status" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_using_subcommand status" -s h -l help -d 'Print help: -h in short, --help all of it'
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l name -d 'The lock' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l timeout -d 'Wait for D at most [default: for ever]' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l redis -d 'A Redis; where there are several, most must agree' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l prefix -d 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it where leases longer than 30s and shorter ones are mixed [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l tls-ca -d 'Trust the certificates in FILE (PEM) instead of the system\'s [env: REDLOCK_TLS_CA]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l tls-cert -d 'The client certificate (PEM) to show to the server [env: REDLOCK_TLS_CERT]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l tls-key -d 'The key (PEM) of the client certificate [env: REDLOCK_TLS_KEY]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l replicas -d 'Count a lease, and each renewal, only after N replicas have it (WAIT), so that a fail-over does not lose it [env: REDLOCK_REPLICAS] [default: 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l label -d 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_using_subcommand wait" -l format -d 'How results are printed: text, json, or, with acquire, env: lines for a shell\'s eval; run has none to print [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_using_subcommand wait" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_using_subcommand wait" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_using_subcommand wait" -s h -l help -d 'Print help: -h in short, --help all of it'
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l redis -d 'A Redis; where there are several, most must agree' -r
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l prefix -d 'Put before the name to make the key [env: REDLOCK_PREFIX] [default: redlock:]' -r
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l node-timeout -d 'How long one node may take for one request [env: REDLOCK_NODE_TIMEOUT] [default: ttl/20 within 100ms to 1s; with a single node ttl/10 within 250ms to 3s; never more than ttl/2]' -r
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l quarantine -d 'A node that was started less than D ago grants nothing, since it may have forgotten a lease. D must cover the longest lease in use on these nodes: set it where leases longer than 30s and shorter ones are mixed [env: REDLOCK_QUARANTINE] [default: the ttl, at least 30s; with a single node 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l password-file -d 'Read the password from the first line of FILE [env: REDLOCK_PASSWORD_FILE, or REDLOCK_PASSWORD for the password itself]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l tls-ca -d 'Trust the certificates in FILE (PEM) instead of the system\'s [env: REDLOCK_TLS_CA]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l tls-cert -d 'The client certificate (PEM) to show to the server [env: REDLOCK_TLS_CERT]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l tls-key -d 'The key (PEM) of the client certificate [env: REDLOCK_TLS_KEY]' -r -F
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l replicas -d 'Count a lease, and each renewal, only after N replicas have it (WAIT), so that a fail-over does not lose it [env: REDLOCK_REPLICAS] [default: 0]' -r
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l label -d 'What others are told about the holder; run and acquire only [env: REDLOCK_LABEL] [default: the command\'s base name]' -r
complete -c redlock -n "__fish_redlock_using_subcommand completions" -l format -d 'How results are printed: text, json, or, with acquire, env: lines for a shell\'s eval; run has none to print [default: text]' -r -f -a "text\t''
json\t''
env\t'Lines for a shell\'s eval: acquire only'"
complete -c redlock -n "__fish_redlock_using_subcommand completions" -s q -l quiet -d 'Print errors only'
complete -c redlock -n "__fish_redlock_using_subcommand completions" -s v -l verbose -d 'Print more detail'
complete -c redlock -n "__fish_redlock_using_subcommand completions" -s h -l help -d 'Print help: -h in short, --help all of it'
