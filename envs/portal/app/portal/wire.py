"""A PostgreSQL client: one connection over a Unix socket, SCRAM log-in, statements with parameters, values in their types."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import socket
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

PROTOCOL = 196608
TIMEOUT_S = 20.0
_ERROR_FIELDS = {"C": "code", "M": "message", "n": "constraint"}
Row = dict[str, Any]


class DatabaseError(Exception):
    """What the server refused; `code` is its SQLSTATE."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__(fields.get("message", "the database gave no reason"))
        self.code = fields.get("code", "")
        self.constraint = fields.get("constraint", "")


_TYPES: dict[int, Callable[[str], Any]] = {
    16: lambda text: text == "t",
    20: int,
    21: int,
    23: int,
    1082: date.fromisoformat,
    1184: lambda text: datetime.fromisoformat(text[:19]).replace(tzinfo=UTC),  # sessions are in UTC; whole seconds will do
    1700: Decimal,
}


class Connection:
    """One session. Not for several threads; close it when the request is answered."""

    def __init__(self, directory: str, *, user: str, password: str, database: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(TIMEOUT_S)
        try:
            self._socket.connect(f"{directory}/.s.PGSQL.5432")
            self._file = self._socket.makefile("rb")
            settings = {
                "user": user,
                "database": database,
                "client_encoding": "UTF8",
                "TimeZone": "UTC",
                "DateStyle": "ISO",
                "search_path": "portal",
            }
            words = b"".join(f"{k}\0{v}\0".encode() for k, v in settings.items()) + b"\0"
            self._socket.sendall(struct.pack("!ii", len(words) + 8, PROTOCOL) + words)
            self._log_in(password)
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        """Say goodbye; a server that is gone already is no fault."""
        try:
            self._socket.sendall(_message(b"X", b""))
        except OSError:
            pass
        finally:
            self._file.close()
            self._socket.close()

    def rows(self, statement: str, *values: Any) -> list[Row]:
        """Run one statement with $1, $2, ... and return its rows."""
        given = [_text(value) for value in values]
        bound = b"".join(struct.pack("!i", -1) if v is None else struct.pack("!i", len(v)) + v for v in given)
        self._socket.sendall(
            _message(b"P", b"\0" + statement.encode() + b"\0\0\0")
            + _message(b"B", b"\0\0\0\0" + struct.pack("!h", len(given)) + bound + b"\0\0")
            + _message(b"D", b"P\0")
            + _message(b"E", b"\0\0\0\0\0")
            + _message(b"S", b"")
        )
        names: list[tuple[str, int]] = []
        found: list[Row] = []
        for kind, body in self._until_ready():
            if kind == b"T":
                names = list(_columns(body))
            elif kind == b"D":
                found.append(_row(body, names))
        return found

    def row(self, statement: str, *values: Any) -> Row | None:
        """Return the first row, or None."""
        found = self.rows(statement, *values)
        return found[0] if found else None

    def value(self, statement: str, *values: Any) -> Any:
        """Return the first column of the first row, or None."""
        found = self.row(statement, *values)
        return next(iter(found.values())) if found else None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what the block did, or undo it where it raises."""
        self.rows("begin")
        try:
            yield
        except BaseException:
            self.rows("rollback")
            raise
        self.rows("commit")

    def _log_in(self, password: str) -> None:
        nonce = secrets.token_urlsafe(18)
        bare = f"n=,r={nonce}"
        expected = b""
        for kind, body in self._until_ready():
            if kind != b"R":
                continue
            (code,) = struct.unpack("!i", body[:4])
            if code == 10:
                first = f"n,,{bare}".encode()
                self._socket.sendall(_message(b"p", b"SCRAM-SHA-256\0" + struct.pack("!i", len(first)) + first))
            elif code == 11:
                final, expected = _scram(password, bare, nonce, body[4:].decode())
                self._socket.sendall(_message(b"p", final))
            elif code == 12 and not hmac.compare_digest(body[4:], b"v=" + base64.b64encode(expected)):
                raise DatabaseError({"message": "the database server does not know the password"})
            elif code not in (0, 12):
                raise DatabaseError({"message": f"unknown way to log in: {code}"})

    def _until_ready(self) -> Iterator[tuple[bytes, bytes]]:
        error: dict[str, str] | None = None
        while True:
            head = self._file.read(5)
            if len(head) < 5:
                raise (error and DatabaseError(error)) or ConnectionError("the database server closed the connection")
            body = self._file.read(struct.unpack("!i", head[1:])[0] - 4)
            kind = head[:1]
            if kind == b"Z":
                break
            if kind == b"E":
                parts = [part.decode("utf-8", "replace") for part in body.split(b"\0") if part]
                error = {_ERROR_FIELDS[p[0]]: p[1:] for p in parts if p[0] in _ERROR_FIELDS}
            else:
                yield kind, body
        if error is not None:
            raise DatabaseError(error)


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _text(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, (list, tuple)):
        return ("{" + ",".join('"' + str(v).replace("\\", "\\\\").replace('"', '\\"') + '"' for v in value) + "}").encode()
    return str(value).replace("\0", "").encode()


def _columns(body: bytes) -> Iterator[tuple[str, int]]:
    (count,) = struct.unpack("!h", body[:2])
    place = 2
    for _ in range(count):
        end = body.index(b"\0", place)
        yield body[place:end].decode(), struct.unpack("!i", body[end + 7 : end + 11])[0]
        place = end + 19


def _row(body: bytes, names: list[tuple[str, int]]) -> Row:
    out: Row = {}
    place = 2
    for name, kind in names:
        (length,) = struct.unpack("!i", body[place : place + 4])
        place += 4
        if length < 0:
            out[name] = None
            continue
        text = body[place : place + length].decode()
        out[name] = _TYPES.get(kind, str)(text)
        place += length
    return out


def _scram(password: str, bare: str, nonce: str, challenge: str) -> tuple[bytes, bytes]:
    """Return the client's last message and the signature that the server must answer with."""
    given = dict(part.split("=", 1) for part in challenge.split(","))
    if not given["r"].startswith(nonce):
        raise DatabaseError({"message": "the database server answered somebody else"})
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(given["s"]), int(given["i"]))
    client = hmac.new(salted, b"Client Key", hashlib.sha256).digest()
    without = f"c=biws,r={given['r']}"
    signed = f"{bare},{challenge},{without}".encode()
    signature = hmac.new(hashlib.sha256(client).digest(), signed, hashlib.sha256).digest()
    proof = bytes(a ^ b for a, b in zip(client, signature, strict=True))
    server = hmac.new(hmac.new(salted, b"Server Key", hashlib.sha256).digest(), signed, hashlib.sha256).digest()
    return f"{without},p={base64.b64encode(proof).decode()}".encode(), server
