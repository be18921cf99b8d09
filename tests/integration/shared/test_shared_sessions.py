"""Sessions side by side on shared instances: each leaves marks wherever it can, and looks for those of the others."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from playwright.async_api import Error as PlaywrightError

from sandbox.errors import InstanceLost, StaleGeneration
from sandbox.runtimes.group.tree_walls import leave_marks, marks_seen

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
for place in /workspace /workspace/docs /home/agent /tmp /dev/shm; do echo "mark {mark}" > "$place/mark-{mark}"; done
echo changed > /workspace/docs/notes.txt
sleep 0.05
echo seen $(find /workspace /home /tmp /run /dev -name 'mark-*' ! -name 'mark-{mark}' 2>/dev/null | wc -l)
"""


# In a page of an origin that all of them use. Golden has one cookie, and one tab.
PAGE = """async (mark) => {
  let seen = 0, before = 0;
  const saw = (text) => { seen += [...String(text).matchAll(/mark-[0-9x]+/g)].filter(([found]) => found !== mark).length; };
  before += localStorage.length + (await caches.keys()).length + (document.cookie.includes('mark') ? 1 : 0);
  const channel = new BroadcastChannel('common');
  channel.onmessage = (e) => saw(e.data);
  channel.postMessage(mark);
  localStorage.setItem(mark, mark); sessionStorage.setItem(mark, mark); document.cookie = `${mark}=${mark}`;
  await caches.open(mark);
  const link = document.createElement('a');
  [link.download, link.href] = [`${mark}.txt`, URL.createObjectURL(new Blob([mark]))];
  link.click();
  await navigator.clipboard.writeText(mark).catch(() => 0);
  await new Promise((done) => setTimeout(done, 100));
  await navigator.clipboard.readText().then(saw, () => 0);
  saw(JSON.stringify(localStorage)); saw(JSON.stringify(await caches.keys())); saw(document.cookie);
  return [before, seen];
}"""
COPIED = "<textarea id=t>{mark}</textarea>"


async def browse(session: Any, mark: str) -> list[str]:
    """As a person would, with Playwright."""
    page = await session.page()
    page.set_default_timeout(240_000)
    context = page.context
    cookies, tabs = await context.cookies(), len(context.pages)
    before = (0 if [c["name"] for c in cookies] == ["theme"] else 1) + (tabs - 1)
    await page.route("**/*", lambda route: route.fulfill(body="<p>hello", content_type="text/html"))
    await page.goto("https://common.invalid/")
    found, seen = await page.evaluate(PAGE, mark)
    await page.set_content(COPIED.format(mark=mark))  # which opens the document anew
    await page.focus("#t")
    await page.keyboard.press("Control+a")
    await page.keyboard.press("Control+c")
    await page.evaluate("document.execCommand('copy')")
    other = await context.new_page()
    other.set_default_timeout(240_000)
    await other.set_content("<textarea id=t></textarea>")
    await other.focus("#t")
    for keys in ("Control+v", "Shift+Insert"):
        await other.keyboard.press(keys)
    pasted = await other.input_value("#t")
    seen += len(pasted)
    seen += sum(not (c["name"] == "theme" or c["name"] == mark) for c in await context.cookies())
    seen += len(context.pages) - tabs - 1
    return [f"before {before + found}", f"seen {seen}"]


async def one(house: Any, mark: str) -> tuple[str, list[str]]:
    """Use one session; return its trajectory and what it said. One that is taken away says so: its window tells why."""
    session = await house.acquire(mark)
    try:
        return await used(house, session, mark)
    except (InstanceLost, StaleGeneration):
        return session.trajectory_id, ["lost"]
    except PlaywrightError as error:
        if "has been closed" not in error.message:
            raise
        return session.trajectory_id, ["lost"]


async def used(house: Any, session: Any, mark: str) -> tuple[str, list[str]]:
    try:
        if house.isolation == "context":
            return session.trajectory_id, await browse(session, f"mark-{mark}")
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


ISOLATIONS = [
    pytest.param("database", marks=pytest.mark.postgres),
    pytest.param("schema", marks=pytest.mark.postgres),
    "directory",
    pytest.param("context", marks=pytest.mark.browser),
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_sessions_side_by_side_see_nothing_of_each_other(
    open_house: Callable[..., Coroutine[Any, Any, Any]], isolation: str
) -> None:
    house = await open_house(isolation, size=4, share=2, check={"instance_every": 5})

    found = await cycles(house, sessions=4, rounds=3)

    assert found == {"before 0": 12, "seen 0": 12, "cleared (quick)": 12}


async def test_the_canary_of_a_shared_tree_names_what_is_in_reach_and_nothing_else(
    open_house: Callable[..., Coroutine[Any, Any, Any]],
) -> None:
    house = await open_house("directory", size=2, share=2)
    one, two = [await house.acquire(name) for name in ("one", "two")]
    mark, docs = "mark-0123456789abcdef", "/workspace/docs"

    await leave_marks(one, mark, [docs])
    own = await marks_seen(one, mark, one.namespace.live().part_name, [docs])
    others = await marks_seen(two, mark, one.namespace.live().part_name, [docs])

    wanted = {f"{what} {place}" for what in ("the name of a file in", "a file in") for place in (docs, "/tmp")}
    assert wanted | {"a process"} <= set(own)
    assert others == []
    for session in (one, two):
        await session.release()


@pytest.mark.acceptance
@pytest.mark.timeout(14_000)
@pytest.mark.parametrize("isolation", ISOLATIONS)
async def test_a_thousand_cycles_of_sixteen_sessions(open_house: Callable[..., Coroutine[Any, Any, Any]], isolation: str) -> None:
    """AUTOCLAVE_CYCLES sets how many."""
    rounds = -(-int(os.environ.get("AUTOCLAVE_CYCLES", "1000")) // 16)
    house = await open_house(isolation, size=16, share=8, check={"instance_every": 100})

    found = await cycles(house, sessions=16, rounds=rounds)

    assert found == {"before 0": 16 * rounds, "seen 0": 16 * rounds, "cleared (quick)": 16 * rounds}
