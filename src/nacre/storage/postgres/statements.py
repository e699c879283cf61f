"""Every statement that a store runs, made once for its schema; `docs/scale.md` says which ones name no session."""

from __future__ import annotations

from psycopg.pq import Format

from nacre.storage.postgres.connections import Statement

HEAD = "uid, status, n, state, first, base, forked, holes, patched, created, updated, bytes"

# ruff: noqa: S608 - made of our own names
TEXTS = {
    # ---- reading one session
    "head": f"""
        SELECT {HEAD} FROM {{s}}.sessions WHERE sid = $1::uuid AND status <= 1 ORDER BY status, uid DESC LIMIT 1""",
    "generation": f"""
        SELECT {HEAD} FROM {{s}}.sessions WHERE sid = $1::uuid AND uid = $2::uuid AND status <= 2""",
    "generations": f"""
        SELECT {HEAD} FROM {{s}}.sessions WHERE sid = $1::uuid AND status <= 1 ORDER BY status = 0, uid""",
    "version": """
        SELECT uid, n FROM {s}.sessions WHERE sid = $1::uuid AND status = 0""",
    "back": """
        SELECT n, line FROM {s}.records WHERE sid = $1::uuid AND uid = $2::uuid AND n > $3::bigint AND n <= $4::bigint
        ORDER BY n DESC LIMIT $5::bigint""",
    "forth": """
        SELECT n, line FROM {s}.records WHERE sid = $1::uuid AND uid = $2::uuid AND n > $3::bigint AND n <= $4::bigint
        ORDER BY n LIMIT $5::bigint""",
    "blob": """
        SELECT data FROM {s}.blobs WHERE sid = $1::uuid AND uid = $2::uuid AND hash = decode($3, 'hex')""",
    # Not of those generations that are in the trash, or kept for their forks alone.
    "id": """
        SELECT one.uid, one.n FROM {s}.records AS one JOIN {s}.sessions AS head
            ON head.sid = $1::uuid AND head.uid = one.uid AND head.status <= 1
        WHERE one.sid = $1::uuid AND one.id = $2""",
    "shared_id": """
        SELECT n FROM {s}.records WHERE sid = $1::uuid AND uid = $2::uuid AND id = $3 AND n <= $4::bigint""",
    "is_ours": """
        SELECT n FROM {s}.records WHERE sid = $1::uuid AND uid = $2::uuid AND n = $3::bigint AND writer = $4::bigint
        AND line = $5""",
    # ---- appending
    "append": """
        WITH head AS (
            UPDATE {s}.sessions SET n = $3::bigint, state = $4, hd = $5::bigint, mp = $6::bigint, live = $7::bigint,
                updated = coalesce($8, updated), minute = coalesce($9::integer, minute),
                changed = floor(date_part('epoch', now()) / 60)::integer, bytes = $10::bigint,
                bytes_class = $15::smallint, live_class = $16::smallint
            WHERE sid = $1::uuid AND uid = $2::uuid AND n = $11::bigint AND status = 0 AND NOT sealed
                AND forked = $17::boolean
            RETURNING 1)
        INSERT INTO {s}.records (sid, uid, n, writer, id, line)
        SELECT $1::uuid, $2::uuid, $3::bigint, $12::bigint, $13, $14 FROM head""",
    "append_many": """
        WITH head AS (
            UPDATE {s}.sessions SET n = $3::bigint, state = $4, hd = $5::bigint, mp = $6::bigint, live = $7::bigint,
                updated = coalesce($8, updated), minute = coalesce($9::integer, minute),
                changed = floor(date_part('epoch', now()) / 60)::integer, bytes = $10::bigint,
                bytes_class = $16::smallint, live_class = $17::smallint
            WHERE sid = $1::uuid AND uid = $2::uuid AND n = $11::bigint AND status = 0 AND NOT sealed
                AND forked = $18::boolean
            RETURNING 1)
        INSERT INTO {s}.records (sid, uid, n, writer, id, line)
        SELECT $1::uuid, $2::uuid, part.n, $12::bigint, part.id, part.line
        FROM head, unnest($13::bigint[], $14::text[], $15::text[]) AS part (n, id, line)""",
    "create": """
        WITH place AS (SELECT 1 FROM {s}.store WHERE sealed_to IS NULL FOR SHARE), head AS (
            INSERT INTO {s}.sessions (sid, uid, key, status, n, state, hd, mp, live, first, created, updated, minute,
                changed, bytes, internal, folded, began, forked, bytes_class, live_class)
            SELECT $1::uuid, $2::uuid, $16, 0, $3::bigint, $4, $5::bigint, $6::bigint, $7::bigint, 1, $17, $8,
                $9::integer, floor(date_part('epoch', now()) / 60)::integer, $10::bigint, $18::boolean, $11, $19,
                EXISTS (SELECT 1 FROM {s}.sessions WHERE sid = $1::uuid AND status <= 2), $21::smallint, $22::smallint
            FROM place
            WHERE NOT EXISTS (SELECT 1 FROM {s}.sessions WHERE sid = $1::uuid AND uid >= $2::uuid AND status <= 1)
                AND $20::boolean = EXISTS (SELECT 1 FROM {s}.sessions WHERE sid = $1::uuid AND status <= 1)
            ON CONFLICT DO NOTHING RETURNING 1), counted AS (
            INSERT INTO {s}.counts (sid, status, internal, change) SELECT $1::uuid, 0, $18::boolean, 1 FROM head)
        INSERT INTO {s}.records (sid, uid, n, writer, id, line)
        SELECT $1::uuid, $2::uuid, part.n, $12::bigint, part.id, part.line
        FROM head, unnest($13::bigint[], $14::text[], $15::text[]) AS part (n, id, line)""",
    "labels": """
        UPDATE {s}.sessions SET folded = $4, cwd = $5, pinned = $6::boolean, tags = $7::text[]
        WHERE sid = $1::uuid AND uid = $2::uuid AND EXISTS (SELECT 1 FROM {s}.records AS mine
            WHERE mine.sid = $1::uuid AND mine.uid = $2::uuid AND mine.n = $3::bigint AND mine.writer = $8::bigint)""",
    "keep_blob": """
        INSERT INTO {s}.blobs (sid, uid, hash, n, data)
        SELECT $1::uuid, $2::uuid, decode($4, 'hex'), $3::bigint, $5::bytea FROM {s}.records
        WHERE sid = $1::uuid AND uid = $2::uuid AND n = $3::bigint AND writer = $6::bigint
        ON CONFLICT (sid, uid, hash) DO UPDATE SET n = least(blobs.n, excluded.n), data = excluded.data""",
    "flush": """
        UPDATE {s}.sessions SET n = n WHERE sid = $1::uuid AND uid = $2::uuid""",
    "lock": f"""
        SELECT {HEAD} FROM {{s}}.sessions WHERE sid = $1::uuid AND status <= 1
        ORDER BY status, uid DESC LIMIT 1 FOR UPDATE""",
    "touch": """
        UPDATE {s}.sessions SET n = n WHERE sid = $1::uuid AND status = 0""",
    # ---- whole generations
    "lock_store": "SELECT sealed_to FROM {s}.store FOR SHARE",
    "lock_all": f"""
        SELECT {HEAD} FROM {{s}}.sessions WHERE sid = $1::uuid AND status <= $2::smallint
        ORDER BY status = 0, uid FOR UPDATE""",
    "set_status": """
        WITH known AS (SELECT status, internal FROM {s}.sessions WHERE sid = $1::uuid AND uid = $2::uuid),
        counted AS (INSERT INTO {s}.counts (sid, status, internal, change)
            SELECT $1::uuid, status, internal, -1 FROM known
            UNION ALL SELECT $1::uuid, $3::smallint, internal, 1 FROM known)
        UPDATE {s}.sessions SET status = $3::smallint, changed = floor(date_part('epoch', now()) / 60)::integer
        WHERE sid = $1::uuid AND uid = $2::uuid""",
    "create_fork": """
        WITH counted AS (INSERT INTO {s}.counts (sid, status, internal, change) VALUES ($1::uuid, 0, $14::boolean, 1))
        INSERT INTO {s}.sessions (sid, uid, key, status, n, state, hd, mp, live, first, base, forked, holes, created,
            updated, began, minute, changed, bytes, internal, folded, cwd, pinned, tags, bytes_class, live_class)
        VALUES ($1::uuid, $2::uuid, $3, 0, $4::bigint, $5, $6::bigint, $7::bigint, $8::bigint, $4::bigint, $9, true,
            $10::boolean, $11, $19, $19, $12::integer, floor(date_part('epoch', now()) / 60)::integer, $13::bigint,
            $14::boolean, $15, $16, $17::boolean, $18::text[], $20::smallint, $21::smallint)""",
    "add_record": """
        INSERT INTO {s}.records (sid, uid, n, writer, id, line)
        VALUES ($1::uuid, $2::uuid, $3::bigint, $4::bigint, $5, $6)""",
    "link": """
        INSERT INTO {s}.forks (sid, uid, fork_sid, fork_uid, upto)
        VALUES ($1::uuid, $2::uuid, $3::uuid, $4::uuid, $5::bigint)""",
    "copy_patches": """
        WITH patched AS (UPDATE {s}.sessions SET patched = true WHERE sid = $3::uuid AND uid = $4::uuid)
        INSERT INTO {s}.records (sid, uid, n, writer, id, line)
        SELECT $3::uuid, $4::uuid, n, writer, NULL, line FROM {s}.records
        WHERE sid = $1::uuid AND uid = $2::uuid AND n <= $5::bigint""",
    "copy_patch_blobs": """
        INSERT INTO {s}.blobs (sid, uid, hash, n, data)
        SELECT $3::uuid, $4::uuid, hash, n, data FROM {s}.blobs
        WHERE sid = $1::uuid AND uid = $2::uuid AND n <= $5::bigint ON CONFLICT (sid, uid, hash) DO NOTHING""",
    "erase_patches": """
        DELETE FROM {s}.records WHERE sid = $1::uuid AND uid = $2::uuid AND n <= $3::bigint""",
    # Payloads whose first record no longer names them; another record may.
    "lost_blobs": """
        SELECT encode(hash, 'hex') FROM {s}.blobs WHERE sid = $1::uuid AND uid = $2::uuid
            AND NOT EXISTS (SELECT 1 FROM {s}.records AS first WHERE first.sid = $1::uuid AND first.uid = $2::uuid
                AND first.n = blobs.n AND strpos(first.line, encode(blobs.hash, 'hex')) > 0)""",
    "is_named": """
        SELECT 1 FROM {s}.records WHERE sid = $1::uuid AND uid = $2::uuid AND strpos(line, $3) > 0 LIMIT 1""",
    "forks": """
        SELECT fork_sid, fork_uid, upto FROM {s}.forks WHERE sid = $1::uuid AND uid = $2::uuid""",
    "unlink": """
        DELETE FROM {s}.forks
        WHERE sid = $1::uuid AND uid = $2::uuid AND fork_sid = $3::uuid AND fork_uid = $4::uuid""",
    "shared_upto": """
        SELECT max(upto) FROM {s}.forks WHERE sid = $1::uuid AND uid = $2::uuid""",
    "lock_status": """
        SELECT status FROM {s}.sessions WHERE sid = $1::uuid AND uid = $2::uuid FOR UPDATE""",
    "hide": """
        WITH counted AS (INSERT INTO {s}.counts (sid, status, internal, change)
            SELECT sid, status, internal, -1 FROM {s}.sessions WHERE sid = $1::uuid AND uid = $2::uuid AND status <= 1)
        UPDATE {s}.sessions SET status = 3, key = '', folded = '', cwd = '', pinned = false, tags = '{{}}', trash = ''
        WHERE sid = $1::uuid AND uid = $2::uuid""",
    "erase_records": """
        DELETE FROM {s}.records WHERE sid = $1::uuid AND uid = $2::uuid AND n > $3::bigint""",
    "erase_blobs": """
        DELETE FROM {s}.blobs WHERE sid = $1::uuid AND uid = $2::uuid AND n > $3::bigint""",
    "erase_texts": """
        DELETE FROM {s}.texts WHERE sid = $1::uuid AND uid = $2::uuid""",
    "erase_redactions": """
        DELETE FROM {s}.redactions WHERE sid = $1::uuid AND uid = $2::uuid""",
    "erase_session": """
        DELETE FROM {s}.sessions WHERE sid = $1::uuid AND uid = $2::uuid""",
    "erase_quarantine_of": """
        DELETE FROM {s}.quarantine WHERE sid = $1::uuid AND uid = $2::uuid""",
    "erase_quarantine": """
        DELETE FROM {s}.quarantine WHERE sid = $1::uuid""",
    "each": f"""
        SELECT sid, key, {HEAD} FROM {{s}}.sessions WHERE (sid, uid) > ($1::uuid, $2::uuid) AND status = $3::smallint
        ORDER BY sid, uid LIMIT $4::bigint""",
    "generations_changed": f"""
        SELECT changed, {HEAD} FROM {{s}}.sessions WHERE sid = $1::uuid AND status <= 1 ORDER BY status = 0, uid""",
    # ---- erasing one record
    "set_line": """
        UPDATE {s}.records SET line = $4 WHERE sid = $1::uuid AND uid = $2::uuid AND n = $3::bigint""",
    "set_patched": """
        UPDATE {s}.sessions SET patched = true, indexed = -abs(indexed) - n,
            changed = floor(date_part('epoch', now()) / 60)::integer
        WHERE sid = $1::uuid AND uid = $2::uuid""",
    "set_folded": """
        UPDATE {s}.sessions SET folded = $3 WHERE sid = $1::uuid AND uid = $2::uuid""",
    "set_number": """
        UPDATE {s}.sessions SET n = $3::bigint, state = $4, bytes = bytes + $5::bigint, indexed = -$3::bigint,
            bytes_class = length(ltrim((bytes + $5::bigint)::bit(64)::text, '0')),
            changed = floor(date_part('epoch', now()) / 60)::integer
        WHERE sid = $1::uuid AND uid = $2::uuid""",
    "add_patch": """
        INSERT INTO {s}.records (sid, uid, n, writer, id, line)
        VALUES ($1::uuid, $2::uuid, $3::bigint, $4::bigint, NULL, $5) ON CONFLICT (sid, uid, n) DO NOTHING""",
    "forks_at": """
        SELECT fork_sid, fork_uid FROM {s}.forks WHERE sid = $1::uuid AND uid = $2::uuid AND upto >= $3::bigint""",
    "named": f"""
        SELECT key, {HEAD} FROM {{s}}.sessions WHERE sid = $1::uuid AND uid = $2::uuid""",
    "erase_blob": """
        DELETE FROM {s}.blobs WHERE sid = $1::uuid AND uid = $2::uuid AND hash = decode($3, 'hex')""",
    "copy_blob": """
        INSERT INTO {s}.blobs (sid, uid, hash, n, data)
        SELECT $4::uuid, $5::uuid, hash, $6::bigint, data FROM {s}.blobs
        WHERE sid = $1::uuid AND uid = $2::uuid AND hash = decode($3, 'hex')
        ON CONFLICT (sid, uid, hash) DO UPDATE SET n = least(blobs.n, excluded.n)""",
    "erase_text": """
        DELETE FROM {s}.texts WHERE sid = $1::uuid AND uid = $2::uuid AND n = $3::bigint""",
    "quarantined_data": """
        SELECT e, encode(data, 'hex') FROM {s}.quarantine WHERE sid = $1::uuid AND uid = $2::uuid""",
    "set_quarantined": """
        UPDATE {s}.quarantine SET data = $3::bytea WHERE sid = $1::uuid AND e = $2::integer""",
    "begin_redaction": """
        INSERT INTO {s}.redactions (sid, uid, n, key) VALUES ($1::uuid, $2::uuid, $3::bigint, $4)
        ON CONFLICT (sid, uid, n) DO NOTHING""",
    "is_redacting": """
        SELECT 1 FROM {s}.redactions WHERE sid = $1::uuid AND uid = $2::uuid AND n = $3::bigint""",
    "end_redaction": """
        DELETE FROM {s}.redactions WHERE sid = $1::uuid AND uid = $2::uuid AND n = $3::bigint""",
    "redactions": "SELECT key, uid, n FROM {s}.redactions ORDER BY sid, uid, n",
    # ---- damage
    "quarantined": """
        SELECT key, e, uid, kind, detail, ts, encode(data, 'hex'), settled, n, upto FROM {s}.quarantine
        WHERE sid = $1::uuid ORDER BY e""",
    "all_quarantined": """
        SELECT key, e, uid, kind, detail, ts, encode(data, 'hex'), settled, n, upto FROM {s}.quarantine
        ORDER BY sid, e""",
    "set_aside": """
        INSERT INTO {s}.quarantine (sid, e, uid, key, n, upto, kind, detail, ts, data)
        SELECT $1::uuid, coalesce(max(e), 0) + 1, $2::uuid, $3, $4::bigint, $5::bigint, $6, $7, $8, $9::bytea
        FROM {s}.quarantine WHERE sid = $1::uuid""",
    "settle": """
        UPDATE {s}.quarantine SET settled = $3 WHERE sid = $1::uuid AND e = $2::integer AND settled = ''""",
    "erase_record": """
        DELETE FROM {s}.records WHERE sid = $1::uuid AND uid = $2::uuid AND n = $3::bigint""",
    "set_holes": """
        UPDATE {s}.sessions SET holes = true, changed = floor(date_part('epoch', now()) / 60)::integer
        WHERE sid = $1::uuid AND uid = $2::uuid""",
    "set_head": """
        UPDATE {s}.sessions SET n = $3::bigint, state = $4, hd = $5::bigint, mp = $6::bigint, live = $7::bigint,
            bytes = bytes + $8::bigint, updated = coalesce($9, updated), minute = coalesce($10::integer, minute),
            bytes_class = length(ltrim((bytes + $8::bigint)::bit(64)::text, '0')),
            live_class = length(ltrim($7::bigint::bit(64)::text, '0')),
            changed = floor(date_part('epoch', now()) / 60)::integer
        WHERE sid = $1::uuid AND uid = $2::uuid""",
    # ---- journals and documents
    "last_part": """
        SELECT encode(data, 'hex') FROM {s}.documents WHERE name = $1 ORDER BY part DESC LIMIT 1""",
    "add_part": """
        INSERT INTO {s}.documents (name, part, data)
        SELECT $1, coalesce(max(part), 0) + 1, $2::bytea FROM {s}.documents WHERE name = $1""",
    "set_document": """
        INSERT INTO {s}.documents (name, part, data) VALUES ($1, 1, $2::bytea)
        ON CONFLICT (name, part) DO UPDATE SET data = excluded.data""",
    "erase_document": """
        DELETE FROM {s}.documents WHERE name = $1""",
    # ---- the trash
    "put_in_trash": """
        WITH counted AS (INSERT INTO {s}.counts (sid, status, internal, change)
            SELECT sid, status, internal, -1 FROM {s}.sessions WHERE sid = $1::uuid AND uid = $2::uuid)
        UPDATE {s}.sessions SET was = status, status = 2, trash = $3, removed = $4
        WHERE sid = $1::uuid AND uid = $2::uuid""",
    "take_from_trash": """
        WITH counted AS (INSERT INTO {s}.counts (sid, status, internal, change)
            SELECT sid, was, internal, 1 FROM {s}.sessions WHERE sid = $1::uuid AND trash = $2)
        UPDATE {s}.sessions SET status = was, trash = '', removed = '',
            changed = floor(date_part('epoch', now()) / 60)::integer
        WHERE sid = $1::uuid AND trash = $2""",
    "set_forked": """
        UPDATE {s}.sessions SET forked = true WHERE sid = $1::uuid AND status <= 1""",
    "in_trash": f"""
        SELECT key, was, removed, {HEAD} FROM {{s}}.sessions WHERE trash = $1 ORDER BY uid""",
    "trash": f"""
        SELECT trash, key, was, removed, {HEAD} FROM {{s}}.sessions WHERE trash <> '' ORDER BY uid""",
    # ---- the turn
    "claim": """
        INSERT INTO {s}.leases (sid, holder, who, until)
        VALUES ($1::uuid, $2::uuid, $3, now() + $4::float8 * interval '1 second')
        ON CONFLICT (sid) DO NOTHING""",
    "seize": """
        INSERT INTO {s}.leases (sid, holder, who, until)
        VALUES ($1::uuid, $2::uuid, $3, now() + $4::float8 * interval '1 second')
        ON CONFLICT (sid) DO UPDATE SET holder = excluded.holder, who = excluded.who, until = excluded.until""",
    "seize_expired": """
        UPDATE {s}.leases SET holder = $2::uuid, who = $3, until = now() + $4::float8 * interval '1 second'
        WHERE sid = $1::uuid AND (until < now() OR holder = $2::uuid)""",
    "holder": """
        SELECT holder, who, until < now() FROM {s}.leases WHERE sid = $1::uuid""",
    "holder_locked": """
        SELECT holder, who FROM {s}.leases WHERE sid = $1::uuid FOR SHARE""",
    "renew": """
        UPDATE {s}.leases SET until = now() + $3::float8 * interval '1 second'
        FROM unnest($1::uuid[], $2::uuid[]) AS mine (sid, holder)
        WHERE leases.sid = mine.sid AND leases.holder = mine.holder RETURNING leases.holder""",
    # A lease that is lost ends the whole transaction, with an error of its own; the share keeps it until the commit.
    "held": """
        SELECT 1 / count(*) FROM (
            SELECT 1 FROM {s}.leases WHERE sid = $1::uuid AND holder = $2::uuid FOR SHARE) AS mine""",
    "release": """
        DELETE FROM {s}.leases WHERE sid = $1::uuid AND holder = $2::uuid""",
    "release_all": """
        DELETE FROM {s}.leases USING unnest($1::uuid[], $2::uuid[]) AS mine (sid, holder)
        WHERE leases.sid = mine.sid AND leases.holder = mine.holder""",
    # A notice may be lost, and need not be flushed.
    "notify": "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, $2)",
    # ---- lists and searches; what they ask for besides is made for each
    "counts": """
        SELECT status, internal, sum(change), count(*) FROM {s}.counts GROUP BY status, internal""",
    "sum_counts": """
        WITH picked AS (SELECT ctid FROM {s}.counts LIMIT $1::bigint FOR UPDATE SKIP LOCKED),
        gone AS (DELETE FROM {s}.counts USING picked WHERE counts.ctid = picked.ctid RETURNING status, internal, change)
        INSERT INTO {s}.counts (sid, status, internal, change)
        SELECT $2::uuid, status, internal, sum(change) FROM gone GROUP BY status, internal HAVING sum(change) <> 0""",
    "indexing": """
        SELECT minute, floor(date_part('epoch', now()) / 60)::integer FROM {s}.indexing""",
    "advance_indexing": """
        UPDATE {s}.indexing SET minute = $1::integer WHERE minute < $1::integer""",
    "unindexed": f"""
        SELECT changed, sid, key, indexed, {HEAD} FROM {{s}}.sessions
        WHERE changed >= $1::integer AND (changed, sid, uid) > ($1::integer, $2::uuid, $3::uuid) AND status <= 1
            AND indexed < n
        ORDER BY changed, sid, uid LIMIT $4::bigint""",
    "add_texts": """
        INSERT INTO {s}.texts (sid, uid, n, ts, role, tools, body, plain, words, stems, is_long, from_sid, from_uid)
        SELECT $1::uuid, $2::uuid, n, ts, role, string_to_array(tools, chr(10)), body, plain, words::tsvector,
            stems::tsvector, is_long, from_sid, from_uid
        FROM unnest($3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::text[],
            $11::boolean[], $12::uuid[], $13::uuid[])
            AS part (n, ts, role, tools, body, plain, words, stems, is_long, from_sid, from_uid)
        ON CONFLICT (sid, uid, n) DO NOTHING""",
    "hide_repeats": """
        UPDATE {s}.texts SET repeated = true
        FROM (SELECT n, row_number() OVER (PARTITION BY ts, role, body ORDER BY n DESC) AS place FROM {s}.texts
            WHERE sid = $1::uuid AND uid = $2::uuid AND ts = ANY($3::text[])) AS found
        WHERE sid = $1::uuid AND uid = $2::uuid AND texts.n = found.n AND found.place > 1 AND NOT repeated""",
    "note_indexed": """
        UPDATE {s}.sessions SET indexed = $4::bigint
        WHERE sid = $1::uuid AND uid = $2::uuid AND indexed = $3::bigint AND status <= 2""",
    # ---- moving to and from another store
    "find_held": f"""
        SELECT trash, removed, was, {HEAD} FROM {{s}}.sessions
        WHERE sid = $1::uuid AND uid = $2::uuid AND status <= 2""",
    "receive": """
        WITH counted AS (INSERT INTO {s}.counts (sid, status, internal, change)
            SELECT $1::uuid, $4::smallint, $15::boolean, 1 WHERE $4::smallint <= 1)
        INSERT INTO {s}.sessions (sid, uid, key, status, was, trash, removed, first, created, began, n, state, hd, mp,
            live, internal, forked, holes, updated, minute, bytes, folded, cwd, pinned, tags, changed,
            bytes_class, live_class)
        VALUES ($1::uuid, $2::uuid, $3, $4::smallint, $5::smallint, $6, $7, $8::bigint, $9, $10, $11::bigint, $12,
            $13::bigint, $14::bigint, $16::bigint, $15::boolean, $17::boolean, $18::boolean, $19, $20::integer,
            $21::bigint, $22, $23, $24::boolean, $25::text[], floor(date_part('epoch', now()) / 60)::integer,
            length(ltrim($21::bigint::bit(64)::text, '0')), length(ltrim($16::bigint::bit(64)::text, '0')))""",
    "receive_more": """
        WITH known AS (SELECT status, internal FROM {s}.sessions WHERE sid = $1::uuid AND uid = $2::uuid),
        counted AS (INSERT INTO {s}.counts (sid, status, internal, change)
            SELECT $1::uuid, status, internal, -1 FROM known WHERE status <= 1
            UNION ALL SELECT $1::uuid, $3::smallint, internal, 1 FROM known WHERE $3::smallint <= 1)
        UPDATE {s}.sessions SET status = $3::smallint, was = $4::smallint, trash = $5, removed = $6, n = $7::bigint,
            state = $8, hd = $9::bigint, mp = $10::bigint, live = $11::bigint, holes = holes OR $12::boolean,
            updated = coalesce($13, updated), minute = coalesce($14::integer, minute), bytes = bytes + $15::bigint,
            bytes_class = length(ltrim((bytes + $15::bigint)::bit(64)::text, '0')),
            live_class = length(ltrim($11::bigint::bit(64)::text, '0')),
            folded = $16, cwd = $17, pinned = $18::boolean, tags = $19::text[],
            indexed = CASE WHEN $20::boolean THEN -$7::bigint ELSE indexed END,
            changed = floor(date_part('epoch', now()) / 60)::integer
        WHERE sid = $1::uuid AND uid = $2::uuid""",
    "receive_records": """
        INSERT INTO {s}.records (sid, uid, n, writer, id, line)
        SELECT $1::uuid, $2::uuid, part.n, $3::bigint, part.id, part.line
        FROM unnest($4::bigint[], $5::text[], $6::text[]) AS part (n, id, line)""",
    "free_ids": """
        UPDATE {s}.records SET id = NULL WHERE sid = $1::uuid AND uid = $2::uuid AND id = ANY($3::text[])""",
    "blob_names": """
        SELECT encode(hash, 'hex') FROM {s}.blobs WHERE sid = $1::uuid AND uid = $2::uuid""",
    "receive_aside": """
        INSERT INTO {s}.quarantine (sid, e, uid, key, n, upto, kind, detail, ts, data, settled)
        VALUES ($1::uuid, $2::integer, $3::uuid, $4, $5::bigint, $6::bigint, $7, $8, $9, $10::bytea, $11)""",
    "documents": """
        SELECT substr(name, 10), encode(data, 'hex') FROM {s}.documents WHERE name LIKE 'document:%'""",
    "seal_store": "UPDATE {s}.store SET sealed_to = $1",
    "set_sealed": """
        WITH part AS (SELECT sid, uid FROM {s}.sessions WHERE (sid, uid) > ($1::uuid, $2::uuid)
            ORDER BY sid, uid LIMIT $3::bigint)
        UPDATE {s}.sessions SET sealed = $4::boolean FROM part
        WHERE sessions.sid = part.sid AND sessions.uid = part.uid RETURNING part.sid, part.uid""",
    "unseal_store": "UPDATE {s}.store SET sealed_to = NULL WHERE sealed_to IS NOT NULL",
    # ---- the whole store
    "sizes": """
        SELECT relname, pg_total_relation_size(oid) FROM pg_class
        WHERE relnamespace = '{s}'::regnamespace AND relkind IN ('r', 'p') ORDER BY relname""",
    "store": "SELECT version, sealed_to FROM {s}.store",
    # Only the commit of one that has changed a row is flushed, and all before it.
    "touch_store": "UPDATE {s}.store SET version = version",
}

_BINARY = frozenset(("blob",))


class Statements:
    """The statements of one schema, as attributes."""

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def __getattr__(self, name: str) -> Statement:
        """Make a statement when it is first asked for."""
        try:
            text = TEXTS[name]
        except KeyError:
            raise AttributeError(name) from None
        made = Statement(
            name.encode(),
            " ".join(text.format(s=self._schema).split()).encode(),
            Format.BINARY if name in _BINARY else Format.TEXT,
        )
        self.__dict__[name] = made
        return made
