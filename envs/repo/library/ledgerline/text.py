"""Text for people: wrapping, shortening, slugs, nearness."""

from __future__ import annotations

import unicodedata


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Break into lines of at most `width`; further lines begin with `indent`; a longer word gets a line of its own."""
    if width <= len(indent):
        raise ValueError("the indent leaves no room")
    lines: list[str] = []
    line = ""
    for word in text.split():
        prefix = indent if lines else ""
        if not line:
            line = prefix + word
        elif len(line) + 1 + len(word) <= width:
            line += " " + word
        else:
            lines.append(line)
            line = indent + word
    if line:
        lines.append(line)
    return lines


def shorten(text: str, width: int, mark: str = "...") -> str:
    """Cut at the end so that text and mark fit in `width`."""
    if len(text) <= width:
        return text
    if width <= len(mark):
        return mark[:width]
    return text[: width - len(mark)].rstrip() + mark


def shorten_middle(text: str, width: int, mark: str = "...") -> str:
    """Cut in the middle, so that both ends stay; the front gets the odd character."""
    if len(text) <= width:
        return text
    room = width - len(mark)
    if room <= 0:
        return mark[:width]
    back = room // 2
    front = room - back
    return text[:front] + mark + (text[-back:] if back else "")


def slug(text: str, limit: int = 60) -> str:
    """Make a name for an address: lower case ASCII words joined by dashes."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    words = "".join(c if c.isalnum() else " " for c in plain).split()
    out = ""
    for word in words:
        longer = f"{out}-{word}" if out else word
        if len(longer) > limit:
            break
        out = longer
    return out or "".join(words)[:limit]


def distance(left: str, right: str) -> int:
    """Return how many insertions, deletions and replacements lead from one to the other."""
    if len(left) < len(right):
        left, right = right, left
    previous = list(range(len(right) + 1))
    for row, a in enumerate(left, start=1):
        current = [row]
        for column, b in enumerate(right, start=1):
            cost = 0 if a == b else 1
            current.append(min(previous[column] + 1, current[column - 1] + 1, previous[column - 1] + cost))
        previous = current
    return previous[-1]


def nearest(word: str, choice: list[str], limit: int = 2) -> str | None:
    """Return the first of the nearest, None when all are more than `limit` away."""
    best, found = limit + 1, None
    for candidate in choice:
        away = distance(word, candidate)
        if away < best:
            best, found = away, candidate
    return found


def camel_to_snake(name: str) -> str:
    """Turn `parseHTTPLine2` into `parse_http_line2`."""
    out = ""
    for index, char in enumerate(name):
        if char.isupper() and index > 0:
            before = name[index - 1]
            after = name[index + 1] if index + 1 < len(name) else ""
            if not before.isupper() and before != "_" or (before.isupper() and after.islower()):
                out += "_"
        out += char.lower()
    return out


def initials(name: str, limit: int = 3) -> str:
    """Return the first letters of a name's words; small particles do not count."""
    words = [w for w in name.replace("-", " ").split() if w not in ("de", "of", "van", "von", "la")]
    return "".join(word[0].upper() for word in words)[:limit]


def common_prefix(words: list[str]) -> str:
    """Return the longest beginning that all share."""
    if not words:
        return ""
    low, high = min(words), max(words)
    for index, char in enumerate(low):
        if index >= len(high) or char != high[index]:
            return low[:index]
    return low
