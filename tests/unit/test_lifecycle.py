"""The state table: every state has its place, ready has one way in, retired none out."""

from __future__ import annotations

import itertools

import pytest

from sandbox.errors import LedgerConflict
from sandbox.lifecycle import TRANSITIONS, Event, State, after, as_mermaid


def test_ready_is_entered_by_a_passed_check_only() -> None:
    entering = [edge for edge, target in TRANSITIONS.items() if target is State.READY]

    assert entering == [(State.VERIFYING, Event.PASSED)]


def test_retired_is_final_and_every_other_state_goes_on() -> None:
    leaving = {source for source, _ in TRANSITIONS}

    assert leaving == set(State) - {State.RETIRED}


def test_every_state_but_the_first_is_entered() -> None:
    assert set(TRANSITIONS.values()) == set(State) - {State.CREATING}


def test_every_event_is_used() -> None:
    assert {event for _, event in TRANSITIONS} == set(Event)


def test_every_state_can_end_retired() -> None:
    reach = {State.RETIRED}
    while more := {s for (s, _), target in TRANSITIONS.items() if target in reach} - reach:
        reach |= more

    assert reach == set(State)


def test_nobody_is_leased_what_was_not_ready() -> None:
    assert [source for (source, _), target in TRANSITIONS.items() if target is State.LEASED] == [State.READY]


@pytest.mark.parametrize(("state", "event"), list(itertools.product(State, Event)))
def test_after_follows_the_table_and_refuses_the_rest(state: State, event: Event) -> None:
    if (state, event) in TRANSITIONS:
        assert after(state, event) is TRANSITIONS[state, event]
    else:
        with pytest.raises(LedgerConflict, match=f"{state} cannot take {event}"):
            after(state, event)


def test_the_diagram_holds_every_edge_once() -> None:
    lines = [line.strip() for line in as_mermaid().splitlines()]

    assert [line for line in lines if ": " in line] == [f"{s} --> {t}: {e}" for (s, e), t in TRANSITIONS.items()]
