"""Groups whose members fork from one beginning."""

from __future__ import annotations

from typing import Any

from rollout.admission.budgets import Spend
from rollout.batches import SyncRule
from rollout.groups import GroupRule
from rollout.record import CONTEXT
from sandbox.errors import InstanceLost

FIRST, SOLVE, FAIL = (
    f'<tool_call>{{"name": "do", "arguments": {{"command": "{command}"}}}}</tool_call>'
    for command in ("set step one", "set orders paid", "set orders open")
)


def branched(rolled: Any, **fields: Any) -> None:
    rolled.change(group_rule=GroupRule(size=4), sync=SyncRule(groups=1), groups=2, branch_turn=1, **fields)
    rolled.answers = lambda task, member, attempt: (FIRST, FAIL if member % 2 else SOLVE, "done")


async def test_members_start_from_the_firsts_state_and_share_its_beginning_once(rolled: Any) -> None:
    branched(rolled)
    rolled.size = 8
    siblings: set[str] = set()

    async def look() -> None:
        siblings.update((await rolled.pool.why("run-0-0"))["siblings"])

    batches = await rolled.run(each=look)

    forks_of_first = {s.trajectory.id for b in batches for s in b.samples if s.trajectory.parent == "run-0-0"}
    assert siblings == forks_of_first  # a recall finds them by their group
    for batch in batches:
        leader, *forks = sorted((s.trajectory for s in batch.samples), key=lambda t: t.member)
        assert len(forks) == 3
        for fork in forks:
            shared = fork.shared_prefix
            assert fork.parent == leader.id
            assert fork.tokens[:shared] == leader.tokens[:shared]
            assert sum(fork.mask[:shared]) == 0  # nothing of the beginning is trained on again
            assert sum(leader.mask[:shared]) == leader.turns[0].end - leader.turns[0].start
            assert fork.generated == sum(fork.mask) < leader.generated
            assert [a.arguments["command"] for a in fork.own_actions] == [
                "set orders open" if fork.member % 2 else "set orders paid"
            ]
            assert fork.versions[: fork.turns[0].start] == (CONTEXT,) * fork.turns[0].start
            assert rolled.journal().trajectories[fork.id].parent == leader.id
        assert {t.reward for t in (leader, *forks)} == {0.0, 1.0}
    assert rolled.books.accounts.counts()["accepted"] == rolled.books.accounts.admitted == 8
    assert rolled.books.budget.spent == {Spend.RETRY: 0, Spend.EXPLORE: 6}


async def test_forks_come_in_turn_where_places_are_few(rolled: Any) -> None:
    branched(rolled)
    rolled.size = 2
    rolled.change(groups=1)
    batches = await rolled.run()

    assert [len(b.samples) for b in batches] == [4]
    assert rolled.books.accounts.admitted == 4


async def test_forks_beyond_the_exploration_budget_are_refused_before_admission(rolled: Any) -> None:
    branched(rolled, alternatives=1)
    rolled.size = 8
    rolled.change(groups=1)
    batches = await rolled.run()

    assert [len(b.samples) for b in batches] == [2]
    assert rolled.books.accounts.admitted == 2
    assert rolled.books.accounts.refused == {"the exploration budget is spent": 2}


async def test_a_first_member_that_is_lost_while_it_forks_leaves_the_others_to_themselves(rolled: Any) -> None:
    branched(rolled)
    rolled.size = 8
    rolled.change(groups=1)
    forks = 0

    async def look(session: Any) -> None:
        inner = session.fork

        async def fork(*args: Any, **kwargs: Any) -> Any:
            nonlocal forks
            forks += 1
            if forks == 2:
                raise InstanceLost("planned")
            return await inner(*args, **kwargs)

        if session.trajectory_id == "run-0-0":
            session.fork = fork

    rolled.tool.wait = look
    batches = await rolled.run()

    (batch,) = batches
    assert sorted(s.trajectory.member for s in batch.samples) == [0, 1, 2, 3]
    assert sorted(bool(s.trajectory.shared_prefix) for s in batch.samples) == [False, False, False, True]
    assert rolled.books.accounts.counts()["failed"] == 1  # the first one's first attempt
    assert rolled.books.accounts.admitted == 5


async def test_a_first_member_that_ends_before_the_branch_leaves_the_others_to_themselves(rolled: Any) -> None:
    branched(rolled)
    rolled.change(groups=1)
    rolled.answers = lambda task, member, attempt: ("done",) if member == 0 else (SOLVE, "done")
    batches = await rolled.run()

    assert sorted(s.trajectory.shared_prefix for b in batches for s in b.samples) == [0, 0, 0, 0]
    assert rolled.books.accounts.counts()["accepted"] == 4
