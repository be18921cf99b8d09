"""Passwords of the portal's people: what they type, and `db/passwords.sql`, which holds what the portal stores of them.

`python -m envs.portal.people` writes that file. Words and salts follow from the names alone, so that every build is the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from envs.portal.app.portal.security import hashed

FILE = Path(__file__).parent / "db" / "passwords.sql"
_WORDS = (
    "amber",
    "basalt",
    "cedar",
    "delta",
    "ember",
    "fjord",
    "garnet",
    "harbour",
    "indigo",
    "juniper",
    "kelp",
    "linen",
    "maple",
    "nickel",
    "opal",
    "pebble",
    "quartz",
    "river",
    "saffron",
    "tundra",
    "umber",
    "violet",
    "willow",
    "yarrow",
)


def password(login: str) -> str:
    """Return what a person types to sign in."""
    digest = hashlib.blake2b(login.encode(), digest_size=4, person=b"password").digest()
    return f"{_WORDS[digest[0] % len(_WORDS)]}-{_WORDS[digest[1] % len(_WORDS)]}-{10 + digest[2] % 90}"


def render(logins: Sequence[str]) -> str:
    """Return the SQL that gives everybody their stored password."""
    lines = [
        f"update portal.people set password = '{hashed(password(login), _salt(login))}' where login = '{login}';\n"
        for login in logins
    ]
    # One statement each: the order in which the rows lie must not be the planner's choice.
    return "-- Made by python -m envs.portal.people; do not edit.\nset role portal_owner;\n" + "".join(lines)


def _salt(login: str) -> bytes:
    return hashlib.blake2b(login.encode(), digest_size=16, person=b"salt").digest()


def main() -> None:
    from envs.portal.scratch import logins

    FILE.write_text(render(logins()), "utf-8")


if __name__ == "__main__":
    main()
