-- What lockattr keeps in a PostgreSQL database. Every statement may be run again, by any number of
-- sessions one after the other. Run by an administrator, it wants for each role that locks:
--
--   GRANT USAGE ON SCHEMA lockattr TO role;
--   GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA lockattr TO role;

CREATE SCHEMA IF NOT EXISTS lockattr;

-- A lock. `until` is by the server's clock, and `ttl` is what it was reckoned with: more than that ahead, the
-- clock was set back. `token` is the last that was drawn, and outlives the lease; `is_drawn` is whether the
-- owner has drawn it. Rows are updated in place: no column of an index changes. Where others may hold a lock
-- beside one another, its owner is `*`, for ever, until somebody finds that none of them is left.
CREATE TABLE IF NOT EXISTS lockattr.locks (
    name text COLLATE "C" PRIMARY KEY,
    owner text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('held', 'closed', 'done', 'free')),
    permits integer NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    ttl interval NOT NULL,
    token bigint NOT NULL DEFAULT 0,
    is_drawn boolean NOT NULL DEFAULT false
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);

-- Those who hold a lock beside one another: readers, whose `permits` are 0, or holders of permits, each with the
-- lowest slot that no other has. They count as long as the row of their lock is in the hands of `*`, so that
-- whoever wants a lock alone looks at one row. `token` is the last that the holder has drawn, or 0.
CREATE TABLE IF NOT EXISTS lockattr.holders (
    lock text COLLATE "C" NOT NULL,
    owner text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('held', 'closed')),
    permits integer NOT NULL,
    weight integer NOT NULL,
    slot integer NOT NULL,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    ttl interval NOT NULL,
    token bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (lock, owner)
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);

-- The replies that stand beside marks of work that is done, each with the `since` of its mark: one of another
-- mark is none. They have a table of their own, so that the rows of locks stay small.
CREATE TABLE IF NOT EXISTS lockattr.replies (
    name text COLLATE "C" PRIMARY KEY,
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    reply text NOT NULL
);

-- Who waits for a lock, in the order of `place`: alone with 1 of `permits`, as a reader with 0. Nothing of it has
-- to outlive a crash, so that it costs no write-ahead log: those who wait ask again.
CREATE UNLOGGED TABLE IF NOT EXISTS lockattr.waiters (
    owner text COLLATE "C" PRIMARY KEY,
    lock text COLLATE "C" NOT NULL,
    place bigint GENERATED ALWAYS AS IDENTITY,
    locks text[] NOT NULL,
    permits integer NOT NULL,
    ttl interval NOT NULL,
    channel text NOT NULL,
    seen timestamptz NOT NULL
) WITH (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 1000
);

-- A database that an earlier release has begun has it not yet.
ALTER TABLE lockattr.waiters ADD COLUMN IF NOT EXISTS weight integer NOT NULL DEFAULT 1;

CREATE INDEX IF NOT EXISTS waiters_in_order ON lockattr.waiters (lock, place);

-- Moments before 1970, and after the year 9999, are those of somebody who has written them by hand.
CREATE OR REPLACE FUNCTION lockattr.micros(_at timestamptz) RETURNS bigint
LANGUAGE sql IMMUTABLE AS
$$ SELECT (extract(epoch FROM greatest(to_timestamp(0), least(_at, to_timestamp(253402300799)))) * 1000000)::bigint $$;

-- The owner of what nobody holds: the holder that is shown for it is the last one.
CREATE OR REPLACE FUNCTION lockattr.nobody(_owner text) RETURNS text
LANGUAGE sql IMMUTABLE AS
$$ SELECT '00000000000000000000000000000000@' || split_part(_owner, '@', 2) $$;

-- Steps that take or free something of a lock go one after the other until each has committed. Renewals
-- and tokens do not.
CREATE OR REPLACE FUNCTION lockattr.enter(_locks text[]) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(_locks) = 1 THEN
        PERFORM pg_advisory_xact_lock(1819239275, hashtext(_locks[1]));
    ELSE
        PERFORM pg_advisory_xact_lock(1819239275, hash)
        FROM (SELECT DISTINCT hashtext(l) AS hash FROM unnest(_locks) AS l ORDER BY hash) AS hashes;
    END IF;
END $$;

-- Who keeps an owner from having locks alone: of what others have, what ends first; no row where nobody has any.
CREATE OR REPLACE FUNCTION lockattr.refusal(
    _locks text[], _owner text,
    OUT answer text, OUT lock integer, OUT holder text, OUT since bigint, OUT remaining bigint,
    OUT is_ahead boolean
) LANGUAGE plpgsql AS $$
DECLARE
    _now timestamptz := clock_timestamp();
BEGIN
    SELECT CASE WHEN l.state = 'done' THEN 'done' ELSE 'busy' END,
        array_position(_locks, l.name) - 1,
        l.owner,
        lockattr.micros(l.since),
        CASE WHEN l.state = 'done' THEN lockattr.micros(l.since)
            ELSE lockattr.micros(l.until) - lockattr.micros(_now) END,
        l.until > _now + l.ttl + interval '1 second'
    INTO answer, lock, holder, since, remaining, is_ahead
    FROM lockattr.locks l
    WHERE l.name = ANY (_locks) AND l.owner <> _owner AND l.until > _now
    ORDER BY l.state = 'done', l.until LIMIT 1;
    IF holder = '*' THEN
        -- Nobody has any of the locks alone.
        SELECT 'busy', array_position(_locks, h.lock) - 1, h.owner, lockattr.micros(h.since),
            lockattr.micros(h.until) - lockattr.micros(_now),
            h.until > _now + h.ttl + interval '1 second'
        INTO answer, lock, holder, since, remaining, is_ahead
        FROM lockattr.holders h JOIN lockattr.locks l ON l.name = h.lock AND l.owner = '*'
        WHERE h.lock = ANY (_locks) AND h.owner <> _owner AND h.until > _now
        ORDER BY h.until LIMIT 1;
        IF NOT FOUND THEN
            SELECT 'done', array_position(_locks, l.name) - 1, l.owner, lockattr.micros(l.since),
                lockattr.micros(l.since), l.until > _now + l.ttl + interval '1 second'
            INTO answer, lock, holder, since, remaining, is_ahead
            FROM lockattr.locks l
            WHERE l.name = ANY (_locks) AND l.owner <> _owner AND l.until > _now AND l.state = 'done'
            LIMIT 1;
        END IF;
    END IF;
