-- The schema of the SQLite store. Times are nanoseconds on the clock of clock_linux.go or
-- clock_other.go.
--
-- The version is in PRAGMA user_version. A later version that changes a table must also rename the
-- table names. Then the statements of this version fail, even in programs that have the file open.

CREATE TABLE meta (
	one   INTEGER PRIMARY KEY CHECK (one = 1),
	clock TEXT    NOT NULL, -- boot ID under which the file was last opened
	base  INTEGER NOT NULL, -- token for time 0 of that clock; tokens grow by one per microsecond
	low   INTEGER NOT NULL, -- highest token that must not be issued again, whatever the clock says
	high  INTEGER NOT NULL, -- no token above this one was ever issued
	sweep TEXT    NOT NULL, -- last name that Open has swept
	seen  INTEGER NOT NULL  -- reading of the clock, at most a second before the last write
) STRICT;

-- Every name in use has a row here. So taking a free name is one insert. The row contains a
-- grant if id is not null. Further grants are in holders, and waiters are in waiters; crowd is
-- 1 if the name has rows in either table.
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
	until  INTEGER NOT NULL DEFAULT 0, -- ends at this time
	state  INTEGER NOT NULL DEFAULT 0, -- held, done or cooling
	wall   INTEGER NOT NULL DEFAULT 0, -- end of a kept record on the wall clock, needed after a reboot
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

-- A name may have thousands of holders, so each call must get along without reading all of them.
-- The first index also has the columns for sums over the holders of a name.
CREATE INDEX holders_by_until ON holders (name, until, weight, state);
CREATE INDEX holders_by_since ON holders (name, since);

CREATE TABLE waiters (
	name   TEXT    NOT NULL,
	seq    INTEGER NOT NULL, -- order of arrival
	id     BLOB    NOT NULL,
	mode   INTEGER NOT NULL,
	weight INTEGER NOT NULL,
	lim    INTEGER NOT NULL,
	joined INTEGER NOT NULL,
	until  INTEGER NOT NULL, -- removed at this time unless it asks again
	wake   TEXT    NOT NULL, -- address to push to; empty if there is none
	owner  TEXT    NOT NULL,
	meta   TEXT    NOT NULL,
	PRIMARY KEY (name, seq)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX waiters_by_id ON waiters (name, id);
