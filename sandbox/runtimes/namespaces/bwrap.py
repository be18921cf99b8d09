"""Builds bubblewrap's argument list: the default profile of a sandbox, in one place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

from sandbox.errors import EnvironmentInvalid
from sandbox.model import Limits
from sandbox.ports import Mount
from sandbox.runtimes.group.box import scratch

_RESERVED = ("/", "/proc", "/dev", "/tmp", "/usr", "/etc")


def confinement(*, uid: int, gid: int, hostname: str, first_process: bool) -> list[str]:
    """Every namespace, no capability, no further user namespace, death with the manager. bubblewrap that was started with
    privileges keeps them all unless each of these is said."""
    flags = ["--unshare-all", "--unshare-user", "--disable-userns", "--uid", str(uid), "--gid", str(gid)]
    flags += ["--cap-drop", "ALL", "--new-session", "--die-with-parent", "--clearenv", "--hostname", hostname]
    return [*flags, "--as-pid-1"] if first_process else flags


def filesystem(root: Sequence[str], mounts: Iterable[Mount], limits: Limits) -> list[str]:
    """The root, the kernel's own file systems, scratch space, then the mounts, parents first; all else is read-only."""
    tmp_mb, shm_mb = scratch(limits)
    found = [*root, "--proc", "/proc", "--dev", "/dev"]
    found += ["--perms", "1777", "--size", str(shm_mb << 20), "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    found += ["--perms", "1777", "--size", str(tmp_mb << 20), "--tmpfs", "/tmp", "--dir", "/run"]
    for mount in sorted(mounts, key=lambda m: len(PurePosixPath(m.target).parts)):
        found += mount_arguments(mount)
    return [*found, "--remount-ro", "/"]


def mount_arguments(mount: Mount) -> list[str]:
    """A bind for one layer, else an overlay. bubblewrap takes the lowest layer first; ours come top first."""
    target = mount.target
    if not target.startswith("/") or ".." in PurePosixPath(target).parts or target.rstrip("/") in (*_RESERVED, ""):
        raise EnvironmentInvalid(
            f"nothing can be mounted at {target!r}", fix=f"choose an absolute path that is none of {', '.join(_RESERVED)}"
        )
    layers = list(reversed(mount.layers))
    if mount.upper is not None and mount.readonly:
        layers.append(mount.upper)
    if not layers:
        raise EnvironmentInvalid(f"the mount at {target} has no directory behind it", fix="give it at least one layer")
    if mount.upper is None or mount.readonly:
        if len(layers) == 1:
            return ["--ro-bind" if mount.readonly else "--bind", layers[0], target]
        if not mount.readonly:
            raise EnvironmentInvalid(
                f"the mount at {target} has several layers and none to write to", fix="give it an upper, or make it readonly"
            )
        return [*_sources(layers), "--ro-overlay", target]
    if mount.work is None:
        raise EnvironmentInvalid(f"the overlay at {target} has no work directory", fix="give one on the file system of its upper")
    return [*_sources(layers), "--overlay", mount.upper, mount.work, target]


def _sources(layers: Iterable[str]) -> list[str]:
    return [word for layer in layers for word in ("--overlay-src", layer)]


def environment(variables: Mapping[str, str]) -> list[str]:
    return [word for name, value in sorted(variables.items()) for word in ("--setenv", name, value)]


def encode(arguments: Sequence[str]) -> bytes:
    """For `--args FD`: NUL after each. This way no path of the host stands in a command line that others can read."""
    return b"".join(argument.encode("utf-8", "surrogateescape") + b"\0" for argument in arguments)
