"""The docker runtime without an engine: what is asked of it, what it must answer, and how its stream is taken apart."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable
from sandbox.model import Limits, Role
from sandbox.ports import Mount
from sandbox.runtimes import observe
from sandbox.runtimes.docker.box import memory_targets
from sandbox.runtimes.docker.confinement import check_inspected, check_mounts, check_status, check_tried, mount_lines
from sandbox.runtimes.docker.images import ImageFacts
from sandbox.runtimes.docker.mounting import layers_of, overlay_options
from sandbox.runtimes.docker.profile import Shape, configuration, fixed, follows
from sandbox.runtimes.docker.slots import Slots
from sandbox.runtimes.group.box import SandboxPlan

SHAPE = Shape(image="sha256:1", uid=64100, gid=64100, home="/home/agent", limits=Limits(memory_mb=64, pids=9), targets=("/tmp",))
IMAGE = ImageFacts(
    reference="one", id="sha256:1", env={"PATH": "/opt/tool/bin:/usr/bin", "HOME": "/root", "MODE": "fast"}, volumes=("/data/",)
)
STATUS = {
    **dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0000000000000000"),
    "NoNewPrivs": "1",
    "Seccomp": "2",
    "Uid": "64100\t64100\t64100\t64100",
    "Groups": "64100",
}


def inspected(**changed: Any) -> dict[str, Any]:
    """What an engine says of a container that was made as asked."""
    config = configuration(SHAPE, ("init",), (), {})
    host = {**config["HostConfig"], "PidMode": "", "CapAdd": None, "Devices": [], **changed}
    return {"HostConfig": host, "Config": {"User": config["User"]}, "Mounts": []}


def test_a_container_that_was_made_as_asked_passes() -> None:
    check_inspected(inspected(), SHAPE)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"Privileged": True}, "Privileged"),
        ({"NetworkMode": "bridge"}, "NetworkMode"),
        ({"ReadonlyRootfs": False}, "ReadonlyRootfs"),
        ({"CapAdd": ["SYS_ADMIN"]}, "SYS_ADMIN"),
        ({"CapDrop": []}, "capabilities"),
        ({"SecurityOpt": ["no-new-privileges:true", "seccomp=unconfined"]}, "unconfined"),
        ({"SecurityOpt": []}, "SecurityOpt"),
        ({"PidsLimit": 0}, "PidsLimit"),
        ({"Memory": 0}, "Memory"),
        ({"PidMode": "host"}, "PidMode"),
        ({"IpcMode": "host"}, "IpcMode"),
    ],
)
def test_a_container_that_is_not_as_asked_is_refused_by_name(changed: dict[str, Any], named: str) -> None:
    with pytest.raises(RuntimeUnavailable, match=named):
        check_inspected(inspected(**changed), SHAPE)


def test_the_engines_own_socket_is_never_mounted() -> None:
    found = {**inspected(), "Mounts": [{"Source": "/var/run/docker.sock", "Destination": "/x"}]}
    with pytest.raises(RuntimeUnavailable, match="own socket is mounted at /x"):
        check_inspected(found, SHAPE)


@pytest.mark.parametrize(
    ("name", "value"),
    [("CapEff", "0000000000000400"), ("NoNewPrivs", "0"), ("Seccomp", "0"), ("Uid", "0\t0\t0\t0"), ("Groups", "64100 999")],
)
def test_a_process_that_is_not_confined_is_refused_by_line(name: str, value: str) -> None:
    check_status(STATUS, SHAPE, "host")
    with pytest.raises(RuntimeUnavailable, match=name):
        check_status({**STATUS, name: value}, SHAPE, "host")


def test_an_inside_that_could_leave_is_refused() -> None:
    status = "\n".join(f"{name}:\t{value}" for name, value in STATUS.items()).encode()
    check_tried({"status": status, "tried unshare": b"-1", "tried mount": b"unknown"}, SHAPE, "inside")
    with pytest.raises(RuntimeUnavailable, match="tried mount succeeded"):
        check_tried({"status": status, "tried mount": b"0"}, SHAPE, "inside")
    with pytest.raises(RuntimeUnavailable, match="nothing could be tried"):
        check_tried({"status": status, "tried unshare": b"unknown", "tried mount": b"unknown"}, SHAPE, "inside")


def test_a_process_that_others_of_its_user_may_look_into_is_told_from_one_that_shut_itself() -> None:
    uid = os.geteuid() or 65534  # root's own files under /proc are root's either way
    script = "import ctypes, os, sys; os.geteuid() or os.setuid(int(sys.argv[1])); ctypes.CDLL(None).prctl(4, int(sys.argv[2])); "
    script += "print(flush=True); sys.stdin.read()"
    for dumpable in (1, 0):
        command = [sys.executable, "-c", script, str(uid), str(dumpable)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            assert observe.is_dumpable(process.pid, uid) is bool(dumpable)
            process.communicate()
    assert observe.is_dumpable(process.pid, uid)  # nothing vouches for one that has gone


TABLE = """\
10 1 0:40 / / ro,relatime - overlay overlay rw,lowerdir=/a
11 10 254:0 /room/1 /workspace ro,relatime master:2 - ext4 /dev/vda rw
12 11 0:41 / /workspace rw,nosuid,nodev,relatime master:3 - overlay overlay rw,lowerdir=/b
13 10 0:42 / /run/db ro,nosuid,nodev,relatime - ext4 /dev/vda rw
"""


def test_what_is_seen_at_a_target_is_the_topmost_mount() -> None:
    table = mount_lines(TABLE)
    assert list(table) == ["/", "/run/db", "/workspace"]
    assert table["/workspace"] == "/workspace overlay rw,nosuid,nodev,relatime"
    check_mounts(table, ["/workspace", "/run/db"], ["/run/db"])
    with pytest.raises(RuntimeUnavailable, match="nothing is mounted at /opt"):
        check_mounts(table, ["/opt"], [])
    with pytest.raises(RuntimeUnavailable, match="/workspace can be written"):
        check_mounts(table, ["/workspace"], ["/workspace"])


def test_what_an_image_sets_is_kept_under_what_is_asked_for() -> None:
    found = IMAGE.environment({"PATH": "/usr/local/bin:/usr/bin", "HOME": "/home/agent", "MODE": "slow"})
    assert found == {"PATH": "/usr/local/bin:/usr/bin:/opt/tool/bin", "HOME": "/home/agent", "MODE": "slow"}


def test_volumes_of_an_image_are_scratch_space_unless_state_lies_there() -> None:
    plan = SandboxPlan(name="x", role=Role.AGENT, mounts=(Mount(target="/var/tmp", layers=("/a",)),), limits=Limits(memory_mb=100))
    assert memory_targets(plan, IMAGE) == {"/tmp": 50, "/dev/shm": 25, "/data": 50}
    taken = dataclasses.replace(plan, mounts=(Mount(target="/data", layers=("/a",)),))
    assert "/data" not in memory_targets(taken, IMAGE)


def test_an_overlay_is_an_anonymous_volume_and_a_directory_a_bind() -> None:
    overlay = fixed(Mount(target="/w", layers=("/a", "/b"), upper="/u", work="/k"), {"l": "1"})
    assert overlay["Type"] == "volume"
    assert "Source" not in overlay
    assert overlay["VolumeOptions"]["NoCopy"] is True
    assert overlay["VolumeOptions"]["DriverConfig"]["Options"]["o"].startswith("lowerdir=/a:/b,upperdir=/u,workdir=/k,userxattr")
    bind = fixed(Mount(target="/w", layers=("/a",), readonly=True), {})
    assert (bind["Type"], bind["Source"], bind["ReadOnly"]) == ("bind", "/a", True)
    assert follows(Path("/room/1"), "/w")["BindOptions"] == {"Propagation": "rslave"}


def test_what_may_not_be_written_is_a_layer_too() -> None:
    mount = Mount(target="/w", layers=("/a",), upper="/u", work="/k", readonly=True)
    assert layers_of(mount) == ("/u", "/a")
    assert overlay_options(mount) == "lowerdir=/u:/a,userxattr"


def test_odd_names_are_quoted() -> None:
    mount = Mount(target="/w", layers=("/a:b,c\\d",), upper="/u,v", work="/k")
    assert overlay_options(mount) == r"lowerdir=/a\:b\,c\\d,upperdir=/u\,v,workdir=/k,userxattr"


@pytest.mark.parametrize(
    ("mount", "said"),
    [
        (Mount(target="/w", layers=()), "no directory behind it"),
        (Mount(target="/w", layers=("/a", "/b")), "none to write to"),
        (Mount(target="/w", layers=("/a",), upper="/u"), "no work directory"),
    ],
)
def test_mounts_that_make_no_sense_are_refused(mount: Mount, said: str) -> None:
    with pytest.raises(EnvironmentInvalid, match=said):
        overlay_options(mount)


def test_a_target_inside_another_is_mounted_within_it() -> None:
    slots = Slots(Path("/room"), "box", ["/workspace/code/.git", "/workspace", "/workspace/code", "/tmp", "/work"])
    assert set(slots.outer) == {"/tmp", "/work", "/workspace"}
    assert len(set(slots.outer.values())) == 3
