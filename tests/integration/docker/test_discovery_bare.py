"""Worlds of ours as images that nobody described: a draft of each sees what a description by hand sees of the same leaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import envs
from envs.discovery.procedure import begin
from envs.environment import load
from envs.planting import Candidate
from envs.planting.candidates import own
from probes.leaks import Needs
from probes.leaks.repo import LEAKS as OF_REPOSITORIES
from sandbox.model import DestructiveAction
from sandbox.settings import Settings

pytestmark = [pytest.mark.docker, pytest.mark.slow, pytest.mark.timeout(7200)]
FEW = 5
ENVIRONMENTS = Path(envs.__file__).parent
IN_WORKSPACE = {"PLACE": "/workspace", "OUTSIDE": "/home/agent", "FILE": "ledgerline/dates.py", "FOLDER": "ledgerline"}


def of_description(which: str) -> list[Candidate]:
    """The destructive actions of the description by hand, as one can do them inside: its probes see each (test_probe_scores)."""
    found = [a for a in load(ENVIRONMENTS / which).spec.destructive if not a.blind and a.browser is None]
    return own([_inside(which, a) for a in found])


def _inside(which: str, action: DestructiveAction) -> DestructiveAction:
    if not action.sql:
        return action
    role = action.role or "agent"
    # An owner need not be one that may log in.
    user, first = (role, ()) if role in ("agent", "postgres") else ("postgres", (f"set session authorization {role}",))
    statements = ";\n".join((*first, *action.sql))
    script = f"psql -Xqv ON_ERROR_STOP=1 -U {user} -d {which} > /dev/null <<'END'\n{statements};\nEND"
    return replace(action, argv=("sh", "-c", script), sql=(), role="", resource=None)


def of_repositories() -> list[Candidate]:
    """The catalogue's part for repositories, planted where the image has its own."""
    wanted = [leak for leak in OF_REPOSITORIES if not leak.blind and leak.needs is Needs.OWNER]
    return [
        Candidate(name=f"code/{leak.name}", kind="repo", what=leak.what, leak=replace(leak, shows="*"), names=IN_WORKSPACE)
        for leak in wanted
    ]


def further(which: str) -> list[Candidate]:
    return [*of_description(which), *(of_repositories() if which == "repo" else [])]


@pytest.mark.parametrize("which", ["shop", "repo"])
async def test_a_draft_of_a_world_of_ours_sees_what_is_done_to_it(
    which: str, bare_image: Callable[[str], str], scored: Any, settings: Settings, tmp_path: Path, nothing_left: None
) -> None:
    settings = replace(settings, runtime="docker")
    files, drafted = await begin(bare_image(which), which, tmp_path / which, settings=settings, instances=2)
    assert drafted.left == ()

    found = await scored(load(files[0]), further=further(which), sample=FEW)

    assert (found.missed, found.left, found.false_alarms) == ((), (), ())
    assert found.planted >= 3


@pytest.mark.acceptance
@pytest.mark.parametrize("which", ["shop", "repo", "portal"])
async def test_the_whole_catalogue_and_a_hundred_instances(
    which: str,
    bare_image: Callable[[str], str],
    scored: Any,
    unstable_in_many: Any,
    settings: Settings,
    tmp_path: Path,
    nothing_left: None,
) -> None:
    """The description by hand sees every leak of these."""
    settings = replace(settings, runtime="docker")
    files, drafted = await begin(bare_image(which), which, tmp_path / which, settings=settings, instances=5)
    environment = load(files[0])
    assert drafted.left == ()

    found = await scored(environment, further=further(which))
    refused = {o.name: o.refused for o in found.outcomes if o.refused}
    print(f"\n{which}: {found.caught} of {found.planted} seen; missed {found.missed}; not planted: {refused}")

    assert await unstable_in_many(environment) == []
    assert (found.left, found.false_alarms) == ((), ())
    assert found.share >= 0.95
    assert found.planted >= 30
