"""The root that a sandbox sees: the host's system directories with a made-up /etc, or an unpacked image."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from sandbox import plugins, staging
from sandbox.ports import Mount
from sandbox.runtimes.namespaces import unpacked
from sandbox.runtimes.namespaces.identity import NSSWITCH, names
from sandbox.settings import Settings

# Top-level names that a merged-/usr system has as links into /usr; where the host has real directories they are bound instead.
_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
# What is taken of the host's /etc, and nothing else: how to find libraries, names, time zones, certificates, alternatives.
ETC_NAMES = (
    "ca-certificates.conf",
    "debian_version",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "os-release",
    "pki/tls/certs/ca-bundle.crt",
    "profile",
    "protocols",
    "services",
    "shells",
    "ssl/certs/ca-certificates.crt",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
_BOUND = "/etc/alternatives"  # hundreds of links, cheaper to bind than to copy
# Where the host root mounts something besides /usr.
TARGETS = frozenset({"/etc", _BOUND, *(f"/{name}" for name in _SYSTEM)})


def arguments(
    settings: Settings, root: str, *, uid: int, gid: int, home: str, hostname: str, targets: tuple[str, ...] = ()
) -> list[str]:
    """Return bubblewrap's arguments for a root in which `targets` can be mounted; blocking (the first call for a root copies its
    /etc)."""
    if root != "host":
        return unpacked.arguments(settings, root, uid=uid, gid=gid, home=home, hostname=hostname, targets=targets)
    found = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        path = Path("/") / name
        if path.is_symlink():
            found += ["--symlink", os.readlink(path).lstrip("/"), f"/{name}"]
        elif path.is_dir():
            found += ["--ro-bind", str(path), str(path)]
    found += masked(hidden_directories())
    etc = etc_directory(settings, uid=uid, gid=gid, home=home, hostname=hostname)
    found += ["--ro-bind", str(etc), "/etc", "--ro-bind-try", _BOUND, _BOUND, "--dir", "/var"]
    return [*found, "--symlink", "../tmp", "/var/tmp", "--symlink", "../run", "/var/run"]


def placed(root: str, mounts: Sequence[Mount]) -> tuple[Mount, ...]:
    """Return the mounts at the places to which a root's own links lead."""
    if root == "host":
        return tuple(mounts)
    return tuple(dataclasses.replace(mount, target=unpacked.followed(root, mount.target)) for mount in mounts)


@functools.cache
def hidden_directories() -> tuple[Path, ...]:
    """Return the directories of ours, and of packages that bring environments, that lie below what every sandbox sees: their tasks
    and solutions are not the agent's to read. Remembered: packages are not installed while the manager runs."""
    tops = {"sandbox", "probes", "envs", "rollout"}
    tops |= {point.module.partition(".")[0] for points in plugins.offered(plugins.Group.ENVIRONMENTS).values() for point in points}
    return below_roots(path for top in sorted(tops) for path in _places(top))


def below_roots(directories: Iterable[Path]) -> tuple[Path, ...]:
    """Keep the directories that lie in the host's system directories, by their real paths."""
    roots = [Path("/usr"), *(path for name in _SYSTEM if (path := Path("/") / name).is_dir() and not path.is_symlink())]
    real = dict.fromkeys(path.resolve() for path in directories)
    return tuple(path for path in real if path.is_dir() and any(path.is_relative_to(root) for root in roots))


def masked(directories: Iterable[Path]) -> list[str]:
    """Return the arguments that put something empty and read-only over each."""
    return [argument for path in directories for argument in ("--tmpfs", str(path), "--remount-ro", str(path))]


def _places(package: str) -> list[Path]:
    """Return where a top-level package lies, without importing it."""
    spec = find_spec(package)
    return [Path(place) for place in (spec.submodule_search_locations or ())] if spec else []


@functools.lru_cache(maxsize=32)
def etc_directory(settings: Settings, *, uid: int, gid: int, home: str, hostname: str) -> Path:
    """Return a directory that serves as /etc: generated accounts and names, and copies of the few host files listed above.
    Remembered: what changes in the host's /etc while the manager runs is not taken over."""
    generated = {
        "passwd": f"root:x:0:0:root:/root:/bin/sh\nagent:x:{uid}:{gid}:agent:{home}:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/:/bin/false\n",
        "group": f"root:x:0:\nagent:x:{gid}:\nnogroup:x:65534:\n",
        **names(hostname),
        "nsswitch.conf": NSSWITCH,
        "resolv.conf": "",
    }
    sources = {name: Path("/etc") / name for name in ETC_NAMES if os.path.lexists(Path("/etc") / name)}
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr(sorted(generated.items())).encode())
    for name, path in sources.items():
        status = path.stat() if path.exists() else path.lstat()
        digest.update(f"{name} {status.st_mtime_ns} {status.st_size} {status.st_ino}".encode())

    def fill(folder: Path) -> None:
        for name, source in sources.items():
            _copy(source, folder / name)
        for name, text in generated.items():
            (folder / name).write_text(text)
        (folder / "alternatives").mkdir()
        (folder / "mtab").symlink_to("/proc/self/mounts")

    return staging.place(settings, digest.hexdigest(), fill)


def _copy(source: Path, target: Path) -> None:
    """Copy what any user may read; links stay links, a link out of /etc and /usr becomes its content."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        aim = os.readlink(source)
        inside = os.path.normpath(os.path.join("/", source.parent, aim))
        if inside.startswith(("/usr/", "/etc/", "/lib", "/bin")):
            target.symlink_to(aim)
            return
    if source.is_dir():
        target.mkdir(exist_ok=True)
        for entry in sorted(source.iterdir()):
            _copy(entry, target / entry.name)
    elif source.is_file() and source.stat().st_mode & 0o004:
        target.write_bytes(source.read_bytes())