END $$;

-- Whether there is room beside those who hold a lock together, with which slot, and whether the time of some of
-- them is over. The sum is of those who hold it now, and is compared with the number that is asked by.
CREATE OR REPLACE FUNCTION lockattr.room(
    _lock text, _permits integer, _weight integer, _owner text,
    OUT fits boolean, OUT slot integer, OUT has_ended boolean
) LANGUAGE sql STABLE AS $$
    SELECT coalesce(
            CASE WHEN _permits = 0 THEN bool_and(h.permits = 0)
                ELSE bool_and(h.permits > 0) AND sum(h.weight) + _weight <= _permits END,
            true
        ),
        CASE WHEN _permits = 0 THEN 0
            ELSE coalesce(min(h.place) FILTER (WHERE h.slot <> h.place), count(*))::integer END,
        coalesce(bool_or(h.until <= clock_timestamp()), false)
    FROM (
        SELECT o.*, row_number() OVER (ORDER BY o.slot) - 1 AS place
        FROM lockattr.holders o WHERE o.lock = _lock AND o.owner <> _owner
    ) AS h
$$;

-- Whether it is known without a change that a lock has no room for who would hold it beside others.
CREATE OR REPLACE FUNCTION lockattr.is_full(_lock text, _permits integer, _weight integer, _owner text)
RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN l.owner = '*' THEN (
            SELECT NOT r.fits AND NOT r.has_ended
            FROM lockattr.room(_lock, _permits, _weight, _owner) AS r
        ) ELSE l.owner <> _owner AND l.until > clock_timestamp() END
    FROM lockattr.locks l WHERE l.name = _lock
$$;

-- Whether somebody waits for a lock that is held together who has come before an owner that has no part of it.
-- Once nobody holds it, whoever waits was served.
CREATE OR REPLACE FUNCTION lockattr.is_behind(_lock text, _owner text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
            SELECT FROM lockattr.waiters w
            WHERE w.lock = _lock AND w.owner <> _owner AND w.place < coalesce(
                (SELECT o.place FROM lockattr.waiters o WHERE o.owner = _owner), 9223372036854775807
            )
        ) AND EXISTS (SELECT FROM lockattr.locks l WHERE l.name = _lock AND l.owner = '*')
        AND NOT EXISTS (
            SELECT FROM lockattr.holders h
            WHERE h.lock = _lock AND h.owner = _owner AND h.until > clock_timestamp()
        )
$$;

