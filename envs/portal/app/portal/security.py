"""Passwords, sessions and the tokens that keep other sites from posting in somebody's name."""

from __future__ import annotations

import hashlib
import hmac
import secrets

from .http import Problem, Request
from .wire import Connection, Row

SESSION_COOKIE = "portal_session"
VISIT_COOKIE = "portal_visit"
_SCRYPT = {"n": 2**13, "r": 8, "p": 1}
_DEVICES = (
    ("Android", "Chrome on Android"),
    ("iPhone", "Safari on iPhone"),
    ("Firefox", "Firefox on Linux"),
    ("Chrome", "Chrome on Linux"),
)


def hashed(password: str, salt: bytes) -> str:
    """Return what is stored of a password."""
    digest = hashlib.scrypt(password.encode(), salt=salt, n=_SCRYPT["n"], r=_SCRYPT["r"], p=_SCRYPT["p"], dklen=32)
    return f"scrypt${salt.hex()}${digest.hex()}"


def matches(password: str, stored: str) -> bool:
    try:
        _, salt, _ = stored.split("$")
        return hmac.compare_digest(hashed(password, bytes.fromhex(salt)), stored)
    except ValueError:
        return False


def new_hash(password: str) -> str:
    return hashed(password, secrets.token_bytes(16))


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def begin(db: Connection, person: Row, agent: str) -> str:
    """Open a session; return the token that its cookie holds."""
    token = secrets.token_urlsafe(32)
    device = next((name for word, name in _DEVICES if word in agent), "Another browser")
    db.rows(
        "insert into sessions (token_hash, person_id, csrf, device) values ($1, $2, $3, $4)",
        token_hash(token),
        person["id"],
        secrets.token_urlsafe(24),
        device,
    )
    return token


def recognise(request: Request) -> None:
    """Find who is signed in."""
    token = request.cookies.get(SESSION_COOKIE, "")
    if not token:
        return
    session = request.db.row("select id, person_id, csrf from sessions where token_hash = $1", token_hash(token))
    if session is None:
        return
    request.session = session
    request.person = request.db.row(
        "select p.*, d.name as department, d.cost_centre from people p join departments d on d.id = "
        "p.department_id where p.id = $1",
        session["person_id"],
    )


def token(request: Request) -> str:
    """Return the token that forms of this visitor must carry."""
    if request.session is not None:
        return str(request.session["csrf"])
    return request.cookies.get(VISIT_COOKIE) or ""


def guard(request: Request) -> None:
    """Refuse a post without the visitor's own token."""
    expected = token(request)
    given = request.headers.get("X-CSRF-Token") or request.text("csrf")
    if not expected or not hmac.compare_digest(expected.encode(), given.encode()):
        raise Problem(403, "This form is not valid any more. Go back, load the page again and repeat.")


def cookie(name: str, value: str, *, age: int | None = None) -> tuple[str, str]:
    until = "" if age is None else f"; Max-Age={age}"
    return ("Set-Cookie", f"{name}={value}; Path=/; HttpOnly; SameSite=Lax{until}")
