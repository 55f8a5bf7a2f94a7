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
            case @VALUE@
                set -e rest[1]
            case @OPTIONAL_VALUE@
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
@COMMANDS@
@OPTIONS@
