"""Seed files are split as psql splits them, and each statement knows its line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.resources.postgres.statements import SyntaxFault, split


def texts(sql: str) -> list[str]:
    return [s.text for s in split(sql)]


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("", []),
        (" ;; \n-- only a comment\n/* and /* nested */ one */;", []),
        ("select 1; select 2", ["select 1", "select 2"]),
        ("select ';' ; select $$;$$; select $a$;$$;$a$;", ["select ';'", "select $$;$$", "select $a$;$$;$a$"]),
        ("select E'\\';' ; select 1;", ["select E'\\';'", "select 1"]),
        ("select 'back\\'; select 2;", ["select 'back\\'", "select 2"]),
        ("select U&'d' || 'it''s;';", ["select U&'d' || 'it''s;'"]),
        ('select 1 as "a;""b"; select 2;', ['select 1 as "a;""b"', "select 2"]),
        ("select 1 -- ; no\n, 2; select /* ; */ 3;", ["select 1 -- ; no\n, 2", "select /* ; */ 3"]),
        ("create rule r as on insert to t do (select 1; select 2); select 3;",
         ["create rule r as on insert to t do (select 1; select 2)", "select 3"]),
        ("create or replace function f() returns int begin atomic select case when true then 1 end; select 2; end; select 3;",
         ["create or replace function f() returns int begin atomic select case when true then 1 end; select 2; end", "select 3"]),
        ("begin; insert into t values (1); end; select 2;", ["begin", "insert into t values (1)", "end", "select 2"]),
        ("select a$b$c from t; select 1;", ["select a$b$c from t", "select 1"]),
        ("\\restrict abc\nselect 1;\n\\unrestrict abc\n", ["select 1"]),
    ],
)  # fmt: skip
def test_splitting(sql: str, expected: list[str]) -> None:
    assert [t.strip() for t in texts(sql)] == expected


def test_lines_are_those_of_the_first_word() -> None:
    found = list(split("-- a\n\nselect 1;\n  /* b\n */ select\n2;\nselect 3"))
    assert [s.line for s in found] == [3, 5, 7]


def test_copy_takes_its_data() -> None:
    found = list(split("copy t (a, b) from stdin;\n1\tx;y\n2\t'\n\\.\nselect 1;\ncopy u from stdin with csv;\n\\.\n"))
    assert [s.data for s in found] == ["1\tx;y\n2\t'\n", None, ""]
    assert [s.line for s in found] == [1, 5, 6]


def test_a_copy_that_only_mentions_stdin_has_no_data() -> None:
    assert [s.data for s in split("copy (select 'from stdin') to '/tmp/x'; select 1;")] == [None, None]


@pytest.mark.parametrize(
    ("sql", "line", "said"),
    [
        ("select 1;\nselect 'open", 2, "never closed"),
        ("\n\n/* open", 3, "comment that is never closed"),
        ("do $x$ begin", 1, "$x$ that is never closed"),
        ("select 1;\n\\copy t from 'x'\n", 2, "command of psql"),
        ("copy t from stdin;\n1\n", 1, "must end with a line"),
    ],
)
def test_what_cannot_be_split_is_named_by_line(sql: str, line: int, said: str) -> None:
    with pytest.raises(SyntaxFault) as caught:
        list(split(sql))
    assert caught.value.line == line
    assert said in caught.value.reason


@given(
    st.lists(
        st.sampled_from(["select 1", "select ';'", "select $$;\n$$", "-- c;\nselect 2", "select /*;*/ 3", 'select ";"']), max_size=8
    )
)
def test_joined_statements_come_apart_again(parts: list[str]) -> None:
    found = texts(";\n".join(parts))
    assert len(found) == len(parts)
    assert all(part.removeprefix("-- c;\n") == text.strip() for part, text in zip(parts, found, strict=True))
