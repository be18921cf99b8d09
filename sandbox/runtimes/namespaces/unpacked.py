"""An unpacked image as the root of a sandbox."""

from __future__ import annotations

import functools
import hashlib
import os
import stat
from pathlib import Path, PurePosixPath

from sandbox import staging
from sandbox.errors import EnvironmentInvalid
from sandbox.runtimes.namespaces.identity import NSSWITCH, names
from sandbox.settings import Settings

_OURS = ("/tmp/", "/var/tmp/", "/dev/", "/proc/")  # below these, mount points can be made: they are not the image's
_KERNELS = ("tmp", "dev", "proc", "run")  # no links, whatever the image has there: bubblewrap mounts at these places


def arguments(
    settings: Settings, root: str, *, uid: int, gid: int, home: str, hostname: str, targets: tuple[str, ...]
) -> list[str]:
    """Return bubblewrap's arguments for a root in which `targets` can be mounted. Blocking. Raises EnvironmentInvalid."""
    path = Path(root)
    if not path.is_dir() or not any((path / name).exists() for name in ("bin", "usr/bin")):
        raise EnvironmentInvalid(
            f"root {root} is not an unpacked image: it has no bin directory", fix="unpack a root filesystem there"
        )
    if settings.users.agent is not None:
        for place in (path, *path.parents):
            if not place.stat().st_mode & stat.S_IXOTH:
                raise EnvironmentInvalid(
                    f"root {root} cannot be used: {place} lets only its owner pass, and sandboxes run as other users",
                    fix="unpack the image below directories that every user can pass, such as /var/lib/autoclave/roots",
                )
    top = layer(settings, root, uid=uid, gid=gid, home=home, hostname=hostname, targets=targets)
    # An overlay whose writes go nowhere, so that mount points can be made in it; it is made read-only when they are.
    return ["--overlay-src", str(path), "--overlay-src", str(top), "--tmp-overlay", "/"]


@functools.lru_cache(maxsize=128)
def layer(settings: Settings, root: str, *, uid: int, gid: int, home: str, hostname: str, targets: tuple[str, ...]) -> Path:
    """Return the directory that is laid over an unpacked image.

    It holds the sandbox's user beside the image's own, host names, which images leave to whoever runs them, a way from /var/tmp to
    memory, and the mount points, since the sandbox's user can make none in the image's own directories. Remembered: what changes in
    the image while the manager runs is not seen.
    """
    image = Path(root)
    generated = {
        "passwd": _accounts(image / "etc/passwd", "agent", uid, f"agent:x:{uid}:{gid}:agent:{home}:/bin/sh"),
        "group": _accounts(image / "etc/group", "agent", gid, f"agent:x:{gid}:"),
        **names(hostname),
        "resolv.conf": "",
    }
    if not (image / "etc/nsswitch.conf").exists():
        generated["nsswitch.conf"] = NSSWITCH
    links = {"var/tmp": "../tmp", "etc/mtab": "/proc/self/mounts"}
    if not os.path.lexists(image / "var/run"):
        links["var/run"] = "../run"
    points = sorted({target.lstrip("/") for target in targets if not target.startswith(_OURS)})
    points += [name for name in _KERNELS if (image / name).is_symlink()]

    def fill(folder: Path) -> None:
        (folder / "etc").mkdir()
        (folder / "var").mkdir()
        for name, text in generated.items():
            (folder / "etc" / name).write_text(text, errors="surrogateescape")
        for name, target in links.items():
            (folder / name).symlink_to(target)
        for name in points:
            (folder / name).mkdir(parents=True, exist_ok=True)

    text = repr((sorted(generated.items()), sorted(links.items()), points))
    return staging.place(settings, hashlib.blake2b(b"image layer\0" + text.encode(), digest_size=16).hexdigest(), fill)


def followed(root: str, target: str) -> str:
    """Return where a path leads inside an unpacked image: its links are followed as if it were the root; bubblewrap would follow
    them from outside."""
    image, found, links = Path(root), list[str](), 0
    ahead = list(reversed(PurePosixPath(target).parts[1:]))
    while ahead:
        word = ahead.pop()
        if word == "..":
            found = found[:-1]
        elif (place := image.joinpath(*found, word)).is_symlink() and (links := links + 1) < 40:
            aim = PurePosixPath(os.readlink(place))
            found = [] if aim.is_absolute() else found
            ahead += reversed([part for part in aim.parts if part != "/"])
        else:
            found.append(word)
    return "/" + "/".join(found)


def _accounts(file: Path, name: str, number: int, line: str) -> str:
    """An image's passwd or group with our entry in place of what has its name or number."""
    kept = []
    for each in file.read_text(errors="surrogateescape").splitlines() if file.is_file() else ("root:x:0:0",):
        words = each.split(":")
        if len(words) > 2 and words[0] != name and words[2] != str(number):
            kept.append(each)
    return "\n".join([*kept, line, ""])
