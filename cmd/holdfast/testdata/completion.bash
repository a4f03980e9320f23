# bash completion for holdfast
# Load it with: source <(holdfast completion bash)

_holdfast() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} cmd=${COMP_WORDS[1]} i
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        mapfile -t COMPREPLY < <(compgen -W 'run once ls show watch break acquire renew release version completion man help' -- "$cur")
        return
    fi
    if [[ $cmd == run ]]; then
        for ((i = 2; i < COMP_CWORD; i++)); do
            if [[ ${COMP_WORDS[i]} == -- ]]; then
                if declare -F _command_offset >/dev/null; then
                    _command_offset $((i + 1))
                elif ((i + 1 == COMP_CWORD)); then
                    mapfile -t COMPREPLY < <(compgen -c -- "$cur")
                else
                    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                fi
                return
            fi
        done
    fi
    if [[ $cmd == once ]]; then
        for ((i = 2; i < COMP_CWORD; i++)); do
            if [[ ${COMP_WORDS[i]} == -- ]]; then
                if declare -F _command_offset >/dev/null; then
                    _command_offset $((i + 1))
                elif ((i + 1 == COMP_CWORD)); then
                    mapfile -t COMPREPLY < <(compgen -c -- "$cur")
                else
                    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
                fi
                return
            fi
        done
    fi
    case $cmd:$prev in
    run:--signal)
        mapfile -t COMPREPLY < <(compgen -W 'TERM INT HUP QUIT USR1 USR2 ABRT KILL' -- "$cur")
        return
        ;;
    run:--on-lost)
        mapfile -t COMPREPLY < <(compgen -W 'term kill warn' -- "$cur")
        return
        ;;
    run:--store | run:-w | run:--wait | run:--ttl | run:--meta | run:-E | run:--busy-code | run:--max-hold | run:--grace | run:-c | run:--command | run:--json-fd | run:--slots | run:--at-least | run:--period)
        return
        ;;
    once:--signal)
        mapfile -t COMPREPLY < <(compgen -W 'TERM INT HUP QUIT USR1 USR2 ABRT KILL' -- "$cur")
        return
        ;;
    once:--on-lost)
        mapfile -t COMPREPLY < <(compgen -W 'term kill warn' -- "$cur")
        return
        ;;
    once:--keep | once:--store | once:-w | once:--wait | once:--ttl | once:--meta | once:-E | once:--busy-code | once:--max-hold | once:--grace | once:-c | once:--command | once:--json-fd)
        return
        ;;
    ls:--store)
        return
        ;;
    show:--store)
        return
        ;;
    watch:--store | watch:--interval)
        return
        ;;
    break:--store | break:--id)
        return
        ;;
    acquire:--store | acquire:-w | acquire:--wait | acquire:--ttl | acquire:--meta | acquire:--slots)
        return
        ;;
    renew:--store | renew:--id | renew:--ttl)
        return
        ;;
    release:--store | release:--id)
        return
        ;;
    esac
    case $cmd:$cur in
    run:-*)
        mapfile -t COMPREPLY < <(compgen -W '--store -n --nonblock -w --wait --ttl --meta -E --busy-code --busy-ok --max-hold --grace --signal --on-lost -c --command --json --json-fd -v --verbose -q --quiet -s --shared --slots --at-least --period --help' -- "$cur")
        ;;
    once:-*)
        mapfile -t COMPREPLY < <(compgen -W '--keep --store -n --nonblock -w --wait --ttl --meta -E --busy-code --busy-ok --max-hold --grace --signal --on-lost -c --command --json --json-fd -v --verbose -q --quiet --help' -- "$cur")
        ;;
    ls:-*)
        mapfile -t COMPREPLY < <(compgen -W '--store --json --names --help' -- "$cur")
        ;;
    show:-*)
        mapfile -t COMPREPLY < <(compgen -W '--store --json --help' -- "$cur")
        ;;
    watch:-*)
        mapfile -t COMPREPLY < <(compgen -W '--store --interval --json --help' -- "$cur")
        ;;
    break:-*)
        mapfile -t COMPREPLY < <(compgen -W '--store --id --help' -- "$cur")
        ;;
    acquire:-*)
        mapfile -t COMPREPLY < <(compgen -W '--store -n --nonblock -w --wait --ttl --meta -s --shared --slots --json --help' -- "$cur")
        ;;
    renew:-*)
        mapfile -t COMPREPLY < <(compgen -W '--store --id --ttl --json --help' -- "$cur")
        ;;
    release:-*)
        mapfile -t COMPREPLY < <(compgen -W '--store --id --help' -- "$cur")
        ;;
    version:-*)
        mapfile -t COMPREPLY < <(compgen -W '--help' -- "$cur")
        ;;
    completion:-*)
        mapfile -t COMPREPLY < <(compgen -W '--help' -- "$cur")
        ;;
    man:-*)
        mapfile -t COMPREPLY < <(compgen -W '--help' -- "$cur")
        ;;
    help:-*)
        mapfile -t COMPREPLY < <(compgen -W '--help' -- "$cur")
        ;;
    run:*)
        _holdfast_locks
        ;;
    once:*)
        _holdfast_locks
        ;;
    ls:*)
        _holdfast_locks
        ;;
    show:*)
        _holdfast_locks
        ;;
    watch:*)
        _holdfast_locks
        ;;
    break:*)
        _holdfast_locks
        ;;
    acquire:*)
        _holdfast_locks
        ;;
    renew:*)
        _holdfast_locks
        ;;
    release:*)
        _holdfast_locks
        ;;
    completion:*)
        mapfile -t COMPREPLY < <(compgen -W 'bash zsh fish powershell' -- "$cur")
        ;;
    man:*)
        mapfile -t COMPREPLY < <(compgen -d -- "$cur")
        ;;
    esac
}

# Names may have colons, which bash takes for the ends of words: only what follows the last
# of them is to be offered.
_holdfast_locks() {
    local line=${COMP_LINE:0:COMP_POINT} word name
    word=${line##* }
    while IFS= read -r name; do
        if [[ $name == "$word"* && $name != *[[:space:]]* ]]; then
            if [[ $COMP_WORDBREAKS == *:* && $word == *:* ]]; then
                name=${name#"${word%:*}:"}
            fi
            COMPREPLY+=("$name")
        fi
    done < <(holdfast ls --names 2>/dev/null)
}

complete -F _holdfast holdfast
