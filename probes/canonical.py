"""Canonical text and digests: the same state gives the same bytes on every machine and in every run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import blake3

LISTING = "/"  # a field of this ending is a listing
_PLAIN = {ord(c): f"\\x{ord(c):02x}" for c in map(chr, (*range(32), 127))} | {ord("\\"): "\\\\"}
NAME_LIMIT = 300


def plain(text: str) -> str:
    """Escape control characters, backslashes and bytes that are not UTF-8, so that a name fits one line of a report."""
    return text.translate(_PLAIN).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def name_of(text: str) -> str:
    """Escape a name that the agent may have chosen; cut a long one and keep it unique by its digest."""
    escaped = plain(text)
    return (
        escaped
        if len(escaped) <= NAME_LIMIT
        else f"{escaped[:NAME_LIMIT]}...{bytes_digest(text.encode('utf-8', 'surrogateescape'))}"
    )


def bytes_digest(data: bytes) -> str:
    """Return 128 bits of BLAKE3 as hex."""
    return str(blake3.blake3(data).hexdigest(length=16))


def digest_of(parts: Iterable[str]) -> str:
    """Digest a sequence of texts; where one ends and the next begins counts."""
    hasher = blake3.blake3()
    for part in parts:
        data = part.encode("utf-8", "surrogateescape")
        hasher.update(len(data).to_bytes(8, "big"))
        hasher.update(data)
    return str(hasher.hexdigest())


def fields_digest(fields: Mapping[str, str]) -> str:
    """Digest fields, whatever order they were read in."""
    return digest_of(part for name in sorted(fields) for part in (name, fields[name]))


def listing(lines: Mapping[str, str]) -> str:
    """Make a listing's text. Names must be escaped already (`name_of`)."""
    return "\n".join(f"{name}\t{lines[name]}" for name in sorted(lines))


def lines_of(text: str) -> dict[str, str]:
    """Take a listing's text apart."""
    return {name: value for name, _, value in (line.partition("\t") for line in text.split("\n") if line)}
