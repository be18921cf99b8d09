"""Comparison is exact, and readings are canonical."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from probes.canonical import bytes_digest, fields_digest, lines_of, listing, name_of
from probes.compare import compare, strip
from sandbox.model import Depth, Mismatch, VolatileField

NAMES = st.text(min_size=1, max_size=12).map(name_of).filter(lambda n: not n.endswith("/"))
FIELDS = st.dictionaries(NAMES, st.text(max_size=12), min_size=1, max_size=8)
LINES = st.dictionaries(st.text(min_size=1, max_size=8).map(name_of), st.text(max_size=8).map(name_of), max_size=6)


def quick(field: str) -> Depth:
    return Depth.QUICK


@given(FIELDS)
def test_equal_readings_have_no_difference(fields: dict[str, str]) -> None:
    shuffled = dict(reversed(list(fields.items())))

    assert compare("p", fields, shuffled, depth_of=quick) == []
    assert fields_digest(fields) == fields_digest(shuffled)


@given(FIELDS, st.data())
def test_any_one_change_is_one_mismatch(fields: dict[str, str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(fields)))
    changed = {**fields, name: fields[name] + "x"}

    assert compare("p", fields, changed, depth_of=quick) == [
        Mismatch(probe="p", field=name, expected=fields[name], actual=fields[name] + "x")
    ]
    assert fields_digest(fields) != fields_digest(changed)


@given(FIELDS, st.data())
def test_a_missing_and_an_additional_field_are_one_mismatch_each(fields: dict[str, str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(fields)))
    less = {n: t for n, t in fields.items() if n != name}

    assert compare("p", fields, less, depth_of=quick) == [Mismatch(probe="p", field=name, expected=fields[name], actual=None)]
    assert compare("p", less, fields, depth_of=quick) == [Mismatch(probe="p", field=name, expected=None, actual=fields[name])]


@given(LINES)
def test_a_listing_is_read_back_as_it_was_written(lines: dict[str, str]) -> None:
    assert lines_of(listing(lines)) == lines


@given(LINES, st.data())
def test_a_line_of_a_listing_is_one_mismatch_that_names_the_path(lines: dict[str, str], data: st.DataObject) -> None:
    new = data.draw(st.text(min_size=1, max_size=8).map(name_of).filter(lambda n: n not in lines))
    more = {**lines, new: "file 0644"}

    assert compare("p", {"src/": listing(lines)}, {"src/": listing(more)}, depth_of=quick) == [
        Mismatch(probe="p", field=f"src/{new}", expected=None, actual="file 0644")
    ]


def test_a_directory_that_went_is_one_mismatch_and_not_one_for_each_file() -> None:
    (found,) = compare("p", {"src/": listing({"a": "file", "b": "file"})}, {}, depth_of=quick)

    assert (found.field, found.actual) == ("src/", None)
    assert str(found.expected).startswith("2 entries")


def test_a_listing_that_only_one_side_has_is_one_mismatch_that_names_its_entries() -> None:
    few, many = listing({"b": "row", "a": "row"}), listing({f"{n:03}": "row" for n in range(40)})

    (came,) = compare("p", {}, {"History urls/": few}, depth_of=quick)
    (went,) = compare("p", {"History urls/": few}, {}, depth_of=quick)
    (more,) = compare("p", {}, {"History urls/": many}, depth_of=quick)

    assert (came.field, came.expected, came.actual) == ("History urls/", None, f"2 entries (a, b), {bytes_digest(few.encode())}")
    assert (went.expected, went.actual) == (came.actual, None)
    named = ", ".join(f"{n:03}" for n in range(10))
    assert more.actual == f"40 entries ({named} and 30 more), {bytes_digest(many.encode())}"


def test_the_names_of_a_listing_are_bounded_whatever_they_are() -> None:
    text = listing({name_of(f"{n}\n" * 5000): "row" for n in range(40)})

    (found,) = compare("p", {}, {"History urls/": text}, depth_of=quick)

    assert found.actual is not None
    assert "\n" not in found.actual
    assert len(found.actual) < 4_000


def test_an_empty_directory_is_not_an_absent_one() -> None:
    assert len(compare("p", {"src/": ""}, {}, depth_of=quick)) == 1
    assert len(compare("p", {}, {"src/": ""}, depth_of=quick)) == 1


def test_a_listing_that_differs_without_a_line_that_does_is_still_a_mismatch() -> None:
    assert len(compare("p", {"src/": "a\t1\nb\t2"}, {"src/": "b\t2\na\t1"}, depth_of=quick)) == 1


@given(FIELDS, FIELDS)
def test_what_broke_off_is_compared_as_far_as_it_came(expected: dict[str, str], actual: dict[str, str]) -> None:
    whole = compare("p", expected, actual, depth_of=quick)

    assert compare("p", expected, actual, depth_of=quick, partial=True) == [m for m in whole if m.field in actual]


def test_each_mismatch_carries_the_depth_at_which_its_field_is_read() -> None:
    found = compare("p", {"a": "1", "b": "1"}, {"a": "2", "b": "2"}, depth_of=lambda f: Depth.DEEP if f == "b" else Depth.QUICK)

    assert [(m.field, m.depth) for m in found] == [("a", Depth.QUICK), ("b", Depth.DEEP)]


def test_volatile_fields_and_lines_are_left_out_and_nothing_else_is() -> None:
    fields = {"log": "x", "home/": listing({"a.pid": "1", "b": "2"}), "rows": "3"}
    volatile = (VolatileField(pattern="p/log", reason="r"), VolatileField(pattern="p/home/*.pid", reason="r"))

    assert strip("p", fields, volatile) == {"home/": listing({"b": "2"}), "rows": "3"}
    assert strip("other", fields, volatile) == fields


@given(st.text(max_size=40))
def test_a_name_fits_one_line_and_two_names_never_become_one(text: str) -> None:
    assert "\n" not in name_of(text)
    assert "\t" not in name_of(text)
    assert name_of(text + "x") != name_of(text)


def test_names_that_are_not_utf8_and_long_ones_stay_apart() -> None:
    assert name_of("a\udcff") != name_of("a\\udcff")
    assert name_of("a" * 5000 + "1") != name_of("a" * 5000 + "2")
    assert len(name_of("a" * 5000)) < 400


def test_digests_are_the_same_everywhere() -> None:
    assert bytes_digest(b"") == "af1349b9f5f9a1a6a0404dea36dcc949"
    assert fields_digest({"b": "2", "a": "1"}) == "63a096253569572690afe60ab84c857bb6273d61878ef07abecbae22ef293ff4"
