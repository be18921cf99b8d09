"""Comparing two values: the parts are the values, and only what differs is marked."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.report.text import Part, amount, compare, fold, visible

TEXT = st.text(alphabet=string.ascii_letters[:6] + " \n=-\x00\u202e", max_size=60)


@given(TEXT, TEXT)
def test_the_parts_joined_are_the_values(expected: str, actual: str) -> None:
    left, right = compare(expected, actual)
    assert "".join(p.text for p in left) == visible(expected)
    assert "".join(p.text for p in right) == visible(actual)
    assert "".join(p.text for p in left if not p.changed) == "".join(p.text for p in right if not p.changed)
    if visible(expected) != visible(actual):
        assert any(p.changed for p in (*left, *right))


@given(TEXT)
def test_equal_values_have_no_changed_part(value: str) -> None:
    left, right = compare(value, value)
    assert not any(p.changed for p in (*left, *right))


def test_only_the_word_that_differs_is_marked() -> None:
    left, right = compare("limit = 20 rows", "limit = 3 rows")
    assert left == (Part(text="limit = ", changed=False), Part(text="20", changed=True), Part(text=" rows", changed=False))
    assert [p.text for p in right if p.changed] == ["3"]


def test_one_long_word_is_compared_at_its_ends() -> None:
    left, _ = compare("a" * 500 + "X" + "b" * 500, "a" * 500 + "Y" + "b" * 500)
    assert [p.text for p in left if p.changed] == ["X"]


@pytest.mark.parametrize(
    ("raw", "shown"), [("\x1b[0m", "\\x1b[0m"), ("a\u202eb", "a\\u202eb"), ("\ud800", "\\ud800"), ("\r\n\t", "\\x0d\n\t")]
)
def test_hidden_characters_are_written_out(raw: str, shown: str) -> None:
    assert visible(raw) == shown


@given(TEXT.filter(lambda t: len(t) > 20))
def test_folding_loses_nothing(text: str) -> None:
    assert "".join(fold(text, 5, 5)) == text
    assert "".join(fold(text, 0, 7)) == text


def test_amounts() -> None:
    assert [amount(1, "field"), amount(2048, "field"), amount(3, "trajectory")] == ["1 field", "2,048 fields", "3 trajectories"]
