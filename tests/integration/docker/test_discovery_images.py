"""Environments drafted from images that nobody made for us: what is proposed holds, and sees what one by hand sees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import envs
from envs import check
from envs.discovery.procedure import begin
from envs.environment import load
from envs.planting.score import differences
from envs.trial import Trial
from sandbox.model import Depth
from sandbox.settings import Settings
from sandbox.wiring import machinery

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(3600)]
FEW = 5
NGINX = ["CHOWN", "SETUID", "SETGID", "DAC_OVERRIDE", "FOWNER"]


def by_hand(which: str, image: str) -> envs.LoadedEnvironment:
    resource: dict[str, Any] = {"kind": "container", "image": image, "ports": [6379 if which == "redis" else 80]}
    tables: dict[str, Any] = {}
    if which == "redis":
        resource["command"] = ["redis-server", "--dir", "/data", "--enable-debug-command", "local"]
        inside = {"keys": ["redis-cli", "debug", "digest"]}
        tables = {"probes": [{"name": "app", "kind": "container", "resource": "app", "inside": inside}]}
    else:
        resource |= {"capabilities": NGINX}
    return envs.define({"name": "hand", "version": "1", "resources": {"app": resource}, **tables}, Path("/"))


async def differs_after(environment: envs.LoadedEnvironment, settings: Settings, argv: list[str]) -> set[str]:
    """What the probes see of one command of the agent's."""
    async with machinery(settings) as (runtime, ledger):
        start = await check.baseline(environment, runtime, ledger)
        async with Trial.open(environment, runtime, start) as trial:
            assert (await trial.instance.run(argv)).exit_code == 0
            return differences(await trial.read(Depth.QUICK))


async def drafted(image: str, into: Path, settings: Settings, instances: int = 3) -> envs.LoadedEnvironment:
    files, found = await begin(image, "drafted", into, settings=settings, instances=instances)
    assert found.left == ()
    return load(files[0])


@pytest.mark.parametrize("which", ["redis", "nginx"])
async def test_a_draft_from_an_image_sees_what_a_description_by_hand_sees(
    which: str, scored: Any, settings: Settings, redis_image: str, nginx_image: str, tmp_path: Path, nothing_left: None
) -> None:
    image = redis_image if which == "redis" else nginx_image
    settings = replace(settings, runtime="docker")
    environment = await drafted(image, tmp_path / "drafted", settings)
    assert [v.pattern for v in environment.spec.volatile if v.pattern.startswith("instance/")] == []
    if which == "redis":
        assert await differs_after(environment, settings, ["redis-cli", "set", "planted", "1"]) == {"app/inside/keys/output"}

    found = await scored(environment, sample=FEW)

    assert (found.missed, found.left, found.false_alarms) == ((), (), ())
    assert found.planted >= 3


@pytest.mark.acceptance
@pytest.mark.parametrize("which", ["redis", "nginx"])
async def test_a_hundred_instances_and_the_whole_catalogue(
    which: str,
    scored: Any,
    unstable_in_many: Any,
    settings: Settings,
    redis_image: str,
    nginx_image: str,
    tmp_path: Path,
    nothing_left: None,
) -> None:
    image = redis_image if which == "redis" else nginx_image
    settings = replace(settings, runtime="docker")
    environment = await drafted(image, tmp_path / "drafted", settings, instances=5)

    ours = await scored(environment)
    theirs = await scored(by_hand(which, image))

    assert ours.share >= 0.95 * theirs.share
    assert ours.planted == theirs.planted
    assert await unstable_in_many(environment) == []
