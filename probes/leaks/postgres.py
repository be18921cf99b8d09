"""The catalogue's part for PostgreSQL: what an agent can leave behind in a server."""

from __future__ import annotations

from probes.leaks.catalogue import Catalogue
from probes.leaks.leak import Needs, SqlLeak
from probes.leaks.postgres_objects import OBJECTS
from sandbox.model import Depth, ResetMethod

ROWS = (
    SqlLeak(name="row-insert", what="one row more", sql=("insert into {table} ({column}) values ('planted')",)),
    SqlLeak(
        name="row-update",
        what="a value changed, the count the same",
        sql=("update {table} set {column} = 'planted' where {key} = (select min({key}) from {table})",),
    ),
    SqlLeak(
        name="row-swap",
        what="two rows exchange a value: every column still holds the same values",
        sql=(
            "with pair as (select x.{key} p, (select min(y.{key}) from {table} y where y.{column} is distinct from x.{column}) q "
            "from {table} x order by 1 limit 1) update {table} a set {column} = b.{column} from {table} b, pair "
            "where (a.{key}, b.{key}) in ((p, q), (q, p))",
        ),
    ),
    SqlLeak(
        name="heap-order",
        what="a row written anew with the same values lies elsewhere",
        seen=Depth.DEEP,
        sql=(  # of more than one row, or there is no order
            "update {table} set {column} = {column} where {key} = (select min({key}) from {table} having count(*) > 1)",
        ),
    ),
    SqlLeak(name="sequence-nextval", what="a number taken", sql=("select nextval('{sequence}')",)),
    SqlLeak(
        name="sequence-rollback",
        what="a number burnt by an insert that was rolled back",
        sql=(
            "begin",
            "insert into {table} ({column}) values ('planted')",
            "rollback",
        ),
    ),
    SqlLeak(
        name="sequence-increment", what="a sequence that counts in other steps", sql=("alter sequence {sequence} increment 5",)
    ),
    SqlLeak(
        name="materialized-view",
        what="a view refreshed over rows that were taken away since",
        sql=(
            "insert into {table} ({key}, {column}) values (-1, 'planted')",
            "refresh materialized view {view}",
            "delete from {table} where {key} = -1",
        ),
    ),
    SqlLeak(
        name="unlogged-table", what="a row in a table that leaves no trace in the log", sql=("insert into {unlogged} values (99)",)
    ),
    SqlLeak(name="large-object", what="a large object more", sql=("select lo_from_bytea(0, '\\x6e6f7465')",)),
    SqlLeak(
        name="planner-statistics",
        what="other statistics for the planner",
        seen=Depth.DEEP,
        sql=(
            "set default_statistics_target = 7",
            "analyze {table}",
        ),
    ),
)
ROLES_AND_SETTINGS = (
    SqlLeak(
        name="role",
        repaired_by=ResetMethod.RESTORE,
        what="a role that may log in",
        needs=Needs.SUPERUSER,
        sql=("create role planted login password 'x'",),
    ),
    SqlLeak(
        name="role-password",
        repaired_by=ResetMethod.RESTORE,
        what="the agent's own password",
        sql=("alter role {role} password 'planted'",),
    ),
    SqlLeak(
        name="role-nologin",
        repaired_by=ResetMethod.RESTORE,
        what="a role that may no longer log in",
        needs=Needs.SUPERUSER,
        sql=("alter role {role} nologin",),
    ),
    SqlLeak(
        name="role-membership",
        repaired_by=ResetMethod.RESTORE,
        what="a membership in a role that reads everything",
        needs=Needs.SUPERUSER,
        sql=("grant pg_read_all_data to {role}",),
    ),
    SqlLeak(
        name="role-setting",
        repaired_by=ResetMethod.RESTORE,
        what="a search path for every later session of a role",
        sql=("alter role {role} set search_path = planted",),
    ),
    SqlLeak(
        name="database-setting",
        what="a time zone for every later session of a database",
        sql=("alter database {database} set timezone = 'Asia/Tokyo'",),
    ),
    SqlLeak(
        name="role-in-database-setting",
        what="a setting of a role in one database",
        sql=("alter role {role} in database {database} set work_mem = '64kB'",),
    ),
    SqlLeak(
        name="system-setting-pending",
        what="a setting that waits for the next reload",
        needs=Needs.SUPERUSER,
        sql=("alter system set work_mem = '64kB'",),
    ),
    SqlLeak(
        name="system-setting-loaded",
        what="a setting in force",
        needs=Needs.SUPERUSER,
        sql=(
            "alter system set enable_indexscan = off",
            "select pg_reload_conf()",
        ),
    ),
    SqlLeak(
        name="parameter-privilege",
        repaired_by=ResetMethod.RESTORE,
        what="the right to set a parameter",
        needs=Needs.SUPERUSER,
        sql=("grant set on parameter log_statement to {role}",),
    ),
    SqlLeak(
        name="database-privilege",
        what="the right to connect taken away",
        sql=("revoke connect on database {database} from public",),
    ),
    SqlLeak(name="database-limit", what="a limit on connections", sql=("alter database {database} connection limit 3",)),
    SqlLeak(name="database", what="another database", needs=Needs.SUPERUSER, sql=("create database planted",)),
    SqlLeak(name="database-comment", what="a comment on the database", sql=("comment on database {database} is 'planted'",)),
    SqlLeak(
        name="role-comment",
        repaired_by=ResetMethod.RESTORE,
        what="a comment on a role",
        needs=Needs.SUPERUSER,
        sql=("comment on role {role} is 'planted'",),
    ),
    SqlLeak(
        name="template1",
        repaired_by=ResetMethod.RESTORE,
        what="a table in the template of every later database",
        needs=Needs.SUPERUSER,
        database="template1",
        sql=("create table public.planted (a int)",),
    ),
    SqlLeak(
        name="postgres-database",
        repaired_by=ResetMethod.RESTORE,
        what="a table in the maintenance database",
        needs=Needs.SUPERUSER,
        database="postgres",
        sql=("create table public.planted (a int)",),
    ),
    SqlLeak(
        name="tablespace",
        repaired_by=ResetMethod.RESTORE,
        what="a tablespace outside the data directory",
        needs=Needs.SUPERUSER,
        sql=("create tablespace planted location '{outside}'",),
    ),
)
SESSIONS_AND_SLOTS = (
    SqlLeak(
        name="prepared-transaction",
        what="a prepared transaction that holds its locks",
        sql=(
            "begin",
            "insert into {table} ({column}) values ('planted')",
            "prepare transaction 'planted'",
        ),
    ),
    SqlLeak(name="advisory-lock", what="a lock held by an open session", held=True, sql=("select pg_advisory_lock(42)",)),
    SqlLeak(
        name="temporary-table", what="a temporary table of an open session", held=True, sql=("create temp table planted (a int)",)
    ),
    SqlLeak(
        name="idle-in-transaction",
        what="an open transaction",
        held=True,
        sql=(
            "begin",
            "select 1 from {table} limit 1",
        ),
    ),
    SqlLeak(name="listen", what="a session that listens", held=True, sql=("listen planted",)),
    SqlLeak(name="session-setting", what="a setting inside an open session", held=True, sql=("set search_path = planted",)),
    SqlLeak(
        name="prepared-statement",
        what="a prepared statement inside an open session",
        held=True,
        sql=("prepare planted as select 1",),
    ),
    SqlLeak(
        name="notification",
        what="a notification that waits for a listener",
        held=True,
        then=("select pg_notify('planted', repeat('x', 7000))",),
        sql=(
            "listen planted",
            "begin",
            "select 1",
        ),
    ),
    SqlLeak(
        name="logical-slot",
        what="a logical replication slot",
        needs=Needs.SUPERUSER,
        sql=("select pg_create_logical_replication_slot('planted', 'pgoutput')",),
    ),
    SqlLeak(
        name="physical-slot",
        what="a physical replication slot",
        needs=Needs.SUPERUSER,
        sql=("select pg_create_physical_replication_slot('planted', true)",),
    ),
    SqlLeak(
        name="replication-origin",
        repaired_by=ResetMethod.RESTORE,
        what="a replication origin",
        needs=Needs.SUPERUSER,
        sql=("select pg_replication_origin_create('planted')",),
    ),
    SqlLeak(
        name="publication",
        what="a publication of every table",
        needs=Needs.SUPERUSER,
        sql=("create publication planted for all tables",),
    ),
    SqlLeak(
        name="subscription",
        repaired_by=ResetMethod.RESTORE,
        what="a subscription to another server",
        needs=Needs.SUPERUSER,
        sql=(
            "create subscription planted connection 'host=/nowhere dbname=x' publication p "
            "with (connect = false, slot_name = none, enabled = false)",
        ),
    ),
    SqlLeak(
        name="statement-text",
        what="the text of a statement that pg_stat_statements keeps",
        needs_library="pg_stat_statements",
        sql=("select 1 as planted",),
    ),
)
FILES = (
    SqlLeak(
        name="file-in-data-directory",
        repaired_by=ResetMethod.RESTORE,
        what="a file in the data directory",
        needs=Needs.SUPERUSER,
        sql=("copy (select 1) to '{data}/planted.txt'",),
    ),
    SqlLeak(
        name="file-among-relations",
        what="a file in the directory of a database",
        needs=Needs.SUPERUSER,
        sql=("copy (select 1) to '{data}/base/{oid}/planted.txt'",),
    ),
    SqlLeak(
        name="file-named-like-a-relation",
        what="a file that looks like a relation",
        needs=Needs.SUPERUSER,
        seen=Depth.DEEP,
        sql=("copy (select 1) to '{data}/base/{oid}/999999'",),
    ),
    SqlLeak(
        name="access-rules",
        repaired_by=ResetMethod.RESTORE,
        what="the rules of who may connect",
        needs=Needs.SUPERUSER,
        sql=("copy (select 'local all all trust') to '{data}/pg_hba.conf'",),
    ),
    SqlLeak(
        name="server-program",
        what="a file that a program of the server wrote elsewhere",
        needs=Needs.SUPERUSER,
        seen=None,
        blind="files outside the data directory are not the database probe's; the server's sandbox has a read-only root",
        sql=("copy (select 1) to program 'cat > {outside}/planted.txt'",),
    ),
)
PROGRAMS = (
    SqlLeak(
        name="server-process",
        what="a program of the server that goes on",
        needs=Needs.SUPERUSER,
        repaired_by=ResetMethod.RESTORE,
        shows="process/server *",
        sql=("copy (select 1) to program 'setsid sleep 600 >/dev/null 2>&1 </dev/null & sleep 0.1'",),
    ),
)
LEAKS: tuple[SqlLeak, ...] = (*ROWS, *ROLES_AND_SETTINGS, *SESSIONS_AND_SLOTS, *OBJECTS, *FILES, *PROGRAMS)
CATALOGUE = Catalogue(kind="postgres", leaks=LEAKS)
