"""Tells long runs apart: valid and hard, a loop, a dead tool, malformed actions. Each has its own answer; none is more time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from rollout.record import Action
from rollout.terms import Response, Termination


@dataclass(frozen=True, slots=True, kw_only=True)
class Signs:
    """When a run is taken for what it is."""

    repeats: int = 3  # the same stretch of actions with the same results, this often in a row
    longest_period: int = 3  # actions in such a stretch
    dead_after: int = 2  # acts in a row to which a tool itself gave no answer; a command that runs long is the policy's
    malformed_after: int = 3  # answers in a row that cannot be read


RESPONSE: Mapping[Termination, Response] = {
    Termination.LOOP: Response.TERMINATE,
    Termination.MALFORMED: Response.TERMINATE,
    Termination.DEAD_TOOL: Response.REPAIR,
    Termination.TURN_LIMIT: Response.PRESERVE,
    Termination.TOKEN_LIMIT: Response.PRESERVE,
    Termination.TIME_LIMIT: Response.PRESERVE,
}


def classify(actions: Sequence[Action], signs: Signs) -> tuple[Termination, str] | None:
    """Return why a run should end now and what shows it, None while it may go on."""
    if not actions:
        return None
    malformed = _last_run(actions, lambda a: a.malformed)
    if malformed >= signs.malformed_after:
        return Termination.MALFORMED, f"{malformed} answers in a row could not be read: {actions[-1].error}"
    own = [a for a in actions if a.tool == actions[-1].tool and not a.malformed]
    dead = _last_run(own, lambda a: bool(a.error))
    if not actions[-1].malformed and dead >= signs.dead_after:
        return Termination.DEAD_TOOL, f"{actions[-1].tool} gave no answer {dead} times in a row: {own[-1].error}"
    for period in range(1, signs.longest_period + 1):
        if _repeats(actions, period) >= signs.repeats:
            return Termination.LOOP, f"the last {period} actions came {signs.repeats} times in a row with the same results"
    return None


def unanswered(actions: Sequence[Action]) -> Action | None:
    """Return an act to which its tool gave no answer, nor any after it: what a trajectory that ended there would have come to is
    not known."""
    last = {action.tool: action for action in actions if not action.malformed}
    return next((action for action in last.values() if action.error), None)


def _last_run(actions: Sequence[Action], holds: Callable[[Action], bool]) -> int:
    count = 0
    for action in reversed(actions):
        if not holds(action):
            break
        count += 1
    return count


def _repeats(actions: Sequence[Action], period: int) -> int:
    """How often the last `period` actions stand at the end, one after the other. A malformed answer ends a loop."""
    signs = [None if a.malformed else (a.tool, repr(sorted(a.arguments.items())), a.digest) for a in actions]
    last = signs[-period:]
    if len(last) < period or None in last:
        return 0
    count = 0
    while len(signs) >= period and signs[-period:] == last:
        count += 1
        del signs[-period:]
    return count
