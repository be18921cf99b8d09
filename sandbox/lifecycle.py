"""The states of a namespace: one table, one function, no I/O.

`ready` has exactly one edge that enters it: (`verifying`, `passed`). The diagram in docs/architecture.md is drawn from
TRANSITIONS, and every transition is one row in the ledger.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

from sandbox.errors import LedgerConflict


class State(StrEnum):
    CREATING = "creating"
    VERIFYING = "verifying"
    READY = "ready"
    LEASED = "leased"
    RESETTING = "resetting"
    QUARANTINED = "quarantined"
    RETIRED = "retired"


class Event(StrEnum):
    STARTED = "started"  # the instance runs and waits for its first check
    PASSED = "passed"  # a check came back clean
    FAILED = "failed"  # mismatch, inconclusive, or the step itself ended in an error
    LEASE = "lease"  # the ledger gave it to a holder
    RELEASE = "release"  # the holder is done, expired or gone
    RECHECK = "recheck"  # a ready namespace is read again (age, drain, audit)
    RESET = "reset"  # a ready namespace is reset again (another start state, a fresh lineage)
    RESTORED = "restored"  # the reset ended; its result waits for a check
    ESCALATE = "escalate"  # a quarantined namespace gets the next stronger reset
    LOST = "lost"  # the instance died, or a restart found it in an unknown state
    RETIRE = "retire"  # it is taken out of service for good


TRANSITIONS: MappingProxyType[tuple[State, Event], State] = MappingProxyType(
    {
        (State.CREATING, Event.STARTED): State.VERIFYING,
        (State.CREATING, Event.FAILED): State.RETIRED,
        (State.CREATING, Event.LOST): State.QUARANTINED,
        (State.VERIFYING, Event.PASSED): State.READY,
        (State.VERIFYING, Event.FAILED): State.QUARANTINED,
        (State.VERIFYING, Event.LOST): State.QUARANTINED,
        (State.READY, Event.LEASE): State.LEASED,
        (State.READY, Event.RECHECK): State.VERIFYING,
        (State.READY, Event.RESET): State.RESETTING,
        (State.READY, Event.LOST): State.QUARANTINED,
        (State.READY, Event.RETIRE): State.RETIRED,
        (State.LEASED, Event.RELEASE): State.RESETTING,
        (State.LEASED, Event.LOST): State.QUARANTINED,
        (State.RESETTING, Event.RESTORED): State.VERIFYING,
        (State.RESETTING, Event.FAILED): State.QUARANTINED,
        (State.RESETTING, Event.LOST): State.QUARANTINED,
        (State.RESETTING, Event.RETIRE): State.RETIRED,
        (State.QUARANTINED, Event.ESCALATE): State.RESETTING,
        (State.QUARANTINED, Event.RETIRE): State.RETIRED,
    }
)


def after(state: State, event: Event) -> State:
    """Return the state that follows; raise LedgerConflict for a pair that the table does not hold."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        allowed = ", ".join(sorted(e for s, e in TRANSITIONS if s is state)) or "nothing: it is final"
        raise LedgerConflict(f"a namespace that is {state} cannot take {event!s} (allowed: {allowed})") from None


def as_mermaid() -> str:
    """Draw the table as a mermaid state diagram, one line per edge, in table order."""
    lines = [f"    {source} --> {target}: {event}" for (source, event), target in TRANSITIONS.items()]
    return "\n".join(["stateDiagram-v2", "    [*] --> creating", *lines, "    retired --> [*]"])
