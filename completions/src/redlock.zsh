#compdef redlock

# The names of the locks on the nodes that `nodes` names by options; none when the nodes do not answer soon.
_redlock_names() {
    local expl
    local -a names
    names=(${(f)"$(timeout 1 redlock status --all --format json --node-timeout 200ms $nodes 2>/dev/null |
        grep -o '{"name":"[^"\\]*"' | cut -d '"' -f 4)"})
    _wanted locks expl lock compadd -a names
}

# Sets `options` to the options of this command.
_redlock_options() {
    options=(
@COMMON@
    )
    case $1 in
@OPTIONS@
    esac
}

_redlock() {
    local curcontext=$curcontext context state state_descr line i
    local -A opt_args
    local -a subcommands options nodes
    subcommands=(
@COMMANDS@
    )
    for ((i = 2; i < CURRENT && i < $words[(i)--]; i++)); do
        case $words[i] in
        (--(redis|prefix|password-file|tls-*)) nodes+=(${(Q)words[i,i+1]}) ;;
        (--(redis|prefix|password-file|tls-*)=*) nodes+=(${(Q)words[i]}) ;;
        esac
    done

    _redlock_options redlock
    _arguments -s -S -C -A '-*' $options '1:command:->command' '*::argument:->argument' && return
    if [[ $state == command ]]; then
        _describe -t commands command subcommands
        return
    fi
    _redlock_options $words[1]
    local dashes=$words[(i)--]
    # Where no further argument is known, zsh would offer the dash of all options.
    local end='*:no more arguments: '
    if [[ $words[1] == completions ]]; then
        _arguments -s -S $options '1:shell:(bash zsh fish)' $end
    elif [[ $words[1] == help ]]; then
        (( CURRENT == 2 )) && _describe -t commands command subcommands
    elif [[ $words[1] == doctor ]]; then
        _arguments -s -S $options $end
    elif [[ $words[1] == (status|log|check) ]]; then
        _arguments -s -S $options '*:lock:_redlock_names'
    elif [[ $words[1] != run ]]; then
        _arguments -s -S $options '1:lock:_redlock_names' $end
    elif (( dashes < CURRENT )); then
        shift $dashes words
        (( CURRENT -= dashes ))
        _normal
    elif (( $words[(I)--name(|=*)] )); then
        _arguments -s -S $options '1: :(--)' $end
    else
        _arguments -s -S $options '1:lock:_redlock_names' '2: :(--)' $end
    fi
}

# Called as a completion when it was loaded from $fpath, and otherwise read by eval.
if [[ $funcstack[1] == _redlock ]]; then
    _redlock "$@"
else
    compdef _redlock redlock
fi
