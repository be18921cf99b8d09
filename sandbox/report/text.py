"""Text of unknown origin, made fit to show: control characters made visible, and what differs between two values found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby

# Control characters but line feed and tab, lone surrogates, characters that reorder or hide text, and those XML forbids.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
_TOKEN = re.compile(r"\w+|\s+|[^\w\s]")
_ALIGN = 400  # tokens a side: above, what lies between the common ends counts as changed whole
_WORD = 64  # characters: a longer token is compared character by character at its ends


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A run of a value that both sides share, or that only this side has."""

    text: str
    changed: bool


def visible(text: str) -> str:
    """Return the text with every hidden character written out, as in `\\x1b` and `\\u202e`."""
    return _HIDDEN.sub(_written, text)


def _written(match: re.Match[str]) -> str:
    code = ord(match.group())
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def compare(expected: str, actual: str) -> tuple[tuple[Part, ...], tuple[Part, ...]]:
    """Split both values into shared and changed parts; joined, the parts are the (visible) values again."""
    left, right = _TOKEN.findall(visible(expected)), _TOKEN.findall(visible(actual))
    start = _common(left, right)
    end = _common(left[start:][::-1], right[start:][::-1])
    middle_left, middle_right = left[start : len(left) - end], right[start : len(right) - end]
    head, tail = "".join(left[:start]), "".join(left[len(left) - end :])
    marked = list(_aligned(middle_left, middle_right))
    first, last = Part(text=head, changed=False), Part(text=tail, changed=False)
    return tuple(_joined([first, *(pair[0] for pair in marked), last])), tuple(
        _joined([first, *(pair[1] for pair in marked), last])
    )


def _aligned(left: Sequence[str], right: Sequence[str]) -> Iterator[tuple[Part, Part]]:
    if max(len(left), len(right)) > _ALIGN or max(map(len, (*left, *right)), default=0) > _WORD:
        yield from _ends("".join(left), "".join(right))
        return
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    for tag, left_from, left_to, right_from, right_to in matcher.get_opcodes():
        changed = tag != "equal"
        yield (
            Part(text="".join(left[left_from:left_to]), changed=changed),
            Part(text="".join(right[right_from:right_to]), changed=changed),
        )


def _ends(left: str, right: str) -> Iterator[tuple[Part, Part]]:
    """Take off what two long texts begin and end with together, character by character."""
    start = _common(left, right)
    end = _common(left[start:][::-1], right[start:][::-1])
    yield Part(text=left[:start], changed=False), Part(text=left[:start], changed=False)
    yield Part(text=left[start : len(left) - end], changed=True), Part(text=right[start : len(right) - end], changed=True)
    yield Part(text=left[len(left) - end :], changed=False), Part(text=left[len(left) - end :], changed=False)


def _common(left: Sequence[str], right: Sequence[str]) -> int:
    """Return how many tokens or characters the two begin with together."""
    shorter = min(len(left), len(right))
    return next((i for i in range(shorter) if left[i] != right[i]), shorter)


def _joined(parts: Sequence[Part]) -> Iterator[Part]:
    for changed, run in groupby((p for p in parts if p.text), key=lambda p: p.changed):
        yield Part(text="".join(p.text for p in run), changed=changed)


def fold(text: str, head: int, tail: int) -> tuple[str, str, str]:
    """Split a long text into its beginning, what may be hidden, and its end, at line breaks where the ends hold some."""
    end = len(text) - tail
    if head and (found := text.rfind("\n", 0, head)) > 0:
        head = found + 1
    if tail and (found := text.find("\n", end)) >= 0:
        end = found + 1
    return text[:head], text[head:end], text[end:]


def amount(count: int, word: str) -> str:
    """Return `1 field`, `2,048 fields`, `3 trajectories`."""
    several = f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{count:,} {word if count == 1 else several}"
