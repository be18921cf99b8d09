"""A server that several namespaces share: whose field is whose.

Each part has a role and a database or schema of one random name, which only the manager gives. A field that names a part is that
part's; one that names two concerns both; one that names none is the server's, and no holder may change it. What holders may rightly
change for as long as they work there (sessions, locks, temporary files) is read at a barrier only, when nobody does.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from probes.postgres.connection import literal
from sandbox.model import Isolation
from sandbox.ports import Part, Sharing

OWN, OTHER, PART = "(own)", "(other)", "(part)"
WALLS = "walls/"  # who could act on a part but its holder
RUNNING = ("sessions/", "background processes/", "locks/")
# Holders change these by working; a barrier reads them when nobody works.
DIRECTORIES = "data directory base"  # names one that is just being made or removed by its number
AT_A_BARRIER = (
    *RUNNING,
    *("notification queue", "temporary files", "prepared transactions/", "data directory pg_twophase", DIRECTORIES),
)
# How many roles are members of the agent's: the memberships themselves are read.
COUNTED = "shared dependencies/*/pg_auth_members/"
# What follows so many words of these is a holder's own choice: another part's name in it says nothing of that part.
CHOSEN = {"sessions/": 3, "prepared transactions/": 1}
_MADE_WHEN_NEEDED = "pgsql_tmp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Whose fields are read, by the names that there were before and after the reading."""

    own: Part | None
    names: frozenset[str]

    @classmethod
    def of(cls, sharing: Sharing, before: Collection[str]) -> Scope:
        own = frozenset() if sharing.own is None else frozenset((sharing.own.name,))
        return cls(own=sharing.own, names=frozenset(before) | frozenset(sharing.names) | own)

    def fields(self, found: Mapping[str, str]) -> dict[str, str]:
        """Keep what is due in this scope, with the names of parts replaced by what they stand for."""
        kept: dict[str, str] = {}
        for name, text in found.items():
            if name == DIRECTORIES and self.own is None:
                lines = [n for n in text.split("\n") if n not in self.names and n != _MADE_WHEN_NEEDED]
                kept[name] = "\n".join(lines)
            elif self._wanted(name):
                given, chosen = _split(name)
                kept[self._said(given) + chosen] = self._said(text)
        return kept

    def _wanted(self, name: str) -> bool:
        named = self._named(_split(name)[0])
        if self.own is None:
            return len(named) != 1 and not name.startswith(COUNTED)
        if self.own.name in named:
            return True
        return not named and not name.startswith((*AT_A_BARRIER, COUNTED))

    def _named(self, text: str) -> set[str]:
        return set(_pattern(self.names).findall(text)) if self.names else set()

    def _said(self, text: str) -> str:
        if not self.names:
            return text
        own = None if self.own is None else self.own.name
        return _pattern(self.names).sub(lambda m: PART if own is None else OWN if m[0] == own else OTHER, text)


def _split(name: str) -> tuple[str, str]:
    """Part a field's name into what the server gave and what a holder chose."""
    for prefix, words in CHOSEN.items():
        if name.startswith(prefix):
            given = "/".join(name.split("/", words)[:words])
            return given, name[len(given) :]
    return name, ""


def _pattern(names: Collection[str]) -> re.Pattern[str]:
    return re.compile(r"(?<![0-9a-z_])(?:" + "|".join(map(re.escape, sorted(names))) + r")(?![0-9a-z_])")


def of_instance(field: str) -> bool:
    """True for a field, as `Scope.fields` names it, that is the whole server's: it names no part, or ties two together."""
    return OWN not in field or OTHER in field or field.startswith(WALLS)


def walls(part: Part) -> str:
    """Who else could act on a part, through whatever chain of memberships: nobody but superusers should be able to. A schema is
    asked for in its own database."""
    name = literal(part.name)
    others = f"from pg_catalog.pg_roles r where not r.rolsuper and r.rolname <> {name} and r.rolname !~ '^pg_'"
    listed = "coalesce(pg_catalog.string_agg(r.rolname::text, E'\\n' order by r.rolname), '')"
    reach = (
        f"pg_catalog.has_database_privilege(r.oid, {name}, 'connect')"
        if part.isolation is Isolation.DATABASE
        else f"pg_catalog.has_schema_privilege(r.oid, {name}, 'usage, create')"
    )
    return (
        f"select '{WALLS}' || {name} || ' can be become by', {listed} {others} and pg_catalog.pg_has_role(r.oid, {name}, 'member') "
        f"union all select '{WALLS}' || {name} || ' can be reached by', {listed} {others} and {reach}"
    )


def password(part: Part) -> str:
    return f"select a.rolpassword from pg_catalog.pg_authid a where a.rolname = {literal(part.name)}"


def is_ours(verifier: str | None, secret: str) -> bool:
    """True where what the server keeps is that of the generation's own secret."""
    try:
        method, iterations, rest = (verifier or "").replace(":", "$", 1).split("$", 2)
        salt, keys = rest.split("$")
        salted = hashlib.pbkdf2_hmac("sha256", secret.encode(), base64.b64decode(salt), int(iterations))
        stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
        server = hmac.digest(salted, b"Server Key", "sha256")
        wanted = f"{base64.b64encode(stored).decode()}:{base64.b64encode(server).decode()}"
    except ValueError:
        return False
    return method == "SCRAM-SHA-256" and hmac.compare_digest(keys, wanted)
