"""Sessions side by side on shared instances: each leaves marks wherever it can, and looks for those of the others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

pytestmark = [pytest.mark.namespaces, pytest.mark.slow]

# Golden has 200 items and no marks. What is counted is what a session must not see: 0 of everything.
SQL = """
select 'before ' || (select count(*) from items where name not like 'item %') + abs((select count(*) from items) - 200);
create table "mark {mark}" (t text);
insert into items (name) values ('mark {mark}');
select lo_from_bytea(0, 'mark {mark}');
create function mine(a int) returns int language sql as 'select 17';
alter role current_user set application_name = 'mark {mark}';
select pg_sleep(0.05);
select 'seen ' || (select count(*) from information_schema.tables where table_name like 'mark %' and table_name <> 'mark {mark}')
  + (select count(*) from items where name like 'mark %' and name <> 'mark {mark}')
  + (select count(*) from pg_stat_activity where application_name like 'mark %' and application_name <> 'mark {mark}'
     and usename = current_user)
  + (select count(*) from pg_largeobject_metadata m where pg_has_role(m.lomowner, 'usage')
     and lo_get(m.oid) <> 'mark {mark}'::bytea);
"""
SHELL = """
[ "$(cat /workspace/docs/notes.txt)" = none ] && [ "$(ls /workspace/docs | wc -l)" = 2 ] && echo before 0 || echo before 1
for place in /workspace /workspace/docs /home/agent /tmp; do echo "mark {mark}" > "$place/mark-{mark}"; done
echo changed > /workspace/docs/notes.txt
sleep 0.05
echo seen $(find /workspace /home /tmp /run -name 'mark-*' ! -name 'mark-{mark}' 2>/dev/null | wc -l)
"""


async def one(house: Any, mark: str) -> tuple[str, list[str]]:
    """Use one session; return its trajectory and what it said."""
    session = await house.acquire(mark)
    try:
        if house.isolation == "directory":
            done = await session.run(["sh", "-c", SHELL.format(mark=mark)], limit_s=120)
        else:
            done = await session.run(["psql", "-v", "ON_ERROR_STOP=1", "-qAt"], stdin=SQL.format(mark=mark).encode(), limit_s=120)
    finally:
        await session.release()
    assert done.exit_code == 0, done.stderr.decode()
    return session.trajectory_id, [line for line in done.text.splitlines() if line.startswith(("before", "seen"))]


async def cycles(house: Any, sessions: int, rounds: int) -> Counter[str]:
    """Let so many sessions work side by side, again and again; return clearances and what was seen."""
    found: Counter[str] = Counter()

    async def worker(number: int) -> None:
        for turn in range(rounds):
            trajectory, said = await one(house, f"{number}x{turn}")
            found.update(said)
            (stand,) = await house.judged(trajectory)
            found[stand] += 1
            if stand.startswith("quarantined"):
                window = (await house.pool.why(trajectory))["window"]
                found.update(f"{m['field']}: {m['expected']} -> {m['actual']}" for m in window["mismatches"])
                found.update(f"{p['probe']}: {p['reason']}" for p in window["problems"])

    async with asyncio.TaskGroup() as group:
        for number in range(sessions):
            group.create_task(worker(number))
    for host in house.hosts:
        await house.full()
        assert await house.barrier(host), "the instance was not clean at the end"
    return found


@pytest.mark.timeout(900)
@pytest.mark.postgres
@pytest.mark.parametrize("isolation", ["database", "schema", "directory"])
async def test_sessions_side_by_side_see_nothing_of_each_other(
    open_house: Callable[..., Coroutine[Any, Any, Any]], isolation: str
) -> None:
    house = await open_house(isolation, size=4, share=2, check={"instance_every": 5})

    found = await cycles(house, sessions=4, rounds=3)

    assert found == {"before 0": 12, "seen 0": 12, "cleared (quick)": 12}


@pytest.mark.acceptance
@pytest.mark.timeout(14_000)
@pytest.mark.postgres
@pytest.mark.parametrize("isolation", ["database", "schema", "directory"])
async def test_a_thousand_cycles_of_sixteen_sessions(open_house: Callable[..., Coroutine[Any, Any, Any]], isolation: str) -> None:
    house = await open_house(isolation, size=16, share=8, check={"instance_every": 100})

    found = await cycles(house, sessions=16, rounds=63)

    assert found == {"before 0": 1008, "seen 0": 1008, "cleared (quick)": 1008}
