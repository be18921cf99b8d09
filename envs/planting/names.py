"""What the names in a leak's text stand for here: a table with rows and its key, a file that is there, a site's cookie."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from sandbox.errors import InstanceLost
from sandbox.model import EnvironmentSpec, ResourceSpec
from sandbox.ports import Instance, Tree
from sandbox.ports.container import HasContainers

Names = dict[str, str]
OUTSIDE = "/tmp/autoclave-outside"  # beside what an environment keeps, in the sandbox of whoever plants

# The table of which a row can be added with nothing but a text: the fewer triggers, checks and further indexes it has, the better.
_TABLE = """
select t.oid, t.oid::regclass::text, quote_ident(c.attname), quote_ident(k.attname),
  pg_get_serial_sequence(t.oid::regclass::text, k.attname)
from pg_class t
join pg_namespace n on n.oid = t.relnamespace and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
join pg_index p on p.indrelid = t.oid and p.indisprimary and p.indnkeyatts = 1
join pg_attribute k on k.attrelid = t.oid and k.attnum = p.indkey[0] and k.atttypid in (20, 23) and k.attidentity <> 'a'
join pg_attribute c on c.attrelid = t.oid and c.attnum > 0 and c.atttypid in (25, 1043)
  and not c.attisdropped and c.attgenerated = ''
where t.relkind = 'r' and t.relpersistence = 'p' and not t.relispartition and t.reltuples <> 0
  and pg_get_serial_sequence(t.oid::regclass::text, k.attname) is not null
  and not exists (select from pg_index u where u.indrelid = t.oid and u.indisunique and c.attnum = any (u.indkey))
order by
  (select count(*) from pg_attribute o where o.attrelid = t.oid and o.attnum > 0 and not o.attisdropped and o.attnotnull
     and not o.atthasdef and o.attidentity = '' and o.attnum not in (c.attnum, k.attnum)),
  (select count(*) from pg_constraint x where x.conrelid = t.oid and x.contype = 'c' and c.attnum = any (x.conkey)),
  (select count(*) from pg_trigger g where g.tgrelid = t.oid and not g.tgisinternal),
  (select count(*) from pg_constraint x where x.confrelid = t.oid),
  t.oid::regclass::text, c.attnum
