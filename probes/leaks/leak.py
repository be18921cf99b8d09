"""What a planted leak is: a state change, written as data, that a reset may miss and a check must see."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sandbox.model import Depth, ResetMethod

# By what there is: few images have setfattr, and some have no Python.
SET_ATTRIBUTE = (
    'setfattr -n user.planted -v x "$FILE" 2>/dev/null || '
    """python3 -c "import os, sys; os.setxattr(sys.argv[1], 'user.planted', b'x')" "$FILE\""""
)


class Needs(StrEnum):
    """The least right with which an agent can plant it."""

    OWNER = "owner"  # the agent's own role or user, owner of the schema or of the files
    SUPERUSER = "superuser"  # of the database server
    ROOT = "root"  # of the machine: inside a sandbox without capabilities nobody has it


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """One entry of the catalogue. `seen` is the depth at which a check that follows no reset (in place) must see it; None where
    no probe can, with the reason in `blind`. `repaired_by` is the weakest reset of ours that must undo it: `clean` also means
    restore and rebuild. `shows` is the field that must differ, as a shell-style pattern (with names in braces, see below), where
    planting changes others as well. `shown_within_s` is for what is on the disk only later."""

    name: str
    what: str
    needs: Needs = Needs.OWNER
    seen: Depth | None = Depth.QUICK
    repaired_by: ResetMethod = ResetMethod.CLEAN
    shows: str = "*"
    blind: str = ""
    shown_within_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlLeak(Leak):
    """Planted by statements, run one by one in one autocommitting session of the environment's database (or of `database`).

    Names in braces stand for things of the environment: {database}, {role} (the agent's), {table} (one with rows, a text column
    {column} and a serial key), {key}, {sequence} (the key's), {required} (a column that is never null), {triggered} (a table with a
    trigger), {index} (a further one), {view} (a materialised one), {unlogged}, {function} (a trigger's), {data} (the data directory
    as the server sees it), {oid} (the database's) and {outside} (a writable directory elsewhere).
    `held` sessions stay open until the check is done.
    """

    sql: tuple[str, ...]
    database: str = "{database}"
    held: bool = False
    then: tuple[str, ...] = ()  # run afterwards in a second session
    needs_library: str = ""  # one that the server must have loaded at its start
    needs_extension: str = ""  # one that the server must offer, and that the database does not have


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellLeak(Leak):
    """Planted by shell text, run with the state directory as its working directory, `$FILE` naming a file in it (a tracked one, in
    a repository), `$FOLDER` a directory with files, `$OUTSIDE` a directory beside it and `$VOLUME` a container's volume.
    `programs` are those that it cannot do without; of `a|b` one is enough."""

    shell: str
    programs: tuple[str, ...] = ()
