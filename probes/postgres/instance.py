"""What belongs to the whole server, by name: roles, databases, settings, slots and the rest; and what runs on it right now.

Every statement returns `(field, text)`. Object ids, transaction ids, WAL positions and counters are left out: they differ between
equal states, or stay equal between different ones.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import psycopg

from probes.canonical import name_of
from probes.postgres.connection import read_only
from probes.probe import ProbeContext

SECRET = "pg_catalog.left(pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to({0}, 'UTF8')), 'hex'), 32)"
# From the same snapshot as the row that names it: the server's functions look at what is there now, and a role may have just gone.
_ROLE_THEN = "(select r_.rolname from pg_catalog.pg_authid r_ where r_.oid = {0})"
ROLE = f"coalesce({_ROLE_THEN}, pg_catalog.pg_get_userbyid({{0}}))"
DATABASE = "(select d_.datname from pg_catalog.pg_database d_ where d_.oid = {0})"
# Our own pinned settings, and what is true of our session only.
OURS = (
    "application_name",
    "client_encoding",
    "in_hot_standby",
    "transaction_deferrable",
    "transaction_isolation",
    "transaction_read_only",
    "statement_timeout",
)


def _object(catalogue: str, object_id: str) -> str:
    """What pg_describe_object says, for roles and databases from the same snapshot."""
    return (
        f"coalesce(case {catalogue} when 'pg_catalog.pg_authid'::regclass then 'role ' || {_ROLE_THEN.format(object_id)}"
        f" when 'pg_catalog.pg_database'::regclass then 'database ' || {DATABASE.format(object_id)} end,"
        f" pg_describe_object({catalogue}, {object_id}, 0), 'gone')"
    )


def _joined(expression: str, order: str) -> str:
    return f"pg_catalog.string_agg({expression}, E'\\n' order by {order})"


def statements(version: int) -> list[str]:
    """Return the statements for a server of that version number, for one UNION ALL."""
    hba = (
        "concat_ws(' ', h.type, h.database::text, h.user_name::text, h.address, h.netmask, h.auth_method, h.options::text, h.error)"
    )
    found = [
        f"""select 'roles/' || r.rolname,
            (to_jsonb(r) - 'oid' || jsonb_build_object('rolpassword', {SECRET.format("r.rolpassword")}))::text from pg_authid r""",
        f"""select 'members/' || {ROLE.format("m.roleid")} || '/' || {ROLE.format("m.member")} || ' granted by ' ||
            {ROLE.format("m.grantor")}, (to_jsonb(m) - '{{oid,roleid,member,grantor}}'::text[])::text from pg_auth_members m""",
        f"""select 'role settings/' || coalesce({DATABASE.format("s.setdatabase")}, '*') || '/' ||
            case when s.setrole = 0 then '*' else {ROLE.format("s.setrole")} end, s.setconfig::text from pg_db_role_setting s""",
        f"""select 'databases/' || d.datname, (to_jsonb(d) - '{{oid,datdba,dattablespace,datfrozenxid,datminmxid}}'::text[]
            || jsonb_build_object('owner', {ROLE.format("d.datdba")}, 'tablespace', t.spcname))::text
            from pg_database d left join pg_tablespace t on t.oid = d.dattablespace""",
        f"""select 'tablespaces/' || t.spcname, (to_jsonb(t) - '{{oid,spcowner}}'::text[] || jsonb_build_object('owner',
            {ROLE.format("t.spcowner")}, 'location', pg_tablespace_location(t.oid)))::text from pg_tablespace t""",
        f"select 'shared comments/' || {_object('d.classoid', 'd.objoid')}, d.description from pg_shdescription d",
        f"""select 'shared labels/' || {_object("l.classoid", "l.objoid")} || '/' || l.provider, l.label
            from pg_shseclabel l""",
        f"""select 'shared dependencies/' || coalesce({DATABASE.format("d.dbid")}, '*') || '/' || d.classid::regclass::text || '/'
            || {_object("d.refclassid", "d.refobjid")} || '/' || d.deptype::text, count(*)::text
            from pg_shdepend d group by d.dbid, d.classid, d.refclassid, d.refobjid, d.deptype""",
        "select 'replication origins/' || o.roname, o.roident::text from pg_replication_origin o",
        """select 'replication slots/' || s.slot_name, concat_ws(' ', s.slot_type, s.plugin, s.datoid::text, s.temporary, s.active)
            from pg_get_replication_slots() s""",
        f"""select 'subscriptions/' || coalesce({DATABASE.format("s.subdbid")}, '*') || '/' || s.subname,
            (to_jsonb(s) - '{{oid,subdbid,subowner,subskiplsn}}'::text[] || jsonb_build_object('owner', {ROLE.format("s.subowner")},
            'subconninfo', {SECRET.format("s.subconninfo")}))::text from pg_subscription s""",
        f"""select 'prepared transactions/' || x.gid, concat_ws(' ', {DATABASE.format("x.dbid")}, {ROLE.format("x.ownerid")})
            from pg_prepared_xact() x""",
        """select 'settings/' || s.name, case when s.source in ('command line', 'override', 'environment variable')
            and s.vartype = 'string' then 'given at start' else s.setting end || ' (' || s.source || ')' ||
            case when s.pending_restart then ' pending restart' else '' end
            from pg_show_all_settings() s where s.name <> all (array['"""
        + "','".join(OURS)
        + "'])",
        f"""select 'file settings/' || regexp_replace(f.sourcefile, '.*/', '') || ' ' || coalesce(f.name, 'unreadable'),
            {_joined("concat_ws(' ', f.setting, case when f.applied then 'applied' else 'not applied' end, f.error)", "f.seqno")}
            from pg_show_all_file_settings() f group by 1""",
        f"""select 'hba rules', {_joined(hba, "h.line_number")}
            from pg_hba_file_rules() h""",
        f"""select 'data directory', {_joined("n", "n")}
            from pg_ls_dir('.') n where n not in ('postmaster.pid', 'postmaster.opts')""",
        f"""select 'data directory base', {_joined("coalesce(d.datname, n)", "coalesce(d.datname, n)")}
            from pg_ls_dir('base') n left join pg_database d on d.oid::text = n""",
        *(
            f"select 'data directory {d}', {_joined('n', 'n')} from pg_ls_dir('{d}') n"
            for d in ("pg_tblspc", "pg_replslot", "pg_twophase")
        ),
        f"select 'temporary files', {_joined('f.name', 'f.name')} from pg_ls_tmpdir() f",
        "select 'notification queue', pg_notification_queue_usage()::text",
    ]
    if version >= 150_000:
        found += [
            "select 'parameter privileges/' || p.parname, p.paracl::text from pg_parameter_acl p",
            f"""select 'ident rules', {_joined("concat_ws(' ', i.map_name, i.sys_name, i.pg_username, i.error)", "i.line_number")}
                from pg_ident_file_mappings() i""",
        ]
    return found


RUNNING = f"""
select 'sessions/' || coalesce({DATABASE.format("a.datid")}, '-') || '/' || coalesce({ROLE.format("a.usesysid")}, '-') || '/' ||
    a.backend_type || ' ' || coalesce(nullif(a.application_name, ''), '-') || ' ' || coalesce(a.state, '-'), count(*)::text
  from pg_stat_get_activity(null) a
  where a.backend_type in ('client backend', 'walsender') and a.pid <> pg_backend_pid() and a.pid <> all ({{own}})
  group by a.datid, a.usesysid, a.backend_type, a.application_name, a.state
union all
select 'background processes/' || a.backend_type, count(*)::text from pg_stat_get_activity(null) a
  where a.backend_type not in ('client backend', 'walsender', 'autovacuum worker', 'parallel worker', 'startup')
  group by a.backend_type
union all
select 'locks/' || l.locktype || ' ' || l.mode || ' ' || coalesce({DATABASE.format("l.database")}, '*') || ' ' ||
    case when l.granted then 'granted' else 'waiting' end, count(*)::text
  from pg_lock_status() l
  where l.pid is distinct from pg_backend_pid() and coalesce(l.pid, 0) <> all ({{own}}) and l.locktype <> 'virtualxid'
  group by l.locktype, l.mode, l.database, l.granted
"""
RUNNING_KINDS = ("sessions/", "background processes/", "locks/")
SETTLE_S = 1.0
CALM_S = 0.06


async def read_names(connection: psycopg.AsyncConnection[Any]) -> dict[str, str]:
    """Read everything of the instance that has a name, in one statement of one snapshot."""
    union = "\nunion all\n".join(f"({s})" for s in statements(connection.info.server_version))
    (rows,) = await read_only(connection, union)
    return _collected(rows)


async def read_running(
    connection: psycopg.AsyncConnection[Any],
    context: ProbeContext,
    probe: str,
    shown: Callable[[Mapping[str, str]], dict[str, str]] = dict,
) -> dict[str, str]:
    """Read sessions, background processes and locks. A backend that is just going, or a background process that is just coming,
    is given a moment: until the reading is as the baseline says, or (where none is) until it has stood still. `shown` keeps what is
    due of it."""
    loop = asyncio.get_running_loop()
    end = loop.time() + SETTLE_S
    wanted = None if context.baseline is None else _running(context.baseline)
    last, since = shown(await _running_now(connection, context)), loop.time()
    pause = 0.002
    while loop.time() < end and (context.compared(probe, last) != wanted if wanted is not None else loop.time() - since < CALM_S):
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.03)
        now = shown(await _running_now(connection, context))
        if now != last:
            last, since = now, loop.time()
    return last


def _running(fields: Mapping[str, str]) -> dict[str, str]:
    return {n: t for n, t in fields.items() if n.startswith(RUNNING_KINDS)}


async def _running_now(connection: psycopg.AsyncConnection[Any], context: ProbeContext) -> dict[str, str]:
    own = "array[" + ",".join(map(str, sorted({*context.backends, 0}))) + "]"
    rows = await (await connection.execute(RUNNING.format(own=own).encode())).fetchall()
    return _collected(rows)


def _collected(rows: Iterable[tuple[str | None, str | None]]) -> dict[str, str]:
    """Escape names; where one occurs twice, keep both texts."""
    found: dict[str, list[str]] = {}
    for field, text in rows:
        found.setdefault(name_of(field or "unnamed"), []).append(text or "")
    return {name: "\n".join(sorted(texts)) for name, texts in found.items()}
