"""Requests as the pages see them, and their answers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlsplit

from .wire import Connection, Row

BODY_LIMIT = 6_000_000
_PART_NAME = re.compile(r'[; ]name="([^"]*)"')
_FILE_NAME = re.compile(r'[; ]filename="([^"]*)"')


class Problem(Exception):
    """A request that cannot be answered as asked: status and what to tell the person."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Upload:
    """A file of a form."""

    filename: str
    media_type: str
    data: bytes


@dataclass
class Request:
    """One request; `person` and `csrf` are there when somebody is signed in."""

    method: str
    target: str
    headers: Any
    body: bytes
    db: Connection
    path: str = ""
    query: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    person: Row | None = None
    session: Row | None = None
    _form: dict[str, list[str]] | None = None
    _files: dict[str, Upload] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = urlsplit(self.target)
        self.path = parts.path
        self.query = {name: values[-1].strip() for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        try:
            self.cookies = {name: morsel.value for name, morsel in SimpleCookie(self.headers.get("Cookie", "")).items()}
        except CookieError:
            self.cookies = {}

    @property
    def me(self) -> int:
        """The number of the person who is signed in."""
        if self.person is None:
            raise Problem(401, "Please sign in first.")
        return int(self.person["id"])

    @property
    def wants_json(self) -> bool:
        return self.path.startswith("/api/")

    def form(self) -> dict[str, list[str]]:
        """Return the fields of the posted form."""
        if self._form is None:
            kind = self.headers.get("Content-Type", "")
            if kind.startswith("multipart/form-data"):
                self._form, self._files = _multipart(kind, self.body)
            elif kind.startswith("application/json"):
                self._form = _from_json(self.body)
            else:
                self._form = parse_qs(self.body.decode("utf-8", "replace"), keep_blank_values=True)
        return self._form

    def text(self, name: str, *, limit: int = 200, needed: bool = False) -> str:
        """Return one field, trimmed; refuse what is too long or missing."""
        value = (self.form().get(name) or [""])[-1].strip().replace("\r\n", "\n")
        if len(value) > limit:
            raise Problem(400, f"“{name}” is longer than {limit} characters.")
        if needed and not value:
            raise Problem(400, f"“{name}” must not be empty.")
        return value

    def number(self, name: str, least: int, most: int) -> int:
        """Return one field as a whole number within bounds."""
        value = self.text(name)
        if not re.fullmatch(r"-?[0-9]{1,9}", value) or not least <= int(value) <= most:
            raise Problem(400, f"“{name}” must be a whole number from {least} to {most}.")
        return int(value)

    def choice(self, name: str, among: Any) -> str:
        value = self.text(name)
        if value not in among:
            raise Problem(400, f"“{name}” cannot be {value or 'empty'}.")
        return value

    def file(self, name: str) -> Upload | None:
        self.form()
        return self._files.get(name)


@dataclass
class Response:
    """An answer; `headers` may name one more than once."""

    body: bytes
    status: int = 200
    media_type: str = "text/html; charset=utf-8"
    headers: list[tuple[str, str]] = field(default_factory=list)


def as_json(data: Any, status: int = 200) -> Response:
    return Response(json.dumps(data, default=str).encode(), status, "application/json")


def redirect(place: str, notice: str = "") -> Response:
    """Send the browser on; `notice` is shown once on the next page."""
    headers = [("Location", place)]
    if notice:
        headers.append(("Set-Cookie", f"portal_notice={notice.encode('utf-8').hex()}; Path=/; Max-Age=60; SameSite=Lax"))
    return Response(b"", 303, headers=headers)


def _from_json(body: bytes) -> dict[str, list[str]]:
    try:
        data = json.loads(body or b"{}")
    except ValueError:
        raise Problem(400, "The body is not JSON.") from None
    if not isinstance(data, dict):
        raise Problem(400, "The body must be a JSON object.")
    return {str(name): [str(value)] for name, value in data.items()}


def _multipart(kind: str, body: bytes) -> tuple[dict[str, list[str]], dict[str, Upload]]:
    found = re.search(r'boundary="?([^";]+)"?', kind)
    if not found:
        raise Problem(400, "The form has no boundary.")
    fields: dict[str, list[str]] = {}
    files: dict[str, Upload] = {}
    for part in body.split(b"--" + found[1].encode())[1:-1]:
        head, _, data = part.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        data = data.removesuffix(b"\r\n")
        text = head.decode("utf-8", "replace")
        name = _PART_NAME.search(text)
        if not name:
            continue
        filename = _FILE_NAME.search(text)
        if filename is None:
            fields.setdefault(name[1], []).append(data.decode("utf-8", "replace"))
        elif filename[1]:
            media = re.search(r"(?im)^content-type: *([\w.+/-]+)", text)
            files[name[1]] = Upload(filename[1], media[1] if media else "application/octet-stream", data)
    return fields, files
