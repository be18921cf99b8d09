"""The closed sets of names of the training side."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """Where an admitted trajectory stands; every one ends in exactly one of these."""

    OPEN = "open"
    ACCEPTED = "accepted"  # in a batch, within the version gap
    OFF_POLICY = "off_policy"  # beyond the gap, handed out apart for an algorithm that takes such data
    STALE = "stale"  # beyond the gap, discarded
    QUARANTINED = "quarantined"
    FAILED = "failed"  # infrastructure, data: no reward
    DROPPED = "dropped"  # its group was too small or all of one reward


NEXT: Mapping[State, frozenset[State]] = {
    State.OPEN: frozenset(State) - {State.OPEN},
    State.ACCEPTED: frozenset({State.QUARANTINED}),  # a later or deeper check reached what had shipped
    State.OFF_POLICY: frozenset({State.QUARANTINED}),
    State.STALE: frozenset(),
    State.QUARANTINED: frozenset(),
    State.FAILED: frozenset(),
    State.DROPPED: frozenset(),
}


class Termination(StrEnum):
    """Why a trajectory's turns ended."""

    FINAL = "final"  # the policy said that it is done
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    TIME_LIMIT = "time_limit"
    LOOP = "loop"
    MALFORMED = "malformed"
    DEAD_TOOL = "dead_tool"
    ENGINE = "engine"
    ENVIRONMENT_LOST = "environment_lost"
    NO_SESSION = "no_session"
    SATURATED = "saturated"  # a dependency's line was full, or its place did not come in time
    DATA = "data"
    FAULT = "fault"  # a fault of ours or of a plug-in
    CANCELLED = "cancelled"


class Failure(StrEnum):
    """Whose matter it is. Only `infra`, `data` and `fault` have no reward; `policy` keeps its real one, 0 included."""

    OK = "ok"
    VALID_HARD = "valid_hard"
    POLICY = "policy"
    INFRA = "infra"
    DATA = "data"
    FAULT = "fault"

    @property
    def has_reward(self) -> bool:
        return self in (Failure.OK, Failure.VALID_HARD, Failure.POLICY)


FAILURE: Mapping[Termination, Failure] = {
    Termination.FINAL: Failure.OK,
    Termination.TURN_LIMIT: Failure.VALID_HARD,
    Termination.TOKEN_LIMIT: Failure.VALID_HARD,
    Termination.TIME_LIMIT: Failure.VALID_HARD,
    Termination.LOOP: Failure.POLICY,
    Termination.MALFORMED: Failure.POLICY,
    Termination.DEAD_TOOL: Failure.INFRA,
    Termination.ENGINE: Failure.INFRA,
    Termination.ENVIRONMENT_LOST: Failure.INFRA,
    Termination.NO_SESSION: Failure.INFRA,
    Termination.SATURATED: Failure.INFRA,
    Termination.DATA: Failure.DATA,
    Termination.FAULT: Failure.FAULT,
    Termination.CANCELLED: Failure.INFRA,
}


class Response(StrEnum):
    """What is done about a long run, by its kind."""

    PRESERVE = "preserve"  # valid and hard: scored and kept
    REPAIR = "repair"  # a dead tool: no reward, again in a fresh lease within the retry budget
    TERMINATE = "terminate"  # a loop or malformed actions: ended with the reason, scored


class Late(StrEnum):
    """What becomes of trajectories that miss their batch.

    `next`: they join the next batch while within the gap, and are stale beyond it. `keep_off_policy`: the same, but beyond the
    gap they are handed out apart. `discard`: they are stale as soon as their batch went without them.
    """

    NEXT = "next"
    KEEP_OFF_POLICY = "keep_off_policy"
    DISCARD = "discard"
