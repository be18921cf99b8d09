"""What known servers keep where no file tells it plainly, by their program, and the commands inside that tell it."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sandbox.model import Depth, ProbeSpec, ProcessInfo, VolatileField

# DEBUG DIGEST would tell it, but Redis refuses that since version 7, with an error that looks like any other output. Sets and
# hashes have another order in every process.
_OF_REDIS = """
local out = {}
for db = 0, 15 do
  if pcall(redis.call, 'select', db) then
    for _, k in ipairs(redis.call('keys', '*')) do
      local kind, v = redis.call('type', k).ok, {}
      if kind == 'string' then v = {redis.call('get', k)}
      elseif kind == 'list' then v = redis.call('lrange', k, 0, -1)
      elseif kind == 'zset' then v = redis.call('zrange', k, 0, -1, 'withscores')
      elseif kind == 'set' then v = redis.call('smembers', k) table.sort(v)
      elseif kind == 'hash' then
        local h = redis.call('hgetall', k)
        for i = 1, #h, 2 do v[#v + 1] = #h[i] .. ':' .. h[i] .. h[i + 1] end
        table.sort(v)
      else v = {redis.call('dump', k)} end
      for i, x in ipairs(v) do v[i] = redis.sha1hex(x) end
      local stays = redis.call('pttl', k) < 0 and 'stays' or 'expires'
      out[#out + 1] = table.concat({db, redis.sha1hex(k), kind, stays, redis.sha1hex(table.concat(v))}, ' ')
    end
  end
end
table.sort(out)
return #out .. ' keys ' .. redis.sha1hex(table.concat(out, ','))
"""
# Its files change by themselves, so that what they hold is asked for: where each row lies, too, since that decides the order in
# which a query that asks for none is answered. Names resolve to the system's alone, and no cast is used on a row: both could be an
# agent's own, and would run with the rights of whoever asks.
_PSQL = "PGOPTIONS='-c search_path=pg_catalog' psql -XAtq -F ' ' -v ON_ERROR_STOP=1 -U \"${POSTGRES_USER:-postgres}\""
_ROWS = rf"""
names=$({_PSQL} -d template1 -c "select 'dbname=' || chr(39) ||
  replace(replace(datname::text, chr(92), chr(92) || chr(92)), chr(39), chr(92) || chr(39)) || chr(39)
  from pg_database where datallowconn order by datname") || exit 1
printf '%s\n' "$names" | while IFS= read -r name; do
  {_PSQL} -d "$name" <<'END' || exit 1
set row_security = off; set statement_timeout = 0; set datestyle = 'ISO'; set intervalstyle = 'postgres'; set timezone = 'UTC';
set extra_float_digits = 1; set bytea_output = 'hex';
select format($f$select %L, count(*), md5(coalesce(string_agg(md5(t.ctid::text || record_out(t.*)::text), '' order by t.ctid), ''))
  from only %I.%I t$f$, current_database() || '.' || n.nspname || '.' || c.relname || '=', n.nspname, c.relname)
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where (c.relkind = 'r' or c.relkind = 'm' and c.relispopulated) and c.relpersistence <> 't' and n.nspname !~ '^pg_'
  and n.nspname <> 'information_schema' order by 1
\gexec
select format('select %L, last_value, is_called from %I.%I',
  current_database() || '.' || n.nspname || '.' || c.relname || '=', n.nspname, c.relname)
from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.relkind = 'S' and c.relpersistence <> 't' order by 1
\gexec
select current_database() || '.large objects=', count(*),
  md5(string_agg(concat_ws(' ', oid, lomowner, coalesce(lomacl::text, '-')), ',' order by oid)),
  (select md5(string_agg(md5(data) || loid || '/' || pageno, '' order by loid, pageno)) from pg_largeobject)
from pg_largeobject_metadata;
END
done
"""
# Two lines of a dump are for psql alone, with a key that is drawn each time. In a locale of its own, grep would take a dump that is
# not of its encoding for no text, and keep the rest of it to itself.
_DEFINITIONS = r"""
dump=$(pg_dumpall -U "${POSTGRES_USER:-postgres}" --schema-only) || exit 1
printf '%s\n' "$dump" | LC_ALL=C grep -vE '^[\](un)?restrict [0-9A-Za-z]+$'
"""
# What no dump of definitions has: of the databases that every server has, it leaves out settings and rights. A session of the
# commands before this one may need a moment to end.
_SESSION = "backend_type = 'client backend' and pid <> pg_backend_pid()"
_SERVER = rf"""
{_PSQL} -d template1 <<'END'
do $$ begin
  for n in 1..10 loop
    exit when not exists (select from pg_stat_activity where {_SESSION});
    perform pg_sleep(0.1), pg_stat_clear_snapshot();
  end loop;
end $$;
select 'setting ' || name || '=', case when name ~ 'conninfo|command' then md5(setting) else setting end, source
from pg_settings where source not in ('default', 'client', 'session', 'override')
union all select 'database ' || datname || '=', concat_ws(' ', pg_get_userbyid(datdba), pg_encoding_to_char(encoding),
  datistemplate, datallowconn, datconnlimit, coalesce(datacl::text, '-')), shobj_description(oid, 'pg_database') from pg_database
union all select 'set for ' || coalesce(r.rolname, 'every role') || ' in ' || coalesce(d.datname, 'every database') || '=',
  md5(s.setconfig::text), null from pg_db_role_setting s left join pg_roles r on r.oid = s.setrole
  left join pg_database d on d.oid = s.setdatabase
union all select 'prepared transaction ' || gid || '=', database, owner from pg_prepared_xacts
union all select 'replication slot ' || slot_name || '=', slot_type, database from pg_replication_slots
union all select 'replication origin ' || roname || '=', roident::text, null from pg_replication_origin
union all select 'sessions=', count(*)::text, null from pg_stat_activity where {_SESSION}
order by 1;
END
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Commands that tell what it keeps, by name; those of `pairs` print `name=value` lines. `answer` is what each of them prints
    where it does tell: some end well with a refusal. `ready` is a line for a shell, which ends with 0 once it answers, be it
    with a refusal. `directory` prints where its files lie, of which it writes `writes` when it likes. `remark` is for the
    author."""

    inside: Mapping[str, tuple[str, ...]]
    ready: str
    pairs: tuple[str, ...] = ()
    answer: str = ".*"
    directory: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    remark: str = ""

    def volatile(self, probe: str, program: str, directory: str) -> list[VolatileField]:
        """Its files change by themselves, in the container's layer or in a volume: no number of looks shows each of them."""
        reason = f"{program} writes it by itself; what it keeps there is asked for by {', '.join(self.inside)}, "
        reason += "and what others put there is not seen"
        place = glob.escape(directory.rstrip("/"))
        return [VolatileField(pattern=f"{glob.escape(probe)}/*{place}/{name}", reason=reason) for name in self.writes]


def shell(text: str) -> tuple[str, ...]:
    return ("sh", "-c", text.strip())


_POSTGRES = Server(
    inside={"rows": shell(_ROWS), "definitions": shell(_DEFINITIONS), "server": shell(_SERVER)},
    ready='pg_isready -q -d template1 -U "${POSTGRES_USER:-postgres}"',  # its port accepts while it still recovers, too
    pairs=("rows", "server"),
    directory=shell(f'{_PSQL} -d template1 -c "show data_directory"'),
    writes=("base*", "global*", "pg_[!hi]*", "postmaster.*"),  # all but the files of its settings
    remark="PostgreSQL is asked for rows and definitions by its superuser ($POSTGRES_USER, else postgres). The kind `postgres` "
    "reads far more of it, and resets in a fraction of the time: autoclave env new NAME --from postgresql://...",
)
_KEYS = r"\d+ keys [0-9a-f]{40}\s*"  # and not "NOAUTH Authentication required.", after which its client ends with 0, too


def _redis(client: str) -> Server:
    ready = f'case $({client} ping) in LOADING*|"") false ;; esac'  # while it loads its file it answers, but tells nothing
    return Server(inside={"keys": (client, "eval", _OF_REDIS.strip(), "0")}, answer=_KEYS, ready=ready)


SERVERS: Mapping[str, Server] = {
    "redis-server": _redis("redis-cli"),
    "valkey-server": _redis("valkey-cli"),
    "postgres": _POSTGRES,
}


def probe_of(programs: Iterable[str], resource: str, *, name: str) -> ProbeSpec:
    """The probe of a container with these servers, in the place of the one that comes by itself."""
    inside: dict[str, tuple[str, ...]] = {}
    pairs: list[str] = []
    for program in programs:
        server = SERVERS[program]
        called = {each: each if each not in inside else f"{program} {each}" for each in server.inside}
        inside |= {called[each]: argv for each, argv in server.inside.items()}
        pairs += [called[each] for each in server.pairs]
    options = {"inside": inside} | ({"pairs": tuple(pairs)} if pairs else {})
    return ProbeSpec(name=name, kind="container", resource=resource, depth=Depth.QUICK, options=options)


def running(processes: Iterable[ProcessInfo]) -> list[str]:
    """The known servers among the processes of an instance. Some write what they do after their name."""
    words = (p.argv[0].split() for p in processes if p.argv)
    programs = {word[0].rpartition("/")[2] for word in words if word}
    return [program for program in SERVERS if program in programs]
