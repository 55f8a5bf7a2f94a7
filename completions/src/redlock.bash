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
        @VALUE@)
            ((++i == last)) && option=${words[i - 1]}
            ;;
        @OPTIONAL_VALUE@)
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
@OPTIONS@
    esac
    if [[ $current == --*=* ]]; then
        option=${current%%=*}
        head=$option=
    fi
    if [[ $option ]]; then
        case $option in
        --name) mapfile -t candidates < <(_redlock_names "${nodes[@]}") ;;
        @FILES@) compopt -o default ;;
@CHOICES@
        --format)
            case $command in
@FORMATS@
            esac
            ;;
        esac
    elif [[ $current == -* ]]; then
        candidates=($options)
    elif [[ ! $command || $command$name == help ]]; then
        candidates=(@COMMANDS@)
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
