"""What is claimed of a container of any image is read back, and what is not so is refused by its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import envs
from sandbox.errors import RuntimeUnavailable
from sandbox.resources.container import Container
from sandbox.runtimes.docker.labels import Mark
from sandbox.runtimes.docker.plain import confined
from sandbox.runtimes.docker.plain.definition import Definition

FIRST = 0xC1  # CHOWN, SETGID, SETUID
STATUS = {
    **dict.fromkeys(("CapInh", "CapAmb"), "0000000000000000"),
    **dict.fromkeys(("CapPrm", "CapEff", "CapBnd"), f"{FIRST:016x}"),
    "NoNewPrivs": "1",
    "Seccomp": "2",
}


@pytest.fixture
def definition() -> Definition:
    resource = {"kind": "container", "image": "any", "capabilities": ["CHOWN", "setgid", "CAP_SETUID"]}
    environment = envs.define({"name": "box", "version": "1", "resources": {"box": resource}}, Path("/"))
    found = environment.resources[0]
    assert isinstance(found, Container)
    return Definition(spec=environment.spec, resource="box", options=found.options, image={})


def made(definition: Definition, **changed: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    asked = definition.config("any", Mark(home="home"), network="none", fresh=False)["HostConfig"]
    host = {**asked, "Privileged": False, "PidMode": "", "UTSMode": "", "Devices": [], "Binds": None, **changed}
    return {"HostConfig": host}, asked


def test_a_container_that_was_made_as_asked_passes(definition: Definition) -> None:
    confined.check_described(*made(definition))
    confined.check_described(*made(definition, CapAdd=["CAP_SETUID", "CAP_SETGID", "CAP_CHOWN"]))


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"Privileged": True}, "Privileged"),
        ({"NetworkMode": "host"}, "NetworkMode"),
        ({"ReadonlyRootfs": True}, "ReadonlyRootfs"),
        ({"CapAdd": ["CHOWN", "SETGID", "SETUID", "SYS_ADMIN"]}, "SYS_ADMIN"),
        ({"CapDrop": []}, "CapDrop"),
        ({"SecurityOpt": ["no-new-privileges", "seccomp=unconfined"]}, "unconfined"),
        ({"SecurityOpt": None}, "SecurityOpt"),
        ({"PidsLimit": None}, "PidsLimit"),
        ({"Memory": 0}, "Memory"),
        ({"NanoCpus": 0}, "NanoCpus"),
        ({"PidMode": "host"}, "PidMode"),
        ({"IpcMode": "host"}, "IpcMode"),
        ({"Binds": ["/:/host"]}, "directories of the host"),
    ],
)
def test_a_container_that_is_not_as_asked_is_refused_by_name(definition: Definition, changed: dict[str, Any], named: str) -> None:
    with pytest.raises(RuntimeUnavailable, match=named):
        confined.check_described(*made(definition, **changed))


@pytest.mark.parametrize(
    ("name", "value"),
    [("CapEff", "00000000000000c3"), ("CapBnd", "000001ffffffffff"), ("CapAmb", "2"), ("NoNewPrivs", "0"), ("Seccomp", "0")],
)
def test_a_first_process_that_is_not_confined_is_refused_by_line(definition: Definition, name: str, value: str) -> None:
    confined.check_status(STATUS, definition)
    with pytest.raises(RuntimeUnavailable, match=name):
        confined.check_status({**STATUS, name: value}, definition)


def test_a_process_that_has_gone_vouches_for_nothing(definition: Definition) -> None:
    with pytest.raises(RuntimeUnavailable, match="CapBnd is missing"):
        confined.check_status({}, definition)