-- Removes those of the holders of a lock whose time is over, and frees it where nobody is left. One that a
-- transaction was fenced with stays as long as that goes on: its row is locked. Asked for within `enter`.
CREATE OR REPLACE FUNCTION lockattr.settle(_lock text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM lockattr.holders h WHERE h.lock = _lock AND h.owner IN (
        SELECT o.owner FROM lockattr.holders o
        WHERE o.lock = _lock AND o.until <= clock_timestamp() FOR UPDATE SKIP LOCKED
    );
    PERFORM FROM lockattr.holders h WHERE h.lock = _lock LIMIT 1;
    IF NOT FOUND THEN
        DELETE FROM lockattr.locks l WHERE l.name = _lock AND l.owner = '*' AND l.token = 0;
        UPDATE lockattr.locks l SET
            owner = lockattr.nobody(l.owner), state = 'free',
            until = clock_timestamp(), ttl = interval '0'
        WHERE l.name = _lock AND l.owner = '*';
    END IF;
END $$;

-- A grant that a crash would forget is none.
CREATE OR REPLACE FUNCTION lockattr.keep() RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- Takes a part of a lock that others may hold beside it, and answers which slot; null where there is no room.
CREATE OR REPLACE FUNCTION lockattr.take_beside(
    _lock text, _permits integer, _weight integer, _owner text, _ttl interval
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    _together boolean;
    _room record;
    _slot integer := 0;
BEGIN
    SELECT l.owner = '*' INTO _together FROM lockattr.locks l WHERE l.name = _lock;
    IF _together THEN
        UPDATE lockattr.holders h SET
            until = greatest(h.until, clock_timestamp() + _ttl), ttl = greatest(h.ttl, _ttl)
        WHERE h.lock = _lock AND h.owner = _owner AND h.until > clock_timestamp()
        RETURNING h.slot INTO _slot;
        IF FOUND THEN
            PERFORM lockattr.keep();
            RETURN _slot;
        END IF;
        SELECT * INTO _room FROM lockattr.room(_lock, _permits, _weight, _owner);
        IF _room.has_ended THEN
            PERFORM lockattr.settle(_lock);
            SELECT * INTO _room FROM lockattr.room(_lock, _permits, _weight, _owner);
            _together := EXISTS (SELECT FROM lockattr.locks l WHERE l.name = _lock AND l.owner = '*');
        END IF;
        IF NOT _room.fits THEN
            RETURN NULL;
        END IF;
        _slot := _room.slot;
    END IF;
    IF _together IS NOT TRUE THEN
        PERFORM FROM lockattr.locks l
        WHERE l.name = _lock AND l.until <= clock_timestamp() FOR UPDATE SKIP LOCKED;
        IF NOT FOUND AND EXISTS (SELECT FROM lockattr.locks l WHERE l.name = _lock) THEN
            RETURN NULL;
        END IF;
        INSERT INTO lockattr.locks AS l (name, owner, state, permits, since, until, ttl)
        VALUES (_lock, '*', 'held', _permits, clock_timestamp(), 'infinity', interval '100 years')
        ON CONFLICT (name) DO UPDATE SET
            owner = '*', state = 'held', permits = excluded.permits, since = excluded.since,
            until = excluded.until, ttl = excluded.ttl, is_drawn = false;
    END IF;
    INSERT INTO lockattr.holders (lock, owner, state, permits, weight, slot, since, until, ttl)
    VALUES (
        _lock, _owner, 'held', _permits, _weight, _slot,
        clock_timestamp(), clock_timestamp() + _ttl, _ttl
    )
    ON CONFLICT (lock, owner) DO UPDATE SET
        permits = excluded.permits, weight = excluded.weight, slot = excluded.slot,
        since = excluded.since, until = excluded.until, ttl = excluded.ttl, token = 0;
    PERFORM lockattr.keep();
    RETURN _slot;
END $$;

-- Takes all locks, or a part of the only one, and answers which slot; null where that cannot be. A lock
-- that is over is not taken as long as a transaction that was fenced with it goes on: its row is locked.
CREATE OR REPLACE FUNCTION lockattr.take(
    _locks text[], _permits integer, _weight integer, _owner text, _ttl interval
) RETURNS integer LANGUAGE plpgsql AS $$
DECLARE
    _others text[];
    _together boolean;
    _locked integer;
BEGIN
    IF _permits <> 1 THEN
        RETURN lockattr.take_beside(_locks[1], _permits, _weight, _owner, _ttl);
    END IF;
    SELECT array_agg(l.name), bool_or(l.owner = '*') INTO _others, _together
    FROM lockattr.locks l WHERE l.name = ANY (_locks) AND l.owner <> _owner;
    IF _together THEN
        PERFORM lockattr.settle(l.name)
        FROM lockattr.locks l WHERE l.name = ANY (_others) AND l.owner = '*';
        _others := ARRAY(
            SELECT l.name FROM lockattr.locks l WHERE l.name = ANY (_locks) AND l.owner <> _owner
        );
    END IF;
    IF cardinality(_others) > 0 THEN
        PERFORM FROM lockattr.locks l
        WHERE l.name = ANY (_others) AND l.until <= clock_timestamp()
        ORDER BY l.name FOR UPDATE SKIP LOCKED;
        GET DIAGNOSTICS _locked = ROW_COUNT;
        IF _locked < cardinality(_others) THEN
            RETURN NULL;
        END IF;
    END IF;
    INSERT INTO lockattr.locks AS l (name, owner, state, permits, since, until, ttl)
    SELECT n, _owner, 'held', 1, clock_timestamp(), clock_timestamp() + _ttl, _ttl
    FROM unnest(_locks) AS n ORDER BY n
    ON CONFLICT (name) DO UPDATE SET
        owner = excluded.owner,
        state = 'held',
        permits = excluded.permits,
        since = CASE WHEN l.owner = excluded.owner THEN l.since ELSE clock_timestamp() END,
        is_drawn = l.is_drawn AND l.owner = excluded.owner,
        until = clock_timestamp() + excluded.ttl,
        ttl = excluded.ttl;
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    RETURN 0;
END $$;

-- Whether the client of a waiter listens no more: the session that does has a lock of its own for it, which ends with
-- the session. Whoever has asked just now may be about to listen.
CREATE OR REPLACE FUNCTION lockattr.is_gone(_channel text, _seen timestamptz) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT abs(lockattr.micros(clock_timestamp()) - lockattr.micros(_seen)) > 2000000
        AND NOT EXISTS (
            SELECT FROM pg_catalog.pg_locks k
            WHERE k.locktype = 'advisory' AND k.classid = 1819239276 AND k.objsubid = 2
                AND k.objid = (hashtext(_channel)::bigint & 4294967295)::oid AND k.granted
        )
$$;

-- Gives what is free of a lock to those who wait for it, in order and up to the first for whom there is no room, and
-- answers who is to be told: each a channel and what goes there. Whoever has not asked for two minutes waits no more.
CREATE OR REPLACE FUNCTION lockattr.serve(_lock text) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    _wakes text[] := '{}';
    _waiter lockattr.waiters;
    _slot integer;
    _refusal record;
BEGIN
    FOR _waiter IN SELECT * FROM lockattr.waiters w WHERE w.lock = _lock ORDER BY w.place LOOP
        IF abs(lockattr.micros(clock_timestamp()) - lockattr.micros(_waiter.seen)) > 120000000 THEN
            DELETE FROM lockattr.waiters w WHERE w.owner = _waiter.owner;
            CONTINUE;
        END IF;
        -- In another order than its own, the other locks could only be waited for at the risk of a
        -- deadlock.
        IF cardinality(_waiter.locks) > 1 AND EXISTS (
            SELECT FROM unnest(_waiter.locks) AS l
            WHERE NOT pg_try_advisory_xact_lock(1819239275, hashtext(l))
        ) THEN
            _wakes := _wakes || (_waiter.channel || ' look ' || _waiter.owner);
            CONTINUE;
        END IF;
        _slot := lockattr.take(
            _waiter.locks, _waiter.permits, _waiter.weight, _waiter.owner, _waiter.ttl
        );
        IF _slot IS NOT NULL THEN
            DELETE FROM lockattr.waiters w WHERE w.owner = _waiter.owner;
            _wakes := _wakes || format(
                '%s granted %s %s %s',
                _waiter.channel, _slot, lockattr.micros(clock_timestamp()), _waiter.owner
            );
            EXIT WHEN _waiter.permits = 1;
            CONTINUE;
        END IF;
        SELECT * INTO _refusal FROM lockattr.refusal(_waiter.locks, _waiter.owner);
        IF _refusal.answer = 'done' THEN
            DELETE FROM lockattr.waiters w WHERE w.owner = _waiter.owner;
            _wakes := _wakes || (_waiter.channel || ' look ' || _waiter.owner);
        ELSIF _refusal.answer = 'busy' AND _waiter.locks[_refusal.lock + 1] <> _lock THEN
            UPDATE lockattr.waiters w SET lock = _waiter.locks[_refusal.lock + 1]
            WHERE w.owner = _waiter.owner;
        ELSE
            -- Those behind it who fit beside the holders are kept back for it, unless nobody would hear of a grant.
            EXIT WHEN NOT EXISTS (SELECT FROM lockattr.locks l WHERE l.name = _lock AND l.owner = '*')
                OR NOT lockattr.is_gone(_waiter.channel, _waiter.seen);
            DELETE FROM lockattr.waiters w WHERE w.owner = _waiter.owner;
        END IF;
    END LOOP;
    RETURN _wakes;
END $$;

CREATE OR REPLACE FUNCTION lockattr.serve_all(_locks text[]) RETURNS text[]
LANGUAGE plpgsql AS $$
DECLARE
    _wakes text[] := '{}';
    _lock text;
BEGIN
    IF cardinality(_locks) = 1 THEN
        PERFORM FROM lockattr.waiters w WHERE w.lock = _locks[1] LIMIT 1;
        IF FOUND THEN
            _wakes := lockattr.serve(_locks[1]);
        END IF;
        RETURN _wakes;
    END IF;
    FOR _lock IN SELECT DISTINCT w.lock FROM lockattr.waiters w WHERE w.lock = ANY (_locks) LOOP
        _wakes := _wakes || lockattr.serve(_lock);
    END LOOP;
    RETURN _wakes;
END $$;

-- To plan anew each time takes longer than a step itself. A plan that is kept is made for tables of any size, also while
-- they are small.
--
-- `answer` is granted, busy, done or again; `index` is the slot, or the lock that refuses; `micros` is how long
-- that is held yet, or since when it is done; `since` is when its holder has come. By the server's clock the request
-- came at `begun`, and what is granted runs from `at` on, or from a little later. `wakes` has a line for each that is
-- to be told something. The locks are wanted alone with 1 of `_permits`; one is wanted beside readers with 0, and
-- beside others with permits with more.
CREATE OR REPLACE FUNCTION lockattr.acquire(
    _locks text[], _permits integer, _weight integer, _owner text, _ttl_ms bigint, _channel text,
    _again boolean,
    OUT answer text, OUT index integer, OUT holder text, OUT micros bigint, OUT place bigint,
    OUT at bigint, OUT wakes text, OUT begun bigint, OUT since bigint
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    _ttl interval := make_interval(secs => _ttl_ms / 1000.0);
    _refusal record;
    _looks boolean := _channel IS NULL AND NOT _again;
    _stands_back boolean := false;
    _place bigint;
    _more text[];
BEGIN
    begun := lockattr.micros(statement_timestamp());
    IF _looks AND _permits <> 1 THEN
        _looks := lockattr.is_full(_locks[1], _permits, _weight, _owner);
    END IF;
    IF _looks THEN
        -- Whoever finds it held, and does not wait, writes nothing and stands behind nobody.
        SELECT * INTO _refusal FROM lockattr.refusal(_locks, _owner);
        IF _refusal.answer IS NOT NULL AND NOT _refusal.is_ahead THEN
            answer := _refusal.answer;
            index := _refusal.lock;
            holder := _refusal.holder;
            since := _refusal.since;
            micros := _refusal.remaining;
            at := lockattr.micros(clock_timestamp());
            RETURN;
        END IF;
    END IF;
    PERFORM lockattr.enter(_locks);
    -- Those who wait come before those who come.
    wakes := array_to_string(lockattr.serve_all(_locks), E'\n');
    at := lockattr.micros(clock_timestamp());
    IF _permits <> 1 THEN
        _stands_back := lockattr.is_behind(_locks[1], _owner);
    END IF;
    IF NOT _stands_back THEN
        index := lockattr.take(_locks, _permits, _weight, _owner, _ttl);
    END IF;
    IF index IS NOT NULL THEN
        answer := 'granted';
        IF _again THEN
            DELETE FROM lockattr.waiters w WHERE w.owner = _owner;
        END IF;
        RETURN;
    END IF;
    SELECT * INTO _refusal FROM lockattr.refusal(_locks, _owner);
    IF _refusal.is_ahead THEN
        -- The clock was set back: from now on it is held for its ttl at most.
        UPDATE lockattr.locks l SET until = clock_timestamp() + l.ttl
        WHERE l.name = ANY (_locks) AND l.owner <> '*' AND l.until > clock_timestamp() + l.ttl;
        UPDATE lockattr.holders h SET until = clock_timestamp() + h.ttl
        WHERE h.lock = ANY (_locks) AND h.until > clock_timestamp() + h.ttl;
        SELECT * INTO _refusal FROM lockattr.refusal(_locks, _owner);
    END IF;
    answer := _refusal.answer;
    index := _refusal.lock;
    holder := _refusal.holder;
    since := _refusal.since;
    micros := _refusal.remaining;
    IF answer IS NULL THEN
        -- Over, and locked by a transaction that was fenced, or is about to be renewed.
        answer := 'busy';
        micros := 100000;
        SELECT array_position(_locks, l.name) - 1, l.owner INTO index, holder
        FROM lockattr.locks l
        WHERE l.name = ANY (_locks) AND l.owner <> _owner
        ORDER BY l.until LIMIT 1;
        IF index IS NULL THEN
            -- Swept away just now.
            answer := 'again';
        ELSIF holder = '*' THEN
            SELECT h.owner INTO holder FROM lockattr.holders h
            WHERE h.lock = _locks[index + 1] ORDER BY h.until LIMIT 1;
        END IF;
    END IF;
    IF answer = 'busy' AND _channel IS NOT NULL THEN
        INSERT INTO lockattr.waiters AS w (owner, lock, locks, permits, weight, ttl, channel, seen)
        VALUES (
            _owner, _locks[index + 1], _locks, _permits, _weight, _ttl, _channel, clock_timestamp()
        )
        ON CONFLICT (owner) DO UPDATE SET
            lock = excluded.lock, ttl = excluded.ttl, channel = excluded.channel, seen = excluded.seen
        RETURNING w.place INTO _place;
        SELECT count(*) INTO place
        FROM lockattr.waiters w WHERE w.lock = _locks[index + 1] AND w.place < _place;
    ELSIF _again THEN
        DELETE FROM lockattr.waiters w WHERE w.owner = _owner;
        IF FOUND THEN
            -- Those behind it may have what it waited for.
            _more := lockattr.serve_all(_locks);
            wakes := concat_ws(E'\n', nullif(wakes, ''), nullif(array_to_string(_more, E'\n'), ''));
        END IF;
    END IF;
    at := lockattr.micros(clock_timestamp());
END $$;

-- One row for each of the leases that the names, owners and so on belong to: `held`, and renewed; `gone`,
-- `taken`; or `locked` by somebody for a moment, and not renewed. Waits for nobody.
CREATE OR REPLACE FUNCTION lockattr.renew(
    _leases integer[], _names text[], _owners text[], _ttls_ms bigint[], _shorten boolean[]
) RETURNS TABLE (lease integer, answer text) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT a.lease, a.name, a.owner, make_interval(secs => a.ttl_ms / 1000.0) AS ttl, a.shorten
        FROM unnest(_leases, _names, _owners, _ttls_ms, _shorten)
            AS a (lease, name, owner, ttl_ms, shorten)
    ), locked AS MATERIALIZED (
        SELECT a.lease, l.name
        FROM asked a JOIN lockattr.locks l ON l.name = a.name
        WHERE l.owner = a.owner AND l.until > clock_timestamp()
        ORDER BY l.name FOR NO KEY UPDATE OF l SKIP LOCKED
    ), whole AS MATERIALIZED (
        SELECT a.lease FROM asked a LEFT JOIN locked USING (lease, name)
        GROUP BY a.lease HAVING bool_and(locked.name IS NOT NULL)
    ), renewed AS (
        UPDATE lockattr.locks l SET
            until = CASE
                WHEN a.shorten OR l.until > clock_timestamp() + greatest(l.ttl, a.ttl)
                    THEN clock_timestamp() + a.ttl
                ELSE greatest(l.until, clock_timestamp() + a.ttl)
            END,
            ttl = CASE
                WHEN a.shorten OR l.until <= clock_timestamp() + a.ttl THEN a.ttl
                ELSE greatest(l.ttl, a.ttl)
            END
        FROM asked a JOIN whole USING (lease)
        WHERE l.name = a.name AND l.owner = a.owner
        RETURNING l.name
    ), found AS (
        SELECT a.lease,
            bool_or(l.owner <> a.owner) AS taken,
            bool_or(l.name IS NULL) AS gone,
            count(*) AS names,
            count(l.name) AS rows
        FROM asked a
        LEFT JOIN lockattr.locks l ON l.name = a.name AND l.until > clock_timestamp()
        GROUP BY a.lease
    )
    SELECT f.lease, CASE
        WHEN w.lease IS NOT NULL THEN 'held'
        WHEN f.taken THEN 'taken'
        WHEN f.gone THEN 'gone'
        ELSE 'locked'
    END
    FROM found f LEFT JOIN whole w USING (lease);
END $$;

-- The same of leases of which each is a part of one lock.
CREATE OR REPLACE FUNCTION lockattr.renew_holders(
    _leases integer[], _locks text[], _owners text[], _ttls_ms bigint[], _shorten boolean[]
) RETURNS TABLE (lease integer, answer text) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM lockattr.keep();
    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT a.lease, a.lock, a.owner, make_interval(secs => a.ttl_ms / 1000.0) AS ttl, a.shorten
        FROM unnest(_leases, _locks, _owners, _ttls_ms, _shorten)
            AS a (lease, lock, owner, ttl_ms, shorten)
    ), locked AS MATERIALIZED (
        SELECT a.lease
        FROM asked a
        JOIN lockattr.holders h ON h.lock = a.lock AND h.owner = a.owner
        JOIN lockattr.locks l ON l.name = a.lock AND l.owner = '*'
        WHERE h.until > clock_timestamp()
        ORDER BY h.lock, h.owner FOR NO KEY UPDATE OF h SKIP LOCKED
    ), renewed AS (
        UPDATE lockattr.holders h SET
            until = CASE
                WHEN a.shorten OR h.until > clock_timestamp() + greatest(h.ttl, a.ttl)
                    THEN clock_timestamp() + a.ttl
                ELSE greatest(h.until, clock_timestamp() + a.ttl)
            END,
            ttl = CASE
                WHEN a.shorten OR h.until <= clock_timestamp() + a.ttl THEN a.ttl
                ELSE greatest(h.ttl, a.ttl)
            END
        FROM asked a JOIN locked USING (lease)
        WHERE h.lock = a.lock AND h.owner = a.owner
        RETURNING h.lock
    )
    SELECT a.lease, CASE
        WHEN k.lease IS NOT NULL THEN 'held'
        WHEN l.name IS NOT NULL THEN 'taken'
        WHEN h.lock IS NULL THEN 'gone'
        ELSE 'locked'
    END
    FROM asked a
    LEFT JOIN locked k USING (lease)
    LEFT JOIN lockattr.locks l ON l.name = a.lock AND l.owner <> '*' AND l.until > clock_timestamp()
    LEFT JOIN lockattr.holders h
        ON h.lock = a.lock AND h.owner = a.owner AND h.until > clock_timestamp();
END $$;

-- `answer` is ours, nothing or another; or locked, for a moment or by a transaction that was fenced, and
-- then nothing has been done. `_whatever` is whether it is not known what the owner holds, if anything.
CREATE OR REPLACE FUNCTION lockattr.release(
    _locks text[], _owner text, _whatever boolean, _leave text[], _lengths_ms bigint[],
    _keep_marks boolean, _queued boolean,
    OUT answer text, OUT wakes text
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    _mine text[];
    _own integer;
    _others integer;
    _stood boolean := false;
    _marked integer := 0;
    _length interval;
BEGIN
    PERFORM lockattr.enter(_locks);
    _mine := ARRAY(
        SELECT l.name FROM lockattr.locks l
        WHERE l.name = ANY (_locks) AND l.owner = _owner AND l.until > clock_timestamp()
        ORDER BY l.name FOR UPDATE SKIP LOCKED
    );
    SELECT count(*) FILTER (WHERE l.owner = _owner), count(*) FILTER (WHERE l.owner <> _owner)
    INTO _own, _others
    FROM lockattr.locks l WHERE l.name = ANY (_locks) AND l.until > clock_timestamp();
    IF _own > cardinality(_mine) THEN
        answer := 'locked';
        RETURN;
    END IF;
    IF _queued THEN
        DELETE FROM lockattr.waiters w WHERE w.owner = _owner;
        _stood := FOUND;
    END IF;
    FOR i IN 1 .. least(cardinality(_leave), cardinality(_locks)) LOOP
        _length := make_interval(secs => _lengths_ms[i] / 1000.0);
        IF _leave[i] <> 'nothing' AND _locks[i] = ANY (_mine) THEN
            UPDATE lockattr.locks l SET
                owner = lockattr.nobody(_owner), state = _leave[i],
                since = clock_timestamp(), until = clock_timestamp() + _length, ttl = _length,
                is_drawn = false
            WHERE l.name = _locks[i];
        ELSIF _leave[i] = 'done' AND _keep_marks THEN
            PERFORM FROM lockattr.locks l
            WHERE l.name = _locks[i] AND l.until > clock_timestamp() AND l.state = 'done';
            IF FOUND THEN
                -- An earlier release has left it.
                _marked := _marked + 1;
            ELSE
                INSERT INTO lockattr.locks AS l (name, owner, state, permits, since, until, ttl)
                VALUES (
                    _locks[i], lockattr.nobody(_owner), 'done', 1,
                    clock_timestamp(), clock_timestamp() + _length, _length
                )
                ON CONFLICT (name) DO UPDATE SET
                    owner = excluded.owner, state = 'done', is_drawn = false,
                    since = clock_timestamp(),
                    until = clock_timestamp() + excluded.ttl, ttl = excluded.ttl
                WHERE l.until <= clock_timestamp();
            END IF;
        END IF;
    END LOOP;
    DELETE FROM lockattr.locks l WHERE l.name = ANY (_mine) AND l.owner = _owner AND l.token = 0;
    UPDATE lockattr.locks l SET
        owner = lockattr.nobody(_owner), state = 'free', is_drawn = false, until = clock_timestamp()
    WHERE l.name = ANY (_mine) AND l.owner = _owner;
    answer := CASE
        WHEN _whatever AND (_stood OR cardinality(_mine) > 0) THEN 'ours'
        WHEN _others > _marked THEN 'another'
        WHEN cardinality(_mine) + _marked = cardinality(_locks) THEN 'ours'
        ELSE 'nothing'
    END;
    wakes := array_to_string(lockattr.serve_all(_locks), E'\n');
    -- A mark that a crash would forget is none. What was freed may stand again, until it is over.
    IF cardinality(_leave) > 0 AND current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
END $$;

-- The same of a part of a lock, which may stay closed for a while: in nobody's hands, with its slot and weight.
CREATE OR REPLACE FUNCTION lockattr.release_beside(
    _lock text, _owner text, _whatever boolean, _close boolean, _length_ms bigint, _queued boolean,
    OUT answer text, OUT wakes text
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms'
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off AS $$
DECLARE
    _mine lockattr.holders;
    _held boolean;
    _stood boolean := false;
    _length interval := make_interval(secs => _length_ms / 1000.0);
BEGIN
    PERFORM lockattr.enter(ARRAY[_lock]);
    SELECT * INTO _mine FROM lockattr.holders h
    WHERE h.lock = _lock AND h.owner = _owner AND h.until > clock_timestamp()
    FOR UPDATE SKIP LOCKED;
    _held := FOUND;
    IF NOT _held AND EXISTS (
        SELECT FROM lockattr.holders h
        WHERE h.lock = _lock AND h.owner = _owner AND h.until > clock_timestamp()
    ) THEN
        answer := 'locked';
        RETURN;
    END IF;
    IF _queued THEN
        DELETE FROM lockattr.waiters w WHERE w.owner = _owner;
        _stood := FOUND;
    END IF;
    IF _held THEN
        DELETE FROM lockattr.holders h WHERE h.lock = _lock AND h.owner = _owner;
        IF _close THEN
            -- Readers of one process that have left it closed are one.
            INSERT INTO lockattr.holders AS h (
                lock, owner, state, permits, weight, slot, since, until, ttl
            ) VALUES (
                _lock, lpad(_mine.slot::text, 32, '0') || '@' || split_part(_owner, '@', 2), 'closed',
                _mine.permits, _mine.weight, _mine.slot,
                clock_timestamp(), clock_timestamp() + _length, _length
            )
            ON CONFLICT (lock, owner) DO UPDATE SET
                permits = excluded.permits, weight = excluded.weight, since = excluded.since,
                until = greatest(h.until, excluded.until), ttl = greatest(h.ttl, excluded.ttl);
            PERFORM lockattr.keep();
        END IF;
    END IF;
    PERFORM lockattr.settle(_lock);
    answer := CASE
        WHEN _held OR _whatever AND _stood THEN 'ours'
        WHEN EXISTS (
            SELECT FROM lockattr.locks l
            WHERE l.name = _lock AND l.owner <> '*' AND l.until > clock_timestamp()
        ) THEN 'another'
        ELSE 'nothing'
    END;
    wakes := array_to_string(lockattr.serve_all(ARRAY[_lock]), E'\n');
END $$;

-- Has an heir hold what an owner holds, of all locks or of none, with since when, slot, weight and token; also where it
-- does already. `answer` is as that of `renew`.
CREATE OR REPLACE FUNCTION lockattr.take_over(
    _locks text[], _permits integer, _owner text, _heir text, _ttl_ms bigint, OUT answer text
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
DECLARE
    _ttl interval := make_interval(secs => _ttl_ms / 1000.0);
    _mine text[];
    _theirs integer;
    _others integer;
BEGIN
    IF _permits <> 1 THEN
        _mine := ARRAY(
            SELECT h.lock FROM lockattr.holders h
            JOIN lockattr.locks l ON l.name = h.lock AND l.owner = '*'
            WHERE h.lock = _locks[1] AND h.owner IN (_owner, _heir) AND h.until > clock_timestamp()
            FOR UPDATE OF h SKIP LOCKED
        );
        SELECT count(*) INTO _theirs FROM lockattr.holders h
        WHERE h.lock = _locks[1] AND h.owner IN (_owner, _heir) AND h.until > clock_timestamp();
        SELECT count(*) INTO _others FROM lockattr.locks l
        WHERE l.name = _locks[1] AND l.owner <> '*' AND l.until > clock_timestamp();
    ELSE
        _mine := ARRAY(
            SELECT l.name FROM lockattr.locks l
            WHERE l.name = ANY (_locks) AND l.owner IN (_owner, _heir) AND l.until > clock_timestamp()
            ORDER BY l.name FOR NO KEY UPDATE SKIP LOCKED
        );
        SELECT count(*) FILTER (WHERE l.owner IN (_owner, _heir)),
            count(*) FILTER (WHERE l.owner NOT IN (_owner, _heir))
        INTO _theirs, _others
        FROM lockattr.locks l WHERE l.name = ANY (_locks) AND l.until > clock_timestamp();
    END IF;
    answer := CASE
        WHEN cardinality(_mine) = cardinality(_locks) THEN 'held'
        WHEN _others > 0 THEN 'taken'
        WHEN _theirs > cardinality(_mine) THEN 'locked'
        ELSE 'gone'
    END;
    IF answer <> 'held' THEN
        RETURN;
    END IF;
    PERFORM lockattr.keep();
    IF _permits <> 1 THEN
        UPDATE lockattr.holders h SET
            owner = _heir,
            until = greatest(h.until, clock_timestamp() + _ttl), ttl = greatest(h.ttl, _ttl)
        WHERE h.lock = _locks[1] AND h.owner IN (_owner, _heir) AND h.until > clock_timestamp();
    ELSE
        UPDATE lockattr.locks l SET
            owner = _heir,
            until = greatest(l.until, clock_timestamp() + _ttl), ttl = greatest(l.ttl, _ttl)
        WHERE l.name = ANY (_locks) AND l.owner IN (_owner, _heir);
    END IF;
END $$;

-- `answer` is ours, nothing or another; or locked, for a moment. Larger than every token before of any of
-- the names, and no smaller than the server's clock, which a database that was restored has gone on with.
CREATE OR REPLACE FUNCTION lockattr.draw_token(
    _names text[], _owner text, _at_least bigint, OUT answer text, OUT token bigint
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    _mine text[];
    _own integer;
    _others integer;
BEGIN
    _mine := ARRAY(
        SELECT l.name FROM lockattr.locks l
        WHERE l.name = ANY (_names) AND l.owner = _owner AND l.until > clock_timestamp()
        ORDER BY l.name FOR NO KEY UPDATE SKIP LOCKED
    );
    IF cardinality(_mine) = cardinality(_names) THEN
        SELECT greatest(_at_least, lockattr.micros(clock_timestamp()), max(l.token) + 1) INTO token
        FROM lockattr.locks l WHERE l.name = ANY (_names);
        UPDATE lockattr.locks l SET token = draw_token.token, is_drawn = true
        WHERE l.name = ANY (_names);
        IF current_setting('synchronous_commit') = 'off' THEN
            PERFORM set_config('synchronous_commit', 'on', true);
        END IF;
        answer := 'ours';
        RETURN;
    END IF;
    SELECT count(*) FILTER (WHERE l.owner = _owner), count(*) FILTER (WHERE l.owner <> _owner)
    INTO _own, _others
    FROM lockattr.locks l WHERE l.name = ANY (_names) AND l.until > clock_timestamp();
    answer := CASE
        WHEN _others > 0 THEN 'another'
        WHEN _own > cardinality(_mine) THEN 'locked'
        ELSE 'nothing'
    END;
END $$;

-- The same of a part of a lock.
CREATE OR REPLACE FUNCTION lockattr.draw_holder_token(
    _lock text, _owner text, _at_least bigint, OUT answer text, OUT token bigint
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
BEGIN
    PERFORM FROM lockattr.holders h
    WHERE h.lock = _lock AND h.owner = _owner AND h.until > clock_timestamp()
    FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
        UPDATE lockattr.locks l SET
            token = greatest(_at_least, lockattr.micros(clock_timestamp()), l.token + 1)
        WHERE l.name = _lock AND l.owner = '*'
        RETURNING l.token INTO token;
        IF FOUND THEN
            UPDATE lockattr.holders h SET token = draw_holder_token.token
            WHERE h.lock = _lock AND h.owner = _owner;
            PERFORM lockattr.keep();
            answer := 'ours';
            RETURN;
        END IF;
    END IF;
    answer := CASE
        WHEN EXISTS (
            SELECT FROM lockattr.locks l
            WHERE l.name = _lock AND l.owner <> '*' AND l.until > clock_timestamp()
        ) THEN 'another'
        WHEN EXISTS (
            SELECT FROM lockattr.holders h
            WHERE h.lock = _lock AND h.owner = _owner AND h.until > clock_timestamp()
        ) THEN 'locked'
        ELSE 'nothing'
    END;
END $$;

-- For transactions of the application: fails where the lease of this lock that has drawn this token is
-- gone, and otherwise keeps everybody else from taking the lock until the transaction ends, or from what the lease
-- has of it.
CREATE OR REPLACE FUNCTION lockattr.fence(lock text, token bigint) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    PERFORM FROM lockattr.locks l
    WHERE l.name = fence.lock AND l.token = fence.token AND l.is_drawn
        AND l.until > clock_timestamp()
    FOR KEY SHARE;
    IF NOT FOUND AND token > 0 THEN
        PERFORM FROM lockattr.holders h JOIN lockattr.locks l ON l.name = h.lock AND l.owner = '*'
        WHERE h.lock = fence.lock AND h.token = fence.token AND h.until > clock_timestamp()
        FOR KEY SHARE OF h;
    END IF;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease of "%" that has drawn token % is gone', lock, token
            USING ERRCODE = 'LK001', HINT = 'Take the lock again, and do the work again.';
    END IF;
END $$;

-- Removes some rows whose time has been over for long. Last tokens are kept for a week, in case the
-- server's clock is set back.
CREATE OR REPLACE FUNCTION lockattr.sweep() RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    _lock text;
BEGIN
    -- A lock whose holders have all died.
    FOR _lock IN
        SELECT l.name FROM lockattr.locks l WHERE l.owner = '*' AND NOT EXISTS (
            SELECT FROM lockattr.holders h
            WHERE h.lock = l.name AND h.until > clock_timestamp() - interval '1 minute'
        )
        LIMIT 10000
    LOOP
        IF pg_try_advisory_xact_lock(1819239275, hashtext(_lock)) THEN
            PERFORM lockattr.settle(_lock);
        END IF;
    END LOOP;
    DELETE FROM lockattr.locks WHERE name IN (
        SELECT l.name FROM lockattr.locks l
        WHERE l.until < clock_timestamp() - CASE WHEN l.token = 0 THEN interval '1 minute'
            ELSE interval '168 hours' END
        LIMIT 10000 FOR UPDATE SKIP LOCKED
    );
    DELETE FROM lockattr.replies WHERE name IN (
        SELECT r.name FROM lockattr.replies r
        WHERE r.until < clock_timestamp() - interval '1 minute'
        LIMIT 10000 FOR UPDATE SKIP LOCKED
    );
    DELETE FROM lockattr.waiters WHERE owner IN (
        SELECT w.owner FROM lockattr.waiters w
        WHERE abs(lockattr.micros(clock_timestamp()) - lockattr.micros(w.seen)) > 120000000
        LIMIT 10000 FOR UPDATE SKIP LOCKED
    );
END $$;

-- Like `release`, with a reply for each lock, or null. One that stands there beside the same mark was left by an
-- earlier release.
CREATE OR REPLACE FUNCTION lockattr.release_replied(
    _locks text[], _owner text, _whatever boolean, _leave text[], _lengths_ms bigint[],
    _keep_marks boolean, _queued boolean, _replies text[],
    OUT answer text, OUT wakes text
) LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $$
BEGIN
    SELECT r.answer, r.wakes INTO answer, wakes
    FROM lockattr.release(
        _locks, _owner, _whatever, _leave, _lengths_ms, _keep_marks, _queued
    ) AS r;
    IF answer <> 'locked' THEN
        INSERT INTO lockattr.replies AS r (name, since, until, reply)
        SELECT l.name, l.since, l.until, given.reply
        FROM unnest(_locks, _replies) AS given (name, reply)
        JOIN lockattr.locks l ON l.name = given.name
        WHERE given.reply IS NOT NULL AND l.state = 'done' AND l.owner = lockattr.nobody(_owner)
            AND l.until > clock_timestamp()
        ON CONFLICT (name) DO UPDATE SET
            since = excluded.since, until = excluded.until, reply = excluded.reply
        WHERE r.since <> excluded.since;
    END IF;
END $$;

-- What stands beside the mark of a lock that is done since then.
CREATE OR REPLACE FUNCTION lockattr.reply(_lock text, _since bigint) RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN (
        SELECT r.reply FROM lockattr.replies r
        WHERE r.name = _lock AND lockattr.micros(r.since) = _since
    );
END $$;
