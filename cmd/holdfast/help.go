package main

// The help texts are Markdown, and the manual pages are made from them. A block that is indented
// by four spaces keeps its lines. The texts are wrapped at 80 columns.

const rootHelp = `Holdfast runs a command while it holds a lock, and shows who holds which locks.
A lock is a name in a store. Processes that use the same store and the same
name wait for each other.

    holdfast run nightly-backup -- ./backup.sh

Stores:

    sqlite:PATH
        a file, for processes on one host
    redis://[USER:PASSWORD@]HOST[:PORT][/DB]
        a Redis server; rediss:// uses TLS
    redis+sentinel://HOST,HOST,.../NAME[/DB]
        Redis with Sentinel; rediss+sentinel:// uses TLS
    redis+cluster://HOST,HOST,...
        Redis Cluster; rediss+cluster:// uses TLS
    quorum+redis://HOST,HOST,HOST...
        a majority of independent Redis servers; quorum+rediss:// uses TLS
    etcd://[USER:PASSWORD@]HOST,HOST,...[/PREFIX]
        etcd; etcds:// uses TLS
    zk://[USER:PASSWORD@]HOST,HOST,...[/ROOT]
        ZooKeeper; zks:// uses TLS
    mysql://[USER:PASSWORD@]HOST[:PORT]/DATABASE
        MySQL or MariaDB; tls=true in the URL uses TLS
    postgres://[USER:PASSWORD@]HOST[:PORT]/DATABASE
        PostgreSQL, also as postgresql:; sslmode=verify-full uses TLS

Environment:

    HOLDFAST_STORE  the URL of the store, if --store is not given. Without
                    both, the store is an SQLite file for processes on one
                    host: ~/.local/state/holdfast/locks.db (see also
                    XDG_STATE_HOME), or in ~/Library/Application Support
                    on macOS, or in %LocalAppData% on Windows

` + exitCodesHelp

const exitCodesHelp = `Exit codes:

    0       success; for run and once, CMD exited with 0, or once did not
            need to run it
    64      the command line is wrong, or the store does not support the
            request; nothing was changed
    69      the store cannot be reached, refused the login, or failed
    74      the output cannot be written
    75      another holder has the lock (see also -E and --busy-ok)
    79      the lock was lost, or is no longer held
    126     CMD cannot be executed
    127     CMD was not found
    128+N   CMD was ended by signal N, or holdfast was while it waited
    others  the exit code of CMD`

const jobEnvironmentHelp = `Environment of CMD:

    HOLDFAST_NAME      the name of the lock
    HOLDFAST_TOKEN     the fencing token, a number greater than that of every
                       earlier holder
    HOLDFAST_OWNER     the holder as others see it
    HOLDFAST_ID        the identity of this grant
    HOLDFAST_DEADLINE  the time at which the lock is lost if it is not
                       renewed, in seconds since 1970; each renewal moves it,
                       but the variable keeps its first value

`
