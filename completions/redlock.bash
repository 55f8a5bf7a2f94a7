# Completions of redlock for bash 4.4 and later.

# The names of the locks on the nodes that these options name, one a line; none when the nodes do not answer soon.
_redlock_names() {
    timeout 1 redlock status --all --format json --node-timeout 200ms "$@" 2>/dev/null |
        grep -o '{"name":"[^"\\]*"' | cut -d '"' -f 4
}

# Completes the job, which begins after these words.
_redlock_job() {
    local before seen= at
    printf -v before %s "$@"
    for ((at = 0; ${#seen} < ${#before}; at++)); do
        seen+=${COMP_WORDS[at]//[[:space:]]/}
    done
    if declare -F _command_offset >/dev/null; then
        _command_offset "$at"
    elif ((at < COMP_CWORD)); then
        compopt -o default
    else
        compopt -o filenames
        mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[at]}")
    fi
}

_redlock() {
    local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} words last current i command= name= option= nodes=()
    # COMP_WORDS is of no use here: it has names and URLs in pieces, cut at each colon.
    read -ra words <<<"$line"
    [[ $line == *[[:space:]] ]] && words+=('')
    last=$((${#words[@]} - 1))
    current=${words[last]}

    for ((i = 1; i < last; i++)); do
        case ${words[i]} in
        --redis | --prefix | --password-file | --tls-ca | --tls-cert | --tls-key) nodes+=("${words[@]:i:2}") ;;&
        --redis=* | --prefix=* | --password-file=* | --tls-*=*) nodes+=("${words[i]}") ;;
        --name | --name=*) name=given ;;&
        --due | --for | --format | --keep-errors | --kill-after | --label | --log | --max-run | --min-hosts | --name | --newest | --node-timeout | --on-lost | --once-per | --password-file | --prefix | --quarantine | --redis | --replicas | --signal | --since | --slots | --status | --timeout | --tls-ca | --tls-cert | --tls-key | --token | --tries | --ttl | --while-pid | --within | -E | --conflict-exit-code | -c | --lines)
            ((++i == last)) && option=${words[i - 1]}
            ;;
        --watch | -w | --wait)
            [[ ${words[i + 1]} == -* ]] || ((i++))
            ;;
        --)
            [[ $command == run ]] && _redlock_job "${words[@]:0:i+1}"
            return
            ;;
        -*) ;;
        *)
            if [[ $command ]]; then
                name=given
            else
                command=${words[i]}
            fi
            ;;
        esac
    done

    local options candidates=() head= candidate
    case $command in
    '') options='--version --redis --prefix --node-timeout --quarantine --password-file --tls-ca --tls-cert --tls-key --replicas --label --log --format --quiet --verbose --help' ;;
    run) options='--wait --once-per --tries --due --max-run --keep-errors --signal --kill-after --on-lost --whole -c --name --ttl --nonblock --shared --exclusive --slots --conflict-exit-code --reentrant --token --newest --redis --prefix --node-timeout --quarantine --password-file --tls-ca --tls-cert --tls-key --replicas --label --log --quiet --verbose --help' ;;
    acquire) options='--wait --while-pid --on-lost --name --ttl --nonblock --shared --exclusive --slots --conflict-exit-code --reentrant --token --newest --redis --prefix --node-timeout --quarantine --password-file --tls-ca --tls-cert --tls-key --replicas --label --log --format --quiet --verbose --help' ;;
    extend) options='--name --token --ttl --redis --prefix --node-timeout --quarantine --password-file --tls-ca --tls-cert --tls-key --replicas --format --quiet --verbose --help' ;;
    release) options='--name --token --force --status --redis --prefix --node-timeout --quarantine --password-file --tls-ca --tls-cert --tls-key --replicas --format --quiet --verbose --help' ;;
    stop) options='--name --token --for --redis --prefix --node-timeout --quarantine --password-file --tls-ca --tls-cert --tls-key --replicas --format --quiet --verbose --help' ;;
    status) options='--name --all --token --hosts --watch --redis --prefix --node-timeout --quarantine --password-file --tls-ca --tls-cert --tls-key --replicas --format --quiet --verbose --help' ;;
    check) options='--name --within --min-hosts --redis --prefix --node-timeout --quarantine --password-file --tls-ca --tls-cert --tls-key --replicas --format --quiet --verbose --help' ;;
    forget) options='--name --redis --prefix --node-timeout --quarantine --password-file --tls-ca --tls-cert --tls-key --replicas --format --quiet --verbose --help' ;;
    log) options='--name --lines --since --failed --redis --prefix --node-timeout --quarantine --password-file --tls-ca --tls-cert --tls-key --replicas --format --quiet --verbose --help' ;;
    wait) options='--name --timeout --redis --prefix --node-timeout --quarantine --password-file --tls-ca --tls-cert --tls-key --replicas --format --quiet --verbose --help' ;;
    doctor) options='--redis --prefix --node-timeout --quarantine --password-file --tls-ca --tls-cert --tls-key --replicas --format --quiet --verbose --help' ;;
    completions) options='--redis --prefix --node-timeout --quarantine --password-file --tls-ca --tls-cert --tls-key --replicas --quiet --verbose --help' ;;
    esac
    if [[ $current == --*=* ]]; then
        option=${current%%=*}
        head=$option=
    fi
    if [[ $option ]]; then
        case $option in
        --name) mapfile -t candidates < <(_redlock_names "${nodes[@]}") ;;
        --keep-errors | --password-file | --tls-ca | --tls-cert | --tls-key) compopt -o default ;;
        --on-lost) candidates=(stop continue) ;;
        --signal) candidates=(TERM INT QUIT HUP USR1 USR2 KILL) ;;
        --format)
            case $command in
            '') candidates=(text json prometheus nagios chart html env) ;;
            run) candidates=() ;;
            acquire) candidates=(text json env) ;;
            extend) candidates=(text json) ;;
            release) candidates=(text json) ;;
            stop) candidates=(text json) ;;
            status) candidates=(text json prometheus) ;;
            check) candidates=(text json nagios) ;;
            forget) candidates=(text json) ;;
            log) candidates=(text json chart html) ;;
            wait) candidates=(text json) ;;
            doctor) candidates=(text json) ;;
            completions) candidates=() ;;
            esac
            ;;
        esac
    elif [[ $current == -* ]]; then
        candidates=($options)
    elif [[ ! $command || $command$name == help ]]; then
        candidates=(run acquire extend release stop status check forget log wait doctor completions)
    elif [[ $command$name == rungiven ]]; then
        candidates=(--)
    elif [[ $command$name == completions ]]; then
        candidates=(bash zsh fish)
    elif [[ $command != @(help|doctor) && (! $name || $command == @(status|log|check)) ]]; then
        mapfile -t candidates < <(_redlock_names "${nodes[@]}")
    fi

    # readline replaces only what follows the last character at which it cuts words.
    local kept=${current%"${current##*["$COMP_WORDBREAKS"]}"}
    for candidate in "${candidates[@]}"; do
        if [[ $head$candidate == "$current"* ]]; then
            printf -v candidate %q "$head$candidate"
            COMPREPLY+=("${candidate#"$kept"}")
        fi
    done
}

complete -F _redlock redlock
