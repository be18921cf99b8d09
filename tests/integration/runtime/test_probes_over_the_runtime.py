"""The default probes over real instances: fresh ones agree, what an agent leaves is seen, and a restore brings a clean verdict."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from probes import create_verifier
from probes.leaks.process import LEAKS
from sandbox.errors import BaselineUnstable
from sandbox.model import Baseline, Depth, Verdict
from sandbox.ports import Instance

pytestmark = [pytest.mark.namespaces, pytest.mark.postgres]
MESS = """
echo planted > planted; echo x >> package/sums.py; git config alias.x '!true'; git branch planted
echo 'alias ls=x' >> ~/.bashrc
(setsid sleep 600 >/dev/null 2>&1 </dev/null &)
psql -Atqc "insert into items (name) values ('planted')" -c "alter role agent set work_mem = '64kB'"
"""


async def recorded(verifier: Any, *instances: Instance) -> Baseline:
    try:
        baseline: Baseline = await verifier.record([i.subject() for i in instances], None, key="k")
    except BaselineUnstable as error:
        raise AssertionError(str(error)) from None
    return baseline


async def test_fresh_instances_agree_and_a_restore_is_proven(built: Any, begin: Callable[..., Awaitable[Instance]]) -> None:
    verifier = create_verifier(built.world.spec)
    one, two = await begin(name="one"), await begin(name="two")
    baseline = await recorded(verifier, one, two)
    for instance in (one, two):
        for depth in Depth:
            assert shown(await verifier.check(instance.subject(), baseline, depth)) == ("clean", [], [])

    done = await one.run(["/bin/sh", "-c", MESS], cwd="/workspace/code", limit_s=30)
    assert done.exit_code == 0, done.stderr
    await one.quiesce()
    dirty = await verifier.check(one.subject(), baseline, Depth.DEEP)
    assert {
        "code/git config/alias.x",
        "code/git ref/refs/heads/planted",
        "code/./planted",
        "code/package/sums.py",
        "db/db world/table public.items/rows",
        "db/role settings/*/agent",
        "home/./.bashrc",
    } <= {f"{m.probe}/{m.field}" for m in dirty.mismatches}

    await one.revoke()
    await one.restore(built.golden, 2)
    for depth in (Depth.QUICK, Depth.DEEP):
        assert shown(await verifier.check(one.subject(), baseline, depth)) == ("clean", [], [])


async def test_every_process_that_outlives_its_command_is_seen_and_gone_when_it_was_killed(
    built: Any, begin: Callable[..., Awaitable[Instance]]
) -> None:
    verifier = create_verifier(built.world.spec)
    baseline = await recorded(verifier, await begin(name="one"), await begin(name="two"))
    instance = await begin(name="three")
    missed = []
    for leak in LEAKS:
        done = await instance.run(["/bin/sh", "-c", f"cd /tmp; {leak.shell} sleep 0.3"], limit_s=30)
        assert done.exit_code == 0, (leak.name, done.stderr)
        verdict = await verifier.check(instance.subject(), baseline, Depth.QUICK)
        if not any(m.probe == "instance" for m in verdict.mismatches):
            missed.append(leak.name)
        await instance.quiesce()
    assert missed == []
    assert shown(await verifier.check(instance.subject(), baseline, Depth.QUICK)) == ("clean", [], [])


def shown(verdict: Verdict) -> tuple[str, list[tuple[Any, ...]], list[Any]]:
    found = [(m.probe, m.field, m.expected, m.actual) for m in verdict.mismatches]
    return str(verdict.status), found, list(verdict.problems)