limit 1
"""
_FURTHER = {
    "index": """select i.indexrelid::regclass::text from pg_index i join pg_class t on t.oid = i.indrelid
        join pg_namespace n on n.oid = t.relnamespace and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
        where not i.indisunique order by (i.indrelid = %(table)s) desc, 1 limit 1""",
    "view": """select v.oid::regclass::text from pg_class v join pg_namespace n on n.oid = v.relnamespace and n.nspname !~ '^pg_'
        where v.relkind = 'm' order by 1 limit 1""",
    "unlogged": """select t.oid::regclass::text from pg_class t where t.relkind = 'r' and t.relpersistence = 'u'
        and (select array_agg(a.atttypid::int) from pg_attribute a where a.attrelid = t.oid and a.attnum > 0) = array[23]
        order by 1 limit 1""",
    "function": """select p.oid::regproc::text from pg_proc p join pg_namespace n on n.oid = p.pronamespace
        where n.nspname !~ '^pg_' and n.nspname <> 'information_schema' and p.prokind = 'f' and p.pronargs = 0
          and p.prorettype = 'trigger'::regtype order by 1 limit 1""",
    "required": """select quote_ident(a.attname) from pg_attribute a join pg_index p on p.indrelid = a.attrelid and p.indisprimary
        where a.attrelid = %(table)s and a.attnum > 0 and a.attnotnull and a.attidentity = '' and not a.attisdropped
          and a.attnum <> all (p.indkey) order by (quote_ident(a.attname) = %(column)s) desc, a.attnum limit 1""",
    "triggered": """select g.tgrelid::regclass::text from pg_trigger g join pg_class t on t.oid = g.tgrelid
        join pg_namespace n on n.oid = t.relnamespace and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
        where not g.tgisinternal and g.tgenabled <> 'D' order by (g.tgrelid = %(table)s) desc, 1 limit 1""",
    "data": "select current_setting('data_directory')",
    "oid": "select oid::text from pg_database where datname = current_database()",
    "libraries": "select current_setting('shared_preload_libraries')",
    "extensions": "select string_agg(name, ' ') from pg_available_extensions where installed_version is null",
}
# Places of a container that its user may change, harmless ones first, with nothing but what every shell has: `d` a directory, `f` a
# file in one. A container that was just restored is asked, so that its answers are the image's.
_PLACES = """
home=${HOME%/}
here=${PWD%/}
for d in "$home" "$here" /var/lib/* /opt/* /opt /srv/* /srv /usr/local/* /etc/* /etc /var/tmp; do
  [ -n "$d" ] && [ -d "$d" ] && [ ! -h "$d" ] && [ -w "$d" ] && [ -x "$d" ] && echo "d $d"
done
for f in "${home:-/none}"/* "${here:-/none}"/* /var/lib/*/* /opt/*/* /srv/*/* /usr/local/*/* /etc/*.conf /etc/*/* /etc/*; do
  [ -f "$f" ] && [ ! -h "$f" ] && [ -s "$f" ] && [ -w "$f" ] && [ -w "${f%/*}" ] && echo "f $f"
done
[ ! -w /etc ] || echo root
"""


# Without them nothing would start any more.
_SYSTEMS = (
    "/etc/passwd*",
    "/etc/group*",
    "/etc/*shadow*",
    "/etc/ld.so*",
    "/etc/hosts",
    "/etc/hostname",
    "/etc/resolv.conf",
    "*.so*",
)


async def of_database(address: str, agents: str) -> Names:
    """Look the names up in the database of the agent's own address, as its superuser; what it does not have is left out."""
    found: Names = {**of_address(agents), "outside": OUTSIDE}
    connecting = psycopg.AsyncConnection.connect(
        address, autocommit=True, connect_timeout=20, dbname=str(conninfo_to_dict(agents)["dbname"])
    )
    async with await connecting as connection:
        await connection.execute("set default_transaction_read_only = on")
        row = await (await connection.execute(_TABLE)).fetchone()
        table = 0
        if row is not None:
            table = row[0]
            found |= dict(zip(("table", "column", "key", "sequence"), row[1:], strict=True))
        for name, text in _FURTHER.items():
            given = {"table": table, "column": found.get("column")}
            one = await (await connection.execute(text.encode(), given)).fetchone()
            if one is not None and one[0]:
                found[name] = one[0]
    return found


def of_address(agents: str) -> Names:
    """What an address itself says. Each part of a shared server has another."""
    given = conninfo_to_dict(agents)
    return {name: sql.Identifier(str(given[key])).as_string() for name, key in (("role", "user"), ("database", "dbname"))}


def of_tree(tree: Tree) -> Names:
    """Choose a plain file and a directory that holds files, the same ones each time. Blocking."""
    entries = sorted((e for e in tree.walk() if ".git" not in e.path.split("/")), key=lambda e: (e.path.count("/"), e.path))
    names: Names = {"OUTSIDE": OUTSIDE}
    files = [e for e in entries if e.kind == "file" and e.size > 1]
    if files:
        names["FILE"] = next((e.path for e in files if "/" in e.path), files[0].path)
    inside = [e.path.rpartition("/")[0] for e in files if "/" in e.path]
    if inside:
        names["FOLDER"] = inside[0]
    return names


async def of_agent(spec: EnvironmentSpec, instance: Instance) -> Names:
    """Return the agent's own directories, where no resource lies there, by the name of who reads them."""
    said = (await instance.run(["/bin/sh", "-c", 'echo "$HOME"'], limit_s=30)).stdout.decode().strip()
    taken = {r.name for r in spec.resources}
    found: Names = {}
    for owner, place in (("home", said), ("workspace", spec.workdir)):
        try:
            instance.subject().tree(f"agent-{owner}" if owner in taken else owner)
        except (InstanceLost, LookupError):
            continue
        found[f"agent-{owner}" if owner in taken else owner] = place
    return found


async def of_container(resource: ResourceSpec, instance: Instance) -> Names:
    """Ask the container for places of its image that the agent may change, and its engine for volumes. What its server changes by
    itself is left out, and so is what the system keeps there."""
    names: Names = {"CONTAINER": resource.name, "PLACE": "/", "OUTSIDE": OUTSIDE}
    subject = instance.subject()
    assert isinstance(subject, HasContainers)
    view = subject.container(resource.name)
    mounts = [line.rsplit(" ", 2) for line in (await view.state()).mounts]
    volumes = [target for target, kind, mode in mounts if kind == "volume" and mode == "rw"]
    taken = {*(target for target, _, _ in mounts), *map(str, resource.options.get("tmpfs", ()))}
    changed = await view.changes(contents=False)
    if volumes:
        names["VOLUME"] = volumes[0]
    said = (await instance.run(["/bin/sh", "-c", _PLACES], limit_s=30)).stdout.decode(errors="surrogateescape")
    for line in said.splitlines():
        kind, _, path = line.partition(" ")
        if kind == "root":
            names["ROOT"] = "yes"
        elif not any(f"{path}/".startswith(f"{place.rstrip('/')}/") for place in taken) and path not in changed:
            if kind == "d":
                names.setdefault("OUTSIDE_IMAGE", path)
            elif not any(fnmatchcase(path, pattern) for pattern in _SYSTEMS):
                names.setdefault("FILE", path)
    found = names.pop("OUTSIDE_IMAGE", "")
    names["OUTSIDE"], names["PLACE"] = found or OUTSIDE, found or "/tmp"
    return names


def of_browser(resource: ResourceSpec) -> Names:
    """Read them off the resource's options: two sites, and what golden keeps for the first."""
    options: Mapping[str, Any] = resource.options
    sites = list(options.get("sites", ()))
    names: Names = {}
    for name, host in zip(("origin", "other"), sites, strict=False):
        names[name] = f"http://{host}"
    for cookie in options.get("cookies", ()):
        if sites and str(cookie.get("domain", "")).lstrip(".") == sites[0]:
            names |= {"cookie": str(cookie["name"]), "domain": str(cookie["domain"])}
            break
    for key in options.get("storage", {}).get(names.get("origin", ""), {}):
        names["item"] = str(key)
        break
    if sites:
        names.setdefault("domain", sites[0])
    return names
