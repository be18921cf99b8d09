"""The argument list that confines a sandbox."""

from __future__ import annotations

import pytest

from sandbox.errors import EnvironmentInvalid
from sandbox.model import Limits
from sandbox.ports import Mount
from sandbox.runtimes.group.box import scratch
from sandbox.runtimes.namespaces import bwrap


def pairs(arguments: list[str], flag: str, count: int) -> list[tuple[str, ...]]:
    return [tuple(arguments[at + 1 : at + 1 + count]) for at, word in enumerate(arguments) if word == flag]


def test_every_flag_of_the_profile_is_there() -> None:
    flags = bwrap.confinement(uid=1000, gid=1000, hostname="h", first_process=False)
    for flag in ("--unshare-all", "--unshare-user", "--disable-userns", "--new-session", "--die-with-parent", "--clearenv"):
        assert flag in flags
    assert pairs(flags, "--cap-drop", 1) == [("ALL",)]
    assert pairs(flags, "--uid", 1) == [("1000",)]
    assert "--share-net" not in flags
    assert "--as-pid-1" not in flags
    assert "--as-pid-1" in bwrap.confinement(uid=1000, gid=1000, hostname="h", first_process=True)


def test_layers_come_top_first_and_bubblewrap_wants_the_lowest_first() -> None:
    mount = Mount(target="/data", layers=("/top", "/middle", "/base"), upper="/u", work="/w")
    assert bwrap.mount_arguments(mount) == [
        *("--overlay-src", "/base", "--overlay-src", "/middle", "--overlay-src", "/top"),
        *("--overlay", "/u", "/w", "/data"),
    ]


def test_a_readonly_view_of_a_clone_holds_its_upper_as_the_top_layer() -> None:
    mount = Mount(target="/data", layers=("/base",), upper="/u", work="/w", readonly=True)
    assert bwrap.mount_arguments(mount) == ["--overlay-src", "/base", "--overlay-src", "/u", "--ro-overlay", "/data"]


def test_one_layer_is_a_bind() -> None:
    assert bwrap.mount_arguments(Mount(target="/a", layers=("/x",))) == ["--bind", "/x", "/a"]
    assert bwrap.mount_arguments(Mount(target="/a", layers=("/x",), readonly=True)) == ["--ro-bind", "/x", "/a"]


@pytest.mark.parametrize("target", ["/", "/proc", "/etc/", "relative", "/a/../etc", "/usr"])
def test_a_mount_over_the_system_is_refused(target: str) -> None:
    with pytest.raises(EnvironmentInvalid):
        bwrap.mount_arguments(Mount(target=target, layers=("/x",)))


def test_layers_without_a_place_to_write_are_refused() -> None:
    with pytest.raises(EnvironmentInvalid, match="none to write to"):
        bwrap.mount_arguments(Mount(target="/a", layers=("/x", "/y")))
    with pytest.raises(EnvironmentInvalid, match="no work directory"):
        bwrap.mount_arguments(Mount(target="/a", layers=("/x",), upper="/u"))
    with pytest.raises(EnvironmentInvalid, match="no directory behind it"):
        bwrap.mount_arguments(Mount(target="/a", layers=()))


def test_parents_are_mounted_before_what_lies_in_them_and_the_root_is_closed_last() -> None:
    mounts = (Mount(target="/a/b/c", layers=("/1",)), Mount(target="/a", layers=("/2",)))
    arguments = bwrap.filesystem(["--ro-bind", "/usr", "/usr"], mounts, Limits())
    assert pairs(arguments, "--bind", 2) == [("/2", "/a"), ("/1", "/a/b/c")]
    assert arguments[-2:] == ["--remount-ro", "/"]


def test_scratch_space_stays_below_the_memory_bound() -> None:
    for memory_mb, disk_mb in ((64, 10_000), (1024, 10), (4, 4)):
        tmp, shm = scratch(Limits(memory_mb=memory_mb, disk_mb=disk_mb))
        assert tmp <= disk_mb
        assert tmp + shm < memory_mb


def test_arguments_are_ended_by_nul_so_that_any_path_passes() -> None:
    assert bwrap.encode(["--setenv", "A", "two words\n\udcff"]) == b"--setenv\0A\0two words\n\xff\0"
