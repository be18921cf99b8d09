"""Where every admitted trajectory is: in exactly one state, and the counts add up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rollout.terms import NEXT, State


class Accounts:
    """Refusals come before admission and are counted apart."""

    def __init__(self) -> None:
        self._states: dict[str, State] = {}
        self.reasons: dict[str, str] = {}
        self.refused: Counter[str] = Counter()

    def admit(self, trajectory: str) -> None:
        if trajectory in self._states:
            raise ValueError(f"trajectory {trajectory} was admitted already")
        self._states[trajectory] = State.OPEN

    def refuse(self, reason: str, count: int = 1) -> None:
        self.refused[reason] += count

    def settle(self, trajectory: str, state: State, reason: str = "") -> None:
        """Move a trajectory to its final state; ValueError for a move that the table does not have."""
        now = self._states[trajectory]
        if state not in NEXT[now]:
            raise ValueError(f"trajectory {trajectory} is {now} and cannot become {state}")
        self._states[trajectory] = state
        if reason:
            self.reasons[trajectory] = reason

    def state(self, trajectory: str) -> State:
        return self._states[trajectory]

    def of(self, state: State) -> tuple[str, ...]:
        return tuple(t for t, s in self._states.items() if s is state)

    @property
    def admitted(self) -> int:
        return len(self._states)

    def counts(self) -> Mapping[str, int]:
        """One count for every state, those of 0 too."""
        found = Counter(self._states.values())
        return {state.value: found[state] for state in State}

    def why(self) -> Mapping[str, Mapping[str, int]]:
        """The reasons of each state, counted."""
        out: dict[str, Counter[str]] = {}
        for trajectory, reason in self.reasons.items():
            out.setdefault(self._states[trajectory].value, Counter())[reason] += 1
        return {state: dict(counted.most_common()) for state, counted in out.items()}
