-- The file of the SQLite store. Times are nanoseconds on the clock of sqlite_linux.go or
-- sqlite_other.go.

CREATE TABLE meta (
	one   INTEGER PRIMARY KEY CHECK (one = 1),
	clock TEXT    NOT NULL, -- under which boot id the file was last opened
	base  INTEGER NOT NULL, -- the token that belongs to time 0 of that clock; it grows by one a microsecond
	low   INTEGER NOT NULL, -- tokens up to this one are used up, whatever the clock says
	high  INTEGER NOT NULL, -- no token above this one was ever granted
	sweep TEXT    NOT NULL, -- where the next to open goes on looking for what has expired
	seen  INTEGER NOT NULL  -- a late reading of the clock, at most a second before the last write
) STRICT;

-- A name in use has a row here, so that a name without one is free: taking a free name is
-- one insert. The row carries a grant if id is not null. The others are in holders, and
-- whoever waits is in waiters; crowd tells whether there is any of either.
CREATE TABLE names (
	name   TEXT PRIMARY KEY,
	crowd  INTEGER NOT NULL DEFAULT 0,
	id     BLOB,
	mode   INTEGER NOT NULL DEFAULT 0,
	weight INTEGER NOT NULL DEFAULT 0,
	lim    INTEGER NOT NULL DEFAULT 0,
	token  INTEGER NOT NULL DEFAULT 0, -- first of the newest block
	tokens INTEGER NOT NULL DEFAULT 0,
	since  INTEGER NOT NULL DEFAULT 0,
	until  INTEGER NOT NULL DEFAULT 0, -- over from then on
	state  INTEGER NOT NULL DEFAULT 0, -- held, done or cooling
	wall   INTEGER NOT NULL DEFAULT 0, -- of a closure: its end on the wall clock, for after a reboot
	owner  TEXT NOT NULL DEFAULT '',
	meta   TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

CREATE TABLE holders (
	name   TEXT    NOT NULL,
	id     BLOB    NOT NULL,
	mode   INTEGER NOT NULL,
	weight INTEGER NOT NULL,
	lim    INTEGER NOT NULL,
	token  INTEGER NOT NULL,
	tokens INTEGER NOT NULL,
	since  INTEGER NOT NULL,
	until  INTEGER NOT NULL,
	state  INTEGER NOT NULL,
	wall   INTEGER NOT NULL,
	owner  TEXT    NOT NULL,
	meta   TEXT    NOT NULL,
	PRIMARY KEY (name, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE waiters (
	name   TEXT    NOT NULL,
	seq    INTEGER NOT NULL, -- order of arrival
	id     BLOB    NOT NULL,
	mode   INTEGER NOT NULL,
	weight INTEGER NOT NULL,
	lim    INTEGER NOT NULL,
	joined INTEGER NOT NULL,
	until  INTEGER NOT NULL, -- dropped from then on unless it asks again
	wake   TEXT    NOT NULL, -- address to push to; empty if it cannot be reached
	owner  TEXT    NOT NULL,
	meta   TEXT    NOT NULL,
	PRIMARY KEY (name, seq)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX waiters_by_id ON waiters (name, id);
