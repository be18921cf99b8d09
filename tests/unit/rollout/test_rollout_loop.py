"""The loop over a pool in memory: what ships, what does not, and that the accounts add up."""

from __future__ import annotations

from typing import Any

from rollout.terms import State


async def test_every_group_ships_once_and_the_accounts_add_up(rolled: Any) -> None:
    batches = await rolled.run()

    assert [len(b.samples) for b in batches] == [4, 4]
    assert sorted(g for b in batches for g in b.groups) == ["run-0", "run-1", "run-2", "run-3"]
    assert rolled.books.accounts.counts() == {s.value: 8 if s is State.ACCEPTED else 0 for s in State}
    assert {(s.trajectory.reward, s.advantage) for b in batches for s in b.samples} == {(1.0, 0.5), (0.0, -0.5)}
