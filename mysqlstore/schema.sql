-- Times are microseconds since 1970 on the server's clock, in UTC.
--
-- Data is what only transactions and listings need, as text: mode (1 exclusive, 2 shared, 3
-- permits), state (0 held, 1 done, 2 cooling), number of tokens of the newest block, weight, limit,
-- first token of the newest block, length of the owner in bytes, owner and meta. There is a space after
-- each number. With a column for each of them, taking and releasing a lock took 1.2 times as long.

-- A name that was used lately has a row here. It holds a grant while until is in the future.
-- Further holders of a name, and its waiters, are in the claims. The row outlives the grant for some
-- seconds, because it holds the last token of the name. The first token in the data is 0 if the
-- block ends with the last token of the name.
CREATE TABLE IF NOT EXISTS {{names}} (
	name    VARBINARY(512)  NOT NULL,
	special TINYINT         NOT NULL DEFAULT 0, -- 1 if the name has claims, plus 2 if it is closed; then only transactions change the row, but a renewal may change its until
	last    BIGINT          NOT NULL DEFAULT 0, -- tokens granted later are greater
	id      BINARY(16)      NOT NULL DEFAULT '',
	since   BIGINT          NOT NULL DEFAULT 0,
	until   BIGINT          NOT NULL DEFAULT 0,
	data    VARBINARY(2200) NOT NULL DEFAULT '',
	PRIMARY KEY (name)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

-- Only a transaction that has locked the row of the name writes these, but a waiter may raise its until.
CREATE TABLE IF NOT EXISTS {{claims}} (
	name  VARBINARY(512)  NOT NULL,
	seq   BIGINT          NOT NULL,           -- place of a waiter in the order of arrival; 0 for a holder; -1 for a request that has left and may arrive late
	id    BINARY(16)      NOT NULL,
	since BIGINT          NOT NULL,
	until BIGINT          NOT NULL,           -- a waiter is removed at this time unless it asks again
	rung  TINYINT         NOT NULL DEFAULT 0, -- a waiter that should ask again
	data  VARBINARY(2200) NOT NULL DEFAULT '',
	PRIMARY KEY (name, seq, id)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

CREATE TABLE IF NOT EXISTS {{meta}} (
	one        TINYINT NOT NULL,
	version    INT     NOT NULL, -- of these tables
	compatible INT     NOT NULL, -- programs of an older version must no longer grant locks
	low        BIGINT  NOT NULL, -- names without a row get greater tokens
	swept      BIGINT  NOT NULL, -- when unused rows were last removed
	PRIMARY KEY (one)
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC;

INSERT INTO {{meta}} (one, version, compatible, low, swept) VALUES (1, 1, 1, 0, 0)
	ON DUPLICATE KEY UPDATE one = 1;
