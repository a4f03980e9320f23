-- Holdfast for PostgreSQL, schema version 1. Programs call the functions whose names end in _v1, and
-- nothing else. A later version keeps the functions of the version before it, rewritten for its own tables,
-- so that programs of two versions exclude each other.
--
-- Times are microseconds since 1970 by the clock of the server, and so are tokens.

-- CREATE SCHEMA IF NOT EXISTS would need the right to create schemas, even if the schema exists.
DO $$ BEGIN
	IF pg_catalog.to_regnamespace({{literal}}) IS NULL THEN
		CREATE SCHEMA {{schema}};
	END IF;
END $$;
SET LOCAL search_path = {{schema}}, pg_temp;

-- There is one row for the whole schema.
CREATE TABLE meta (
	one     boolean PRIMARY KEY DEFAULT true CHECK (one),
	version integer NOT NULL,
	floor   bigint NOT NULL DEFAULT 0 -- tokens that names without a row had are at most this
);
INSERT INTO meta (version) VALUES (1);

-- There is one row for each name in use, and for some seconds longer. Updates change no indexed column and
-- find room on the page, so they are HOT updates: they add no index entries and need no vacuum.
CREATE TABLE names (
	name    text COLLATE "C" PRIMARY KEY,
	highest bigint NOT NULL,                 -- highest token of the name
	used    bigint NOT NULL,                 -- time of the last change
	crowd   boolean NOT NULL DEFAULT false,  -- there may be rows in holders, waiters or ended

	id      uuid,     -- the exclusive grant or its kept record; NULL if there is none
	state   smallint,
	token   bigint,
	tokens  integer,
	since   bigint,
	until   bigint,
	owner   text,
	meta    text
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_cost_delay = 0);

