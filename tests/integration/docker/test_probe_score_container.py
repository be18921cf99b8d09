"""The probe score of containers of any image: what is planted there, by whom, and that it is seen and gone after a restore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import envs
from envs.check import baseline
from envs.planting import ProbeScore, candidates, survey
from envs.trial import Trial

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(1200)]
FEW = (
    "*/new-file",
    "*/edit",
    "*/same-size-edit",
    "*/volume-removed",
    "*/restart",
    "*/unmarked-process",
    "network/tcp-listener",
    "network/hosts",
)


def cache(image: str) -> envs.LoadedEnvironment:
    """Redis, which runs as a user of its own, with one file of that user's."""
    setup = [["/bin/sh", "-c", "echo seed > /var/lib/redis/seed"]]
    resource = {"kind": "container", "image": image, "ports": [6379], "setup": setup}
    return envs.define({"name": "cache", "version": "1", "resources": {"cache": resource}}, Path("/"))


def web(image: str) -> envs.LoadedEnvironment:
    """nginx, which runs as the container's root."""
    capabilities = ["CHOWN", "SETUID", "SETGID", "DAC_OVERRIDE", "FOWNER"]
    resource = {"kind": "container", "image": image, "ports": [80], "capabilities": capabilities}
    return envs.define({"name": "web", "version": "1", "resources": {"web": resource}}, Path("/"))


async def scored(environment: envs.LoadedEnvironment, machinery: Any, names: tuple[str, ...]) -> ProbeScore:
    from fnmatch import fnmatchcase

    start = await baseline(environment, machinery.runtime, machinery.ledger)
    async with Trial.open(environment, machinery.runtime, start) as trial:
        found, missing = await candidates(environment, trial.instance)
        wanted = [c for c in found if any(fnmatchcase(c.name, name) for name in names)]
        return await survey(trial, wanted, inapplicable=missing)


@pytest.mark.parametrize("which", ["redis", "nginx"])
async def test_leaks_are_planted_seen_and_gone(which: str, machinery: Any, redis_image: str, nginx_image: str) -> None:
    environment = cache(redis_image) if which == "redis" else web(nginx_image)

    found = await scored(environment, machinery, FEW)

    assert {o.name: o.refused for o in found.outcomes if o.refused} == {}
    assert (found.missed, found.left, found.false_alarms) == ((), (), ())
    resource = environment.spec.resources[0].name
    assert found.alone(resource), "without its own probe nothing of a container would be missed: it is idle"
    assert "network/tcp-listener" in found.alone("instance")
    if which == "redis":
        assert found.inapplicable["network/hosts"] == "the agent is not root of this container"
        assert found.planted == len(FEW) - 1
    else:
        assert found.planted == len(FEW)


@pytest.mark.acceptance
@pytest.mark.parametrize("which", ["redis", "nginx"])
async def test_the_whole_catalogue_in_a_container(which: str, machinery: Any, redis_image: str, nginx_image: str) -> None:
    environment = cache(redis_image) if which == "redis" else web(nginx_image)

    found = await scored(environment, machinery, ("*",))

    assert (found.missed, found.left, found.late, found.false_alarms) == ((), (), (), ()), found.as_json()
    assert found.planted >= 30
