#compdef holdfast
# zsh completion for holdfast
# Put it into a directory of $fpath as _holdfast, or load it with: source <(holdfast completion zsh)

_holdfast_locks() {
    local -a names
    names=(${(f)"$(holdfast ls --names 2>/dev/null)"})
    compadd -- $names
}

_holdfast() {
    local -a commands
    commands=(
        'run:Run CMD while holding NAME'
        'once:Run CMD unless it succeeded lately anywhere'
        'ls:List locks: who holds, since when, how long, who waits'
        'show:Show one lock: its holders with their ids, and its queue'
        'watch:Watch locks: the list of ls, refreshed every second'
        'break:Take a lock away from its holder by force'
        'acquire:Take a lock and leave it held, for scripts that cannot use run'
        'renew:Extend a lock that acquire took'
        'release:Give back a lock that acquire took'
        'version:Print the version'
        'completion:Print a completion script for a shell: bash, zsh, fish, powershell'
        'man:Write the manual pages into a directory, or print the first'
        'help:Show help of a command, or of all'
    )
    if ((CURRENT == 2)); then
        _describe command commands
        return
    fi
    local cmd=$words[2]
    shift words
    ((CURRENT--))
    case $cmd in
    run)
        _arguments -s -S \
            '--store=[where the locks are, such as sqlite:PATH; default: HOLDFAST_STORE, or an SQLite file in your state directory]:URL:' \
            '(-n --nonblock)'{-n,--nonblock}'[do not wait if the lock is held]' \
            '(-w --wait)'{-w,--wait=}'[wait at most so long for the lock, such as 30s or 1.5 (seconds); 0 does not wait; default: for ever]:DUR:' \
            '--ttl=[how long others wait for the lock if this host dies; default: 30s]:DUR:' \
            '--meta=[tell whoever asks who holds the lock]:TEXT:' \
            '(-E --busy-code)'{-E,--busy-code=}'[exit with CODE instead of 75 if the lock is held]:CODE:' \
            '--busy-ok[exit with 0, and silently, if the lock is held]' \
            '--max-hold=[end CMD after it has held the lock for so long]:DUR:' \
            '--grace=[how long before the lock is lost CMD is asked to end; less than half of the TTL; default: a sixth, at most 10s]:DUR:' \
            '--signal=[the signal to end the job with, if the lock is about to be lost; default: TERM]:SIG:(TERM INT HUP QUIT USR1 USR2 ABRT KILL)' \
            '--on-lost=[what to do if the lock is lost: term (signal, then kill), kill (at once), or warn (let it run on, which is safe only if tokens are checked)]:HOW:(term kill warn)' \
            '(-c --command)'{-c,--command=}'[run SCRIPT with a shell (/bin/sh -c); what follows "--" are its arguments]:SCRIPT:' \
            '--json[write events as JSON lines to stderr instead of sentences]' \
            '--json-fd=[write events as JSON lines to file descriptor N]:N:' \
            '(-v --verbose)'{-v,--verbose}'[say how long it waited, and more]' \
            '(-q --quiet)'{-q,--quiet}'[say nothing; the exit code tells]' \
            '(-s --shared)'{-s,--shared}'[hold the lock together with others who say --shared, as readers do]' \
            '--slots=[at most N hold the lock at a time; all must give the same N]:N:' \
            '--at-least=[keep the lock closed for so long after it was taken, even if CMD ends earlier]:DUR:' \
            '--period=[for the crontab of several hosts: run CMD at most once in each period of this length; see above]:DUR:' \
            '(- *)'{-h,--help}'[show help]' \
            '1:NAME:_holdfast_locks' \
            '*:::command:_normal'
        ;;
    once)
        _arguments -s -S \
            '--keep=[how long a success counts, from the end of CMD; required]:DUR:' \
            '--store=[where the locks are, such as sqlite:PATH; default: HOLDFAST_STORE, or an SQLite file in your state directory]:URL:' \
            '(-n --nonblock)'{-n,--nonblock}'[do not wait if the lock is held]' \
            '(-w --wait)'{-w,--wait=}'[wait at most so long for the lock, such as 30s or 1.5 (seconds); 0 does not wait; default: for ever]:DUR:' \
            '--ttl=[how long others wait for the lock if this host dies; default: 30s]:DUR:' \
            '--meta=[tell whoever asks who holds the lock]:TEXT:' \
            '(-E --busy-code)'{-E,--busy-code=}'[exit with CODE instead of 75 if the lock is held]:CODE:' \
            '--busy-ok[exit with 0, and silently, if the lock is held]' \
            '--max-hold=[end CMD after it has held the lock for so long]:DUR:' \
            '--grace=[how long before the lock is lost CMD is asked to end; less than half of the TTL; default: a sixth, at most 10s]:DUR:' \
            '--signal=[the signal to end the job with, if the lock is about to be lost; default: TERM]:SIG:(TERM INT HUP QUIT USR1 USR2 ABRT KILL)' \
            '--on-lost=[what to do if the lock is lost: term (signal, then kill), kill (at once), or warn (let it run on, which is safe only if tokens are checked)]:HOW:(term kill warn)' \
            '(-c --command)'{-c,--command=}'[run SCRIPT with a shell (/bin/sh -c); what follows "--" are its arguments]:SCRIPT:' \
            '--json[write events as JSON lines to stderr instead of sentences]' \
            '--json-fd=[write events as JSON lines to file descriptor N]:N:' \
            '(-v --verbose)'{-v,--verbose}'[say how long it waited, and more]' \
            '(-q --quiet)'{-q,--quiet}'[say nothing; the exit code tells]' \
            '(- *)'{-h,--help}'[show help]' \
            '1:NAME:_holdfast_locks' \
            '*:::command:_normal'
        ;;
    ls)
        _arguments -s -S \
            '--store=[where the locks are, such as sqlite:PATH; default: HOLDFAST_STORE, or an SQLite file in your state directory]:URL:' \
            '--json[print a line of JSON for each lock]' \
            '--names[print the names only]' \
            '(- *)'{-h,--help}'[show help]' \
            '1::PREFIX:_holdfast_locks'
        ;;
    show)
        _arguments -s -S \
            '--store=[where the locks are, such as sqlite:PATH; default: HOLDFAST_STORE, or an SQLite file in your state directory]:URL:' \
            '--json[print a line of JSON]' \
            '(- *)'{-h,--help}'[show help]' \
            '1:NAME:_holdfast_locks'
        ;;
    watch)
        _arguments -s -S \
            '--store=[where the locks are, such as sqlite:PATH; default: HOLDFAST_STORE, or an SQLite file in your state directory]:URL:' \
            '--interval=[how often to look; default: 1s]:DUR:' \
            '--json[print the list as a line of JSON each time]' \
            '(- *)'{-h,--help}'[show help]' \
            '1::PREFIX:_holdfast_locks'
        ;;
    break)
        _arguments -s -S \
            '--store=[where the locks are, such as sqlite:PATH; default: HOLDFAST_STORE, or an SQLite file in your state directory]:URL:' \
            '--id=[which grant, as holdfast show prints it; required]:ID:' \
            '(- *)'{-h,--help}'[show help]' \
            '1:NAME:_holdfast_locks'
        ;;
    acquire)
        _arguments -s -S \
            '--store=[where the locks are, such as sqlite:PATH; default: HOLDFAST_STORE, or an SQLite file in your state directory]:URL:' \
            '(-n --nonblock)'{-n,--nonblock}'[do not wait if the lock is held]' \
            '(-w --wait)'{-w,--wait=}'[wait at most so long for the lock, such as 30s or 1.5 (seconds); 0 does not wait; default: for ever]:DUR:' \
            '--ttl=[how long the lock is held unless it is renewed; default: 1m]:DUR:' \
            '--meta=[tell whoever asks who holds the lock]:TEXT:' \
            '(-s --shared)'{-s,--shared}'[hold the lock together with others who say --shared, as readers do]' \
            '--slots=[at most N hold the lock at a time; all must give the same N]:N:' \
            '--json[print a line of JSON instead]' \
            '(- *)'{-h,--help}'[show help]' \
            '1:NAME:_holdfast_locks'
        ;;
    renew)
        _arguments -s -S \
            '--store=[where the locks are, such as sqlite:PATH; default: HOLDFAST_STORE, or an SQLite file in your state directory]:URL:' \
            '--id=[which grant, as acquire printed it; required]:ID:' \
            '--ttl=[how long the lock is held from now on; default: 1m]:DUR:' \
            '--json[print a line of JSON instead]' \
            '(- *)'{-h,--help}'[show help]' \
            '1:NAME:_holdfast_locks'
        ;;
    release)
        _arguments -s -S \
            '--store=[where the locks are, such as sqlite:PATH; default: HOLDFAST_STORE, or an SQLite file in your state directory]:URL:' \
            '--id=[which grant, as acquire printed it; required]:ID:' \
            '(- *)'{-h,--help}'[show help]' \
            '1:NAME:_holdfast_locks'
        ;;
    version)
        _arguments -s -S \
            '(- *)'{-h,--help}'[show help]'
        ;;
    completion)
        _arguments -s -S \
            '(- *)'{-h,--help}'[show help]' \
            '1:SHELL:(bash zsh fish powershell)'
        ;;
    man)
        _arguments -s -S \
            '(- *)'{-h,--help}'[show help]' \
            '1::DIR:_files -/'
        ;;
    help)
        _arguments -s -S \
            '(- *)'{-h,--help}'[show help]' \
            '1::COMMAND:'
        ;;
    esac
}

if [[ $funcstack[1] == _holdfast ]]; then
    _holdfast "$@"
else
    compdef _holdfast holdfast
fi
