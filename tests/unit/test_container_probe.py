"""What is read of a container: commands inside only where they were heard to their end, and no secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from probes.container import ContainerOptions, ContainerProbe, state_fields
from probes.probe import ProbeContext
from sandbox.model import Depth, ExecResult
from sandbox.ports.container import ContainerState, ContainerView


@dataclass
class Container:
    """A subject with one container in which every command ends alike."""

    ended: ExecResult
    in_place: bool = False

    def container(self, resource: str) -> ContainerView:
        return cast("ContainerView", self)

    async def state(self) -> ContainerState:
        return ContainerState(status="running", exit_code=0, out_of_memory=False, restarts=0)

    async def changes(self, *, contents: bool) -> Mapping[str, str]:
        return {}

    async def run(self, argv: Sequence[str], *, limit_s: float) -> ExecResult:
        return self.ended


@pytest.mark.parametrize(
    ("ended", "problem"),
    [
        ({"exit_code": 127}, "cannot be run: redis-cli"),
        ({"exit_code": 126}, "cannot be run"),
        ({"exit_code": 137, "timed_out": True}, "ran longer than 5 s"),
        ({"exit_code": 0, "truncated": True}, "more than the output limit"),
        ({"exit_code": 0}, None),
        ({"exit_code": 1}, None),
    ],
)
async def test_what_could_not_be_asked_is_a_problem(ended: dict[str, Any], problem: str | None) -> None:
    probe = ContainerProbe(
        name="app", resource="app", options=ContainerOptions(inside={"keys": ("redis-cli", "dbsize")}), digest="1"
    )
    subject: Any = Container(ExecResult(stdout=b"3\n", stderr=b"", **ended))

    found = await probe.read(ProbeContext(subject=subject, depth=Depth.QUICK, baseline=None, backends=set(), limit_s=10))

    if problem is None:
        assert found.problems == ()
        assert found.fields["inside/keys/output"] == "3\n"
    else:
        assert problem in " ".join(found.problems)
        assert not any(name.startswith("inside/") for name in found.fields)


def test_the_value_of_a_variable_that_is_called_like_a_secret_is_told_apart_and_not_shown() -> None:
    def fields(**variables: str) -> dict[str, str]:
        settings = {f"env/{name}": text for name, text in variables.items()}
        return state_fields(ContainerState(status="running", exit_code=0, out_of_memory=False, restarts=0, settings=settings))

    found = fields(REDIS_PASSWORD="first-word", MODE="test")
    other = fields(REDIS_PASSWORD="other-word", MODE="test")

    assert found["setting/env/MODE"] == "test"
    assert not any("word" in text for text in (*found.values(), *other.values()))
    assert found == fields(REDIS_PASSWORD="first-word", MODE="test")
    assert found["setting/env/REDIS_PASSWORD"] != other["setting/env/REDIS_PASSWORD"]