-- holders contains shared grants and permits, and their kept records.
CREATE TABLE holders (
	name   text COLLATE "C" NOT NULL,
	id     uuid NOT NULL,
	mode   smallint NOT NULL,
	weight integer NOT NULL,
	lim    integer NOT NULL,
	state  smallint NOT NULL,
	token  bigint NOT NULL,
	tokens integer NOT NULL,
	since  bigint NOT NULL,
	until  bigint NOT NULL,
	owner  text NOT NULL,
	meta   text NOT NULL,
	PRIMARY KEY (name, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_cost_delay = 0);

-- waiters contains the queued requests. If a crash or a failover empties it, waiters queue again.
CREATE UNLOGGED TABLE waiters (
	name   text COLLATE "C" NOT NULL,
	seq    bigint NOT NULL,
	id     uuid NOT NULL,
	mode   smallint NOT NULL,
	weight integer NOT NULL,
	lim    integer NOT NULL,
	joined bigint NOT NULL,
	until  bigint NOT NULL,
	wake   text NOT NULL, -- the channel on which its client listens; empty if it polls
	owner  text NOT NULL,
	meta   text NOT NULL,
	PRIMARY KEY (name, seq),
	UNIQUE (name, id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
	autovacuum_vacuum_cost_delay = 0);

-- Identities that released or left a name while one of their requests had no reply. Such a
-- request may arrive later and must not be granted, because no client would know of the grant.
CREATE UNLOGGED TABLE ended (
	name  text COLLATE "C" NOT NULL,
	id    uuid NOT NULL,
	until bigint NOT NULL,
	PRIMARY KEY (name, id)
);

-- now_us returns the time. It uses date_part, because extract computes with numeric, which is slower.
CREATE FUNCTION now_us() RETURNS bigint LANGUAGE sql VOLATILE AS
	$$ SELECT (date_part('epoch', pg_catalog.clock_timestamp()) * 1000000)::bigint $$;

-- An entry is what call_v1 knows about a name. The exclusive holder excludes all others, so there
-- is either an exclusive holder or rows in holders. Those rows all have the same mode and limit.
CREATE TYPE entry AS (
	name    text,
	at      bigint,   -- the time of the call
	fresh   boolean,  -- this call added the row in names
	highest bigint,
	crowd   boolean,
	id      uuid,     -- the exclusive holder
	state   smallint,
	until   bigint,   -- when the exclusive holder or the first of the others expires
	others  integer,  -- rows in holders
	kept    boolean,  -- one of the holders is a kept record
	mode    smallint, -- of the others
	lim     integer,
	weight  bigint,
	waiters integer,
	freed   boolean   -- the first waiter may be granted now, or must be told
);

-- load locks the row of a name, reads it, and removes its expired holders and waiters. Only roles with
-- rights to the table can lock it. Every call does so before it reads or changes anything else of the name.
CREATE FUNCTION load(a_name text) RETURNS entry LANGUAGE plpgsql AS $$
DECLARE
	e   entry;
	due bigint;
BEGIN
	e.name := a_name;
	e.fresh := false;
	e.freed := false;
	e.others := 0;
	e.weight := 0;
	e.kept := false;
	e.waiters := 0;
	LOOP
		SELECT n.highest, n.crowd, n.id, n.state, n.until INTO e.highest, e.crowd, e.id, e.state, e.until
			FROM names n WHERE n.name = a_name FOR UPDATE;
		EXIT WHEN FOUND;
		INSERT INTO names (name, highest, used) VALUES (a_name, (SELECT m.floor FROM meta m WHERE m.one), now_us())
			ON CONFLICT (name) DO NOTHING;
		IF FOUND THEN
			e.fresh := true;
			-- The statement above may have waited for a sweep of this name, which raised the floor.
			UPDATE names n SET highest = m.floor FROM meta m WHERE n.name = a_name AND m.one AND m.floor > n.highest;
		END IF;
	END LOOP;
	e.at := now_us(); -- after the lock was granted
	IF e.id IS NULL THEN
		e.until := NULL;
	ELSIF e.until <= e.at THEN
		UPDATE names n SET id = NULL, used = e.at WHERE n.name = a_name;
		e.id := NULL;
		e.until := NULL;
		e.freed := true;
	ELSE
		e.kept := e.state <> 0;
	END IF;
	IF NOT e.crowd THEN
		RETURN e;
	END IF;
	DELETE FROM holders h WHERE h.name = a_name AND h.until <= e.at;
	e.freed := e.freed OR FOUND;
	SELECT count(*), min(w.until) INTO e.waiters, due FROM waiters w WHERE w.name = a_name;
	IF due <= e.at THEN
		DELETE FROM waiters w WHERE w.name = a_name AND w.until <= e.at;
		SELECT count(*) INTO e.waiters FROM waiters w WHERE w.name = a_name;
		e.freed := true;
	END IF;
	e := count_others(e);
	RETURN e;
END $$;

CREATE FUNCTION count_others(e entry) RETURNS entry LANGUAGE plpgsql AS $$
BEGIN
	SELECT count(*), coalesce(sum(h.weight), 0), coalesce(bool_or(h.state <> 0), e.id IS NOT NULL AND e.state <> 0),
			max(h.mode), max(h.lim), coalesce(min(h.until), CASE WHEN e.id IS NOT NULL THEN e.until END)
		INTO e.others, e.weight, e.kept, e.mode, e.lim, e.until FROM holders h WHERE h.name = e.name;
	RETURN e;
END $$;

CREATE FUNCTION admits(e entry, a_mode smallint, a_weight integer, a_lim integer) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
	IF e.id IS NOT NULL THEN
		RETURN false;
	ELSIF e.others = 0 THEN
		RETURN true;
	ELSIF e.mode <> a_mode OR a_mode = 1 THEN
		RETURN false;
	END IF;
	RETURN a_mode = 2 OR e.weight + a_weight <= a_lim;
END $$;

-- settle ends a call that changed the holders or waiters of a name. It clears crowd if nothing needs it, and
-- wakes the first waiter if it can now be granted, or is behind a kept record, because it may give up.
CREATE FUNCTION settle(e entry, asker uuid) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
	w record;
BEGIN
	IF e.crowd AND e.others = 0 AND e.waiters = 0 THEN
		DELETE FROM ended x WHERE x.name = e.name AND x.until <= e.at;
		UPDATE names n SET crowd = false, used = e.at WHERE n.name = e.name AND NOT EXISTS (SELECT FROM ended x WHERE x.name = e.name);
	END IF;
	IF e.freed AND e.waiters > 0 THEN
		SELECT * INTO w FROM waiters q WHERE q.name = e.name ORDER BY q.seq LIMIT 1;
		IF w.id IS DISTINCT FROM asker AND w.wake <> '' AND (e.kept OR admits(e, w.mode, w.weight, w.lim)) THEN
			PERFORM pg_notify(w.wake, replace(w.id::text, '-', ''));
		END IF;
	END IF;
END $$;

-- dequeue removes a waiter and ends its Wait.
CREATE FUNCTION dequeue(e entry, a_id uuid, asker boolean) RETURNS entry LANGUAGE plpgsql AS $$
DECLARE
	w text;
BEGIN
	IF e.waiters > 0 THEN
		DELETE FROM waiters q WHERE q.name = e.name AND q.id = a_id RETURNING q.wake INTO w;
		IF FOUND THEN
			e.waiters := e.waiters - 1;
			e.freed := true;
			IF w <> '' AND NOT asker THEN
				PERFORM pg_notify(w, replace(a_id::text, '-', ''));
			END IF;
		END IF;
	END IF;
	RETURN e;
END $$;

-- note_end records for a minute that a later request of an identity must not be granted. It also removes
-- expired records, because settle does not do so while the name is in use.
CREATE FUNCTION note_end(a_name text, a_id uuid, a_at bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	UPDATE names n SET crowd = true, used = a_at WHERE n.name = a_name;
	DELETE FROM ended x WHERE x.name = a_name AND x.until <= a_at;
	INSERT INTO ended VALUES (a_name, a_id, a_at + 60000000) ON CONFLICT (name, id) DO UPDATE SET until = excluded.until;
END $$;

-- An outcome is the result of a call.
CREATE TYPE outcome AS (
	status  integer, -- 0 done, 1 refused, 2 not held, 3 another claim of that identity, 4 other uses, 5 no tokens left, 6 not exclusive, 7 no such change of mode, 8 ended, 9 locked by another session
	token   bigint,
	tokens  integer,
	waiters integer,
	place   integer,
	again   bigint,  -- microseconds
	mode    integer, -- the conflicting mode, weight and limit, for 3, 4 and 6
	weight  integer,
	lim     integer,
	holders json,
	fresh   boolean  -- a row was added to names
);

-- max_token returns the greatest token. Tokens are exact in a float64.
CREATE FUNCTION max_token() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT 9007199254740991::bigint $$;

CREATE FUNCTION acquire(a_name text, a_id uuid, a_mode smallint, a_weight integer, a_lim integer, a_ttl bigint, a_tokens integer,
	a_floor bigint, a_queue boolean, a_owner text, a_meta text, a_wake text, a_heartbeat bigint) RETURNS outcome LANGUAGE plpgsql AS $$
DECLARE
	e     entry := load(a_name);
	o     outcome;
	w     record;
	g     record;
	other record;
	ended boolean := false; -- this identity has a kept record, so it must not be granted again
	fits  boolean;
	own   bigint; -- seq of this waiter
	front bigint; -- of the first one
BEGIN
	o.status := 0;
	IF e.fresh THEN
		o.fresh := true;
	END IF;
	IF e.crowd AND EXISTS (SELECT FROM ended x WHERE x.name = a_name AND x.id = a_id AND x.until > e.at) THEN
		o.status := 8;
		PERFORM settle(e, a_id);
		RETURN o;
	END IF;
	-- A repeated request of the same identity returns the same grant.
	IF e.id = a_id OR e.others > 0 THEN
		SELECT 1 AS mode, 1 AS weight, 0 AS lim, n.state, n.token, n.tokens INTO g FROM names n WHERE n.name = a_name AND n.id = a_id
			UNION ALL SELECT h.mode, h.weight, h.lim, h.state, h.token, h.tokens FROM holders h WHERE h.name = a_name AND h.id = a_id;
		IF FOUND AND g.state = 0 THEN
			IF g.mode <> a_mode OR a_mode = 3 AND (g.weight <> a_weight OR g.lim <> a_lim) THEN
				o.status := 3;
				o.mode := g.mode;
				o.weight := g.weight;
				o.lim := g.lim;
			ELSE
				UPDATE names n SET until = e.at + a_ttl, used = e.at WHERE n.name = a_name AND n.id = a_id;
				UPDATE holders h SET until = e.at + a_ttl WHERE h.name = a_name AND h.id = a_id;
				o.token := g.token;
				o.tokens := g.tokens;
				o.waiters := e.waiters;
			END IF;
			PERFORM settle(e, a_id);
			RETURN o;
		END IF;
		ended := FOUND;
	END IF;
	IF e.waiters > 0 THEN
		SELECT * INTO w FROM waiters q WHERE q.name = a_name AND q.id = a_id;
		own := w.seq;
		IF FOUND AND (w.mode <> a_mode OR a_mode = 3 AND (w.weight <> a_weight OR w.lim <> a_lim)) THEN
			o.status := 3;
			o.mode := w.mode;
			o.weight := w.weight;
			o.lim := w.lim;
		END IF;
	END IF;
	IF o.status = 0 AND a_mode <> 1 THEN
		SELECT h.mode, h.lim INTO other FROM holders h WHERE h.name = a_name AND (h.mode <> a_mode OR h.lim <> a_lim)
			UNION ALL SELECT q.mode, q.lim FROM waiters q WHERE q.name = a_name AND q.mode <> 1 AND (q.mode <> a_mode OR q.lim <> a_lim) LIMIT 1;
		IF FOUND THEN
			o.status := 4;
			o.mode := other.mode;
			o.lim := other.lim;
		END IF;
	END IF;
	IF o.status <> 0 THEN
		PERFORM settle(dequeue(e, a_id, true), a_id);
		RETURN o;
	END IF;

	fits := NOT ended AND admits(e, a_mode, a_weight, a_lim);
	IF e.waiters > 0 THEN
		SELECT q.seq INTO front FROM waiters q WHERE q.name = a_name ORDER BY q.seq LIMIT 1;
	END IF;
	IF NOT fits OR front IS DISTINCT FROM own THEN
		RETURN refuse(e, o, fits, own, a_id, a_mode, a_weight, a_lim, a_queue, a_owner, a_meta, a_wake, a_heartbeat);
	END IF;

	o.token := greatest(e.highest + 1, e.at, a_floor + 1);
	IF o.token > max_token() THEN
		o.status := 5;
		PERFORM settle(dequeue(e, a_id, true), a_id);
		RETURN o;
	END IF;
	o.tokens := least(a_tokens, max_token() - o.token + 1);
	e := dequeue(e, a_id, true);
	o.waiters := e.waiters;
	IF a_mode = 1 THEN
		UPDATE names n SET highest = o.token + o.tokens - 1, used = e.at, id = a_id, state = 0, token = o.token, tokens = o.tokens,
			since = e.at, until = e.at + a_ttl, owner = a_owner, meta = a_meta WHERE n.name = a_name;
		e.id := a_id;
		e.state := 0;
	ELSE
		UPDATE names n SET highest = o.token + o.tokens - 1, used = e.at, crowd = true WHERE n.name = a_name;
		INSERT INTO holders VALUES (a_name, a_id, a_mode, a_weight, a_lim, 0, o.token, o.tokens, e.at, e.at + a_ttl, a_owner, a_meta);
		e.crowd := true;
		e := count_others(e);
	END IF;
	PERFORM settle(e, a_id);
	RETURN o;
END $$;

-- refuse queues a request if it asks for that, and returns why it was not granted.
CREATE FUNCTION refuse(e entry, o outcome, fits boolean, a_seq bigint, a_id uuid, a_mode smallint, a_weight integer, a_lim integer,
	a_queue boolean, a_owner text, a_meta text, a_wake text, a_heartbeat bigint) RETURNS outcome LANGUAGE plpgsql AS $$
DECLARE
	front integer;
	due   bigint;
BEGIN
	o.status := 1;
	IF NOT fits THEN
		SELECT json_agg(x) INTO o.holders FROM (SELECT * FROM holders_of(e.name, e.at) LIMIT 16) x;
	END IF;
	IF a_queue THEN
		IF a_seq IS NOT NULL THEN
			UPDATE waiters q SET until = e.at + a_heartbeat + 1, wake = a_wake, owner = a_owner, meta = a_meta
				WHERE q.name = e.name AND q.seq = a_seq;
		ELSE
			SELECT coalesce(max(q.seq), 0) + 1 INTO a_seq FROM waiters q WHERE q.name = e.name;
			INSERT INTO waiters VALUES (e.name, a_seq, a_id, a_mode, a_weight, a_lim, e.at, e.at + a_heartbeat + 1, a_wake, a_owner, a_meta);
			e.waiters := e.waiters + 1;
			IF NOT e.crowd THEN
				UPDATE names n SET crowd = true, used = e.at WHERE n.name = e.name;
				e.crowd := true;
			END IF;
		END IF;
	ELSE
		e := dequeue(e, a_id, true);
	END IF;
	SELECT count(*), min(q.until) INTO front, due FROM waiters q WHERE q.name = e.name AND (NOT a_queue OR q.seq < a_seq);
	o.waiters := e.waiters;
	o.again := a_heartbeat * 2 / 5;
	IF a_queue THEN
		o.waiters := e.waiters - 1;
		o.place := front + 1;
	END IF;
	IF front = 0 THEN
		due := e.until;
	END IF;
	o.again := greatest(1000, least(o.again, coalesce(due - e.at, o.again)));
	PERFORM settle(e, a_id);
	RETURN o;
END $$;

-- holders_of lists the live holders of a name, the oldest first.
CREATE FUNCTION holders_of(a_name text, a_at bigint) RETURNS TABLE (id text, mode integer, weight integer, lim integer, token bigint,
	state integer, age bigint, rest bigint, owner text, meta text) LANGUAGE sql STABLE AS $$
	SELECT replace(n.id::text, '-', ''), 1, 1, 0, n.token, n.state::integer, a_at - n.since, n.until - a_at, n.owner, n.meta
		FROM names n WHERE n.name = a_name AND n.id IS NOT NULL AND n.until > a_at
	UNION ALL SELECT replace(h.id::text, '-', ''), h.mode, h.weight, h.lim, h.token, h.state, a_at - h.since, h.until - a_at, h.owner, h.meta
		FROM holders h WHERE h.name = a_name AND h.until > a_at
	ORDER BY 7 DESC, 5 $$;

CREATE FUNCTION waiters_of(a_name text, a_at bigint) RETURNS TABLE (id text, mode integer, weight integer, lim integer, age bigint,
	owner text, meta text) LANGUAGE sql STABLE AS $$
	SELECT replace(w.id::text, '-', ''), w.mode, w.weight, w.lim, a_at - w.joined, w.owner, w.meta
		FROM waiters w WHERE w.name = a_name AND w.until > a_at ORDER BY w.seq $$;

-- drop_holder ends a grant or a kept record of an identity. A negative state matches both.
CREATE FUNCTION drop_holder(e entry, a_id uuid, a_state smallint) RETURNS entry LANGUAGE plpgsql AS $$
BEGIN
	IF e.id = a_id AND (a_state < 0 OR e.state = a_state) THEN
		UPDATE names n SET id = NULL, used = e.at WHERE n.name = e.name;
		e.id := NULL;
		e.until := NULL;
		e.kept := false;
		e.freed := true;
	ELSIF e.others > 0 THEN
		DELETE FROM holders h WHERE h.name = e.name AND h.id = a_id AND (a_state < 0 OR h.state = a_state);
		IF FOUND THEN
			e.freed := true;
			e := count_others(e);
		END IF;
	END IF;
	RETURN e;
END $$;

-- end_grant is for Break, for Leave, which also removes a waiter, and for a release of a crowded name.
CREATE FUNCTION end_grant(a_name text, a_id uuid, a_state smallint, a_leave boolean) RETURNS outcome LANGUAGE plpgsql AS $$
DECLARE
	e entry := load(a_name);
	o outcome;
	n integer := e.others;
	h uuid := e.id;
BEGIN
	e := drop_holder(e, a_id, a_state);
	o.status := CASE WHEN e.others = n AND e.id IS NOT DISTINCT FROM h AND NOT a_leave THEN 2 ELSE 0 END;
	IF a_leave THEN
		e := dequeue(e, a_id, false);
	END IF;
	PERFORM settle(e, a_id);
	RETURN o;
END $$;

-- keep turns a grant into a record that keeps its name closed.
CREATE FUNCTION keep(a_name text, a_id uuid, a_state smallint, a_for bigint) RETURNS outcome LANGUAGE plpgsql AS $$
DECLARE
	e entry := load(a_name);
	o outcome;
	w record;
BEGIN
	o.status := 0;
	IF e.id = a_id AND e.state = 0 THEN
		UPDATE names n SET state = a_state, since = e.at, until = e.at + a_for, used = e.at WHERE n.name = a_name;
		e.state := a_state;
		e.kept := true;
	ELSE
		SELECT h.mode INTO o.mode FROM holders h WHERE h.name = a_name AND h.id = a_id AND h.state = 0;
		IF NOT FOUND THEN
			o.status := 2;
			-- The call may be repeated, after one that did not wait for a standby until the end. The
			-- caller then looks for the record, which must not get lost: this commit waits again.
			UPDATE names n SET used = e.at WHERE n.name = a_name AND e.kept;
			PERFORM settle(e, a_id);
			RETURN o;
		ELSIF a_state = 1 THEN
			o.status := 6;
			PERFORM settle(e, a_id);
			RETURN o;
		END IF;
		UPDATE holders h SET state = a_state, since = e.at, until = e.at + a_for WHERE h.name = a_name AND h.id = a_id;
		e := count_others(e);
	END IF;
	e.freed := true;
	IF a_state = 1 THEN -- all waiters must be told that the work is done
		FOR w IN SELECT q.id, q.wake FROM waiters q WHERE q.name = a_name AND q.wake <> '' LOOP
			PERFORM pg_notify(w.wake, replace(w.id::text, '-', ''));
		END LOOP;
	END IF;
	PERFORM settle(e, a_id);
	RETURN o;
END $$;

-- renew is for renewals that the short path could not make.
CREATE FUNCTION renew(a_name text, a_id uuid, a_mode smallint, a_ttl bigint, a_tokens integer, a_floor bigint) RETURNS outcome LANGUAGE plpgsql AS $$
DECLARE
	e entry := load(a_name);
	o outcome;
	g record;
BEGIN
	o.status := 2;
	SELECT 1 AS mode INTO g FROM names n WHERE n.name = a_name AND n.id = a_id AND n.state = 0
		UNION ALL SELECT h.mode FROM holders h WHERE h.name = a_name AND h.id = a_id AND h.state = 0;
	IF NOT FOUND THEN
		PERFORM settle(e, a_id);
		RETURN o;
	END IF;
	IF g.mode <> a_mode AND NOT (g.mode = 1 AND a_mode = 2) THEN
		o.status := 7;
		o.mode := g.mode;
		PERFORM settle(e, a_id);
		RETURN o;
	END IF;
	o.status := 0;
	IF g.mode <> a_mode THEN -- steps down
		INSERT INTO holders SELECT n.name, n.id, 2, 1, 0, 0, n.token, n.tokens, n.since, n.until, n.owner, n.meta
			FROM names n WHERE n.name = a_name;
		UPDATE names n SET id = NULL, crowd = true WHERE n.name = a_name;
		e.id := NULL;
		e.crowd := true;
		e.freed := true;
	END IF;
	o.tokens := 0;
	e.highest := greatest(e.highest, a_floor);
	IF a_tokens > 0 AND e.waiters = 0 THEN
		o.token := greatest(e.highest + 1, e.at);
		IF o.token <= max_token() THEN
			o.tokens := least(a_tokens, max_token() - o.token + 1);
			e.highest := o.token + o.tokens - 1;
		END IF;
	END IF;
	UPDATE names n SET highest = e.highest, used = e.at,
			until = CASE WHEN n.id = a_id THEN e.at + a_ttl ELSE n.until END,
			token = CASE WHEN n.id = a_id AND o.tokens > 0 THEN o.token ELSE n.token END,
			tokens = CASE WHEN n.id = a_id AND o.tokens > 0 THEN o.tokens ELSE n.tokens END
		WHERE n.name = a_name;
	UPDATE holders h SET until = e.at + a_ttl,
			token = CASE WHEN o.tokens > 0 THEN o.token ELSE h.token END,
			tokens = CASE WHEN o.tokens > 0 THEN o.tokens ELSE h.tokens END
		WHERE h.name = a_name AND h.id = a_id;
	PERFORM settle(count_others(e), a_id);
	RETURN o;
END $$;

-- sweep removes up to a_limit names after a_after that were not used for some seconds. It returns the name
-- after which to continue, or an empty text at the end. A name whose tokens are more than a day ahead of the
-- clock, because a caller requested a high floor, keeps its row: otherwise the floor of the schema would
-- raise the tokens of all other names. It does not wait for rows that other sessions have locked.
CREATE FUNCTION sweep(a_after text, a_limit integer) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
	n      record;
	at     bigint := now_us();
	last   text;
	looked integer;
	top    bigint;
BEGIN
	PERFORM FROM meta m WHERE m.one FOR UPDATE SKIP LOCKED;
	IF NOT FOUND THEN
		RETURN a_after; -- another call sweeps
	END IF;
	SELECT count(*), max(p.name) INTO looked, last FROM (SELECT m.name FROM names m WHERE m.name > a_after ORDER BY m.name LIMIT a_limit) p;
	FOR n IN SELECT m.name, m.id FROM names m WHERE m.name > a_after AND m.name <= last AND m.crowd AND abs(at - m.used) >= 5000000
		AND (m.id IS NULL OR m.until <= at) FOR UPDATE SKIP LOCKED LOOP
		IF NOT blocked(n.name, NULL) THEN
			PERFORM settle(load(n.name), n.id);
		END IF;
	END LOOP;
	WITH removed AS (
		DELETE FROM names d WHERE d.ctid = ANY (ARRAY(
			SELECT m.ctid FROM names m WHERE m.name > a_after AND m.name <= last AND NOT m.crowd AND abs(at - m.used) >= 5000000
				AND (m.id IS NULL OR m.until <= at) AND m.highest <= at + 86400000000 FOR UPDATE SKIP LOCKED))
		RETURNING d.highest
	) SELECT max(r.highest) INTO top FROM removed r;
	IF top > 0 THEN
		UPDATE meta m SET floor = greatest(m.floor, top) WHERE m.one;
	END IF;
	RETURN CASE WHEN looked < a_limit THEN '' ELSE last END;
END $$;

-- Entry points. They need the isolation level read committed. Under other levels, a transaction
-- does not see changes that were committed while it waited for the lock of a name.
--
-- Grants, renewals and kept records wait for the disk, even if the session has synchronous_commit = off.
-- Releases and changes of the queue do not: after a lost release there is a grant again, which ends with
-- its TTL, and everything that was committed later is lost too.
--
-- They return the outcome in JSON, or only the token of a grant, or an empty text for success. A
-- text is faster than a row, and the most frequent outcomes are short.
--
-- They set enable_seqscan = off, because the server would read a short table from end to end, and would
-- keep that plan while the table grows. So every statement needs an index. They set jit = off, because
-- compiling a statement first may take longer than a call may.
--
-- They set lock_timeout, so that a row that another session has locked for long does not keep a connection,
-- the other calls of a statement, and the rows that it has locked before. A statement with many calls on a
-- name with many waiters takes hundreds of milliseconds on a busy machine.

-- acquire_v1 makes an exclusive acquire. Its short paths are for names that nobody holds or waits for.
CREATE FUNCTION acquire_v1(a_heartbeat bigint, a_wake text, a_name text, a_id uuid, a_ttl bigint, a_tokens integer, a_floor bigint, a_queue boolean,
	a_owner text, a_meta text)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = {{schema}}, pg_temp SET enable_seqscan = off SET jit = off SET lock_timeout = 500 AS $$
DECLARE
	-- One expression is faster than several statements. The time is that before the row is locked, so
	-- a grant may end earlier by the time that it waits for the lock. It was requested even earlier.
	at  bigint := CASE
		WHEN current_setting('transaction_isolation') <> 'read committed' THEN refuse_isolation()
		WHEN current_setting('synchronous_commit') NOT IN ('off', 'local') OR wait_for_commit() IS NOT NULL THEN now_us() END;
	own bigint; -- token
BEGIN
	UPDATE names m SET token = greatest(m.highest + 1, at, a_floor + 1), tokens = a_tokens,
			highest = greatest(m.highest + 1, at, a_floor + 1) + a_tokens - 1,
			used = at, id = a_id, state = 0, since = at, until = at + a_ttl, owner = a_owner, meta = a_meta
		WHERE m.name = a_name AND m.id IS NULL AND NOT m.crowd AND greatest(m.highest, a_floor) < 9007199254740991 - a_tokens
		RETURNING m.token INTO own;
	IF FOUND THEN
		RETURN own;
	END IF;
	INSERT INTO names (name, token, tokens, highest, used, id, state, since, until, owner, meta)
		SELECT a_name, greatest(f.floor + 1, at, a_floor + 1), a_tokens, greatest(f.floor + 1, at, a_floor + 1) + a_tokens - 1,
			at, a_id, 0, at, at + a_ttl, a_owner, a_meta
		FROM meta f WHERE f.one AND greatest(f.floor, a_floor) < 9007199254740991 - a_tokens
			AND NOT EXISTS (SELECT FROM names m WHERE m.name = a_name)
		ON CONFLICT (name) DO NOTHING RETURNING token INTO own;
	IF FOUND THEN
		-- The statement may have waited for a sweep of this name, which raised the floor.
		PERFORM FROM meta f WHERE f.one AND f.floor >= own;
		IF NOT FOUND THEN
			RETURN '{"token":' || own || ',"tokens":' || a_tokens || ',"fresh":true}';
		END IF;
		DELETE FROM names m WHERE m.name = a_name;
	END IF;
	RETURN one_v1(a_heartbeat, a_wake, 1::smallint, a_name, a_id, 1::smallint, 1, 0, a_ttl, a_tokens, a_floor, a_queue, a_owner, a_meta);
END $$;

-- release_v1 is for an identity without a request in flight. Its short path is for uncontended exclusive grants.
CREATE FUNCTION release_v1(a_name text, a_id uuid)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = {{schema}}, pg_temp SET enable_seqscan = off SET jit = off SET lock_timeout = 500 AS $$
DECLARE
	at bigint := CASE
		WHEN current_setting('transaction_isolation') <> 'read committed' THEN refuse_isolation()
		WHEN set_config('synchronous_commit', 'off', true) IS NOT NULL THEN now_us() END;
BEGIN
	UPDATE names m SET id = NULL, used = at
		WHERE m.name = a_name AND m.id = a_id AND m.state = 0 AND m.until > at AND NOT m.crowd;
	IF FOUND THEN
		RETURN '';
	END IF;
	RETURN one_v1(0, '', 2::smallint, a_name, a_id, 0::smallint, 0, 0, 0, 0, 0, false, '', '');
END $$;

-- wait_for_commit makes the transaction wait for the disk and synchronous standbys. It returns the setting.
CREATE FUNCTION wait_for_commit() RETURNS text LANGUAGE sql VOLATILE AS $$
	SELECT CASE WHEN current_setting('synchronous_commit') NOT IN ('off', 'local') THEN current_setting('synchronous_commit')
		ELSE set_config('synchronous_commit', 'on', true) END $$;

CREATE FUNCTION refuse_isolation() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'locks need transactions that are read committed' USING ERRCODE = 'HF001';
END $$;

-- one_v1 makes any call: 1 acquire, 2 release, 3 leave, 4 keep, 5 renew, 6 break. A_queue says whether an
-- acquire joins the queue, and for calls that end a grant whether a request of that identity may still arrive.
CREATE FUNCTION one_v1(a_heartbeat bigint, a_wake text, a_op smallint, a_name text, a_id uuid, a_mode smallint, a_weight integer, a_lim integer,
	a_ttl bigint, a_tokens integer, a_floor bigint, a_queue boolean, a_owner text, a_meta text)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = {{schema}}, pg_temp SET enable_seqscan = off SET jit = off SET lock_timeout = 500 AS $$
DECLARE
	o    outcome;
	at   bigint := now_us();
	done text;
BEGIN
	IF current_setting('transaction_isolation') <> 'read committed' THEN
		PERFORM refuse_isolation();
	END IF;
	done := wait_for_commit(); -- an assignment is faster than PERFORM
	IF a_op = 1 THEN
		o := acquire(a_name, a_id, a_mode, a_weight, a_lim, a_ttl, a_tokens, a_floor, a_queue, a_owner, a_meta, a_wake, a_heartbeat);
		IF o.status <> 0 THEN
			done := set_config('synchronous_commit', 'off', true);
		END IF;
	ELSIF a_op IN (2, 3) THEN
		done := set_config('synchronous_commit', 'off', true);
		o := end_grant(a_name, a_id, 0::smallint, a_op = 3);
	ELSIF a_op = 4 THEN
		o := keep(a_name, a_id, a_mode, a_ttl);
	ELSIF a_op = 5 THEN
		-- The short path is for exclusive grants that need no tokens.
		IF a_tokens = 0 AND a_mode = 1 THEN
			UPDATE names m SET until = at + a_ttl, used = at, highest = greatest(m.highest, a_floor)
				WHERE m.name = a_name AND m.id = a_id AND m.state = 0 AND m.until > at;
			IF FOUND THEN
				RETURN '';
			END IF;
		END IF;
		o := renew(a_name, a_id, a_mode, a_ttl, a_tokens, a_floor);
	ELSE
		o := end_grant(a_name, a_id, (-1)::smallint, false);
	END IF;
	-- The identity has ended, unless the call was refused and the grant continues. A Break that
	-- finds no grant does not end a waiter.
	IF a_queue AND a_op <> 1 AND (o.status = 0 OR o.status = 2 AND a_op <> 6) THEN
		PERFORM note_end(a_name, a_id, at);
	END IF;
	RETURN json_strip_nulls(to_json(o));
END $$;

-- locked locks names, and returns those that other sessions have locked. A row that another session
-- has added and not committed is not visible, so it is found out by trying to add it. If a_wait is
-- true, rows that are locked only for the moment of another call are waited for, but not for long in all.
CREATE FUNCTION locked(a_names text[], a_wait boolean) RETURNS text[] LANGUAGE plpgsql SET lock_timeout = 20 AS $$
DECLARE
	busy text[] := '{}';
	late timestamptz := clock_timestamp() + interval '200 ms';
	n    text;
BEGIN
	FOREACH n IN ARRAY ARRAY(SELECT DISTINCT x FROM unnest(a_names) x ORDER BY x) LOOP
		BEGIN
			PERFORM FROM names m WHERE m.name = n FOR UPDATE SKIP LOCKED;
			IF NOT FOUND AND EXISTS (SELECT FROM names m WHERE m.name = n) THEN
				busy := busy || n;
			ELSIF NOT FOUND THEN
				PERFORM load(n);
			END IF;
		EXCEPTION WHEN lock_not_available THEN
			busy := busy || n;
		END;
	END LOOP;
	FOREACH n IN ARRAY busy LOOP
		EXIT WHEN NOT a_wait OR clock_timestamp() > late;
		BEGIN
			PERFORM FROM names m WHERE m.name = n FOR UPDATE;
			IF FOUND THEN
				busy := array_remove(busy, n);
			END IF;
		EXCEPTION WHEN lock_not_available THEN
		END;
	END LOOP;
	RETURN busy;
END $$;

-- blocked reports whether a call or a sweep, which has locked the row of its name, would wait for another one,
-- which a stranger has locked, such as an administrator who deletes a holder by hand. Every call removes what
-- has expired, or expires before the call is made.
CREATE FUNCTION blocked(a_name text, a_id uuid) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = 20 AS $$
DECLARE
	soon bigint := now_us() + 1000000;
BEGIN
	PERFORM FROM holders h WHERE h.name = a_name AND (h.id = a_id OR h.until <= soon) FOR UPDATE NOWAIT;
	PERFORM FROM waiters w WHERE w.name = a_name AND (w.id = a_id OR w.until <= soon) FOR UPDATE NOWAIT;
	PERFORM FROM ended x WHERE x.name = a_name AND (x.id = a_id OR x.until <= soon) FOR UPDATE NOWAIT;
	RETURN false;
EXCEPTION WHEN lock_not_available THEN
	RETURN true;
END $$;

-- call_v1 makes several calls in one transaction, and returns their outcomes in the same order. The calls are
-- sorted by their names, so that there are no deadlocks. If a_sweeps is not 0, it also removes unused names,
-- and the last row is the name after which to continue. If a_skip is true, it makes no calls that would wait
-- for rows that other sessions have locked.
CREATE FUNCTION call_v1(a_heartbeat bigint, a_wake text, a_skip boolean, a_sweep text, a_sweeps integer,
	a_ops smallint[], a_names text[], a_ids uuid[], a_modes smallint[], a_weights integer[], a_lims integer[], a_ttls bigint[],
	a_tokens integer[], a_floors bigint[], a_queues boolean[], a_owners text[], a_metas text[])
RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER SET search_path = {{schema}}, pg_temp SET enable_seqscan = off SET jit = off SET lock_timeout = 500 AS $$
DECLARE
	done    text;
	busy    text[];
	commits text := wait_for_commit();
	durable boolean := false;
BEGIN
	IF a_skip THEN
		busy := locked(a_names, 5 <> ANY (a_ops)); -- renewals of short TTLs have no time to wait
	END IF;
	FOR i IN 1 .. cardinality(a_ops) LOOP -- faster than a query over the arrays
		IF a_skip AND (a_names[i] = ANY (busy) OR blocked(a_names[i], a_ids[i])) THEN
			RETURN NEXT '{"status":9}';
			CONTINUE;
		ELSIF a_ops[i] = 1 AND a_modes[i] = 1 THEN
			RETURN NEXT acquire_v1(a_heartbeat, a_wake, a_names[i], a_ids[i], a_ttls[i], a_tokens[i], a_floors[i], a_queues[i], a_owners[i], a_metas[i]);
		ELSIF a_ops[i] = 2 AND NOT a_queues[i] THEN
			RETURN NEXT release_v1(a_names[i], a_ids[i]);
		ELSE
			RETURN NEXT one_v1(a_heartbeat, a_wake, a_ops[i], a_names[i], a_ids[i], a_modes[i], a_weights[i], a_lims[i], a_ttls[i], a_tokens[i],
				a_floors[i], a_queues[i], a_owners[i], a_metas[i]);
		END IF;
		IF current_setting('synchronous_commit') = commits THEN
			durable := true;
		ELSE
			done := set_config('synchronous_commit', commits, true);
		END IF;
	END LOOP;
	IF a_sweeps > 0 THEN
		RETURN NEXT sweep(a_sweep, a_sweeps);
	END IF;
	IF NOT durable THEN
		PERFORM set_config('synchronous_commit', 'off', true);
	END IF;
END $$;

-- list_v1 returns one page of names with their holders and waiters.
CREATE FUNCTION list_v1(a_name text, a_prefix text, a_cursor text, a_limit integer)
RETURNS TABLE (name text, holders json, waiters json)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = {{schema}}, pg_temp SET enable_seqscan = off SET jit = off AS $$
DECLARE
	at bigint := now_us();
BEGIN
	RETURN QUERY
	SELECT n.name, (SELECT json_agg(h) FROM holders_of(n.name, at) h), (SELECT json_agg(w) FROM waiters_of(n.name, at) w)
	FROM (
		SELECT m.name FROM names m WHERE a_name <> '' AND m.name = a_name
		UNION ALL (SELECT m.name FROM names m
			WHERE a_name = '' AND m.name > a_cursor AND m.name >= a_prefix AND m.name <= a_prefix || repeat(chr(1114111), 128)
				AND (m.id IS NOT NULL AND m.until > at OR m.crowd)
			ORDER BY m.name LIMIT a_limit)
	) n;
END $$;

-- version_v1 returns the version of the schema.
CREATE FUNCTION version_v1() RETURNS integer LANGUAGE sql STABLE SECURITY DEFINER SET search_path = {{schema}}, pg_temp AS
	$$ SELECT version FROM meta $$;

-- No role may use the locks without a grant. The schema may contain objects of others, whose rights
-- stay as they are. The other functions run with the rights of their caller.
REVOKE ALL ON meta, names, holders, waiters, ended FROM PUBLIC;
REVOKE ALL ON FUNCTION {{functions}} FROM PUBLIC;
