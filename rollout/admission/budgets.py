"""Two allowances that cannot borrow from each other: again after a fault of infrastructure, and deliberate alternatives."""

from __future__ import annotations

from enum import StrEnum


class Spend(StrEnum):
    RETRY = "retry"  # infrastructure or contamination: the same again in a fresh lease, a tool once more
    EXPLORE = "explore"  # the policy's own: another try at a malformed action, a fork of a group


class Budget:
    """What is left of each kind. A budget `within` another one spends both or neither."""

    def __init__(self, *, retries: int, alternatives: int, within: Budget | None = None) -> None:
        if retries < 0 or alternatives < 0:
            raise ValueError(f"a budget is at least 0, not {retries} retries and {alternatives} alternatives")
        self.given = {Spend.RETRY: retries, Spend.EXPLORE: alternatives}
        self.spent = {Spend.RETRY: 0, Spend.EXPLORE: 0}
        self._within = within

    def left(self, kind: Spend) -> int:
        own = self.given[kind] - self.spent[kind]
        return own if self._within is None else min(own, self._within.left(kind))

    def spend(self, kind: Spend) -> bool:
        """Take one of `kind` and return True, or return False and take nothing."""
        if self.left(kind) < 1:
            return False
        self.spent[kind] += 1
        if self._within is not None:
            self._within.spend(kind)
        return True
