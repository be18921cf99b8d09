"""The host's reading of an overlay against the kernel's own, over random sequences of operations made by a dropped user."""

from __future__ import annotations

import base64
import json
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox.errors import SnapshotMissing
from sandbox.model import Role, SealedDir
from sandbox.ports import Clone, Mount, Storage, Tree
from sandbox.settings import Settings
from sandbox.storage import open_storage

pytestmark = [pytest.mark.namespaces, pytest.mark.usefixtures("nothing_left")]

Inside = Callable[..., subprocess.CompletedProcess[str]]

# Makes the operations that the seed names, then prints what the kernel shows of the result.
INSIDE = r"""
import base64, json, os, random, shutil, stat, sys
seed, count = int(sys.argv[1]), int(sys.argv[2])
os.umask(0o022)
rng = random.Random(seed)
os.chdir("/state")

def every(kind=None):
    found = ["."] if kind in (None, "dir") else []
    for base, dirs, files in os.walk("."):
        for name in dirs + files:
            path = os.path.normpath(os.path.join(base, name))
            mode = os.lstat(path).st_mode
            if kind is None or (stat.S_ISDIR(mode) if kind == "dir" else stat.S_ISREG(mode)):
                found.append(path)
    return sorted(found)

def fresh():
    return os.path.normpath(os.path.join(rng.choice(every("dir")), "n%d" % rng.randrange(12)))

def remove(path):
    if path == ".":
        return
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.remove(path)

def create():
    # A FIFO of that name must not wait for a reader.
    with open(os.open(fresh(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o644), "w") as f:
        f.write(str(rng.random()) * rng.randrange(4))

def modify():
    with open(rng.choice(every("file")), "r+") as f:
        f.write("M%d" % rng.randrange(99))

def delete():
    remove(rng.choice(every()))

def mkdir():
    os.makedirs(os.path.join(fresh(), "in%d" % rng.randrange(3)), exist_ok=True)

def dir_to_file():
    path = rng.choice(every("dir"))
    if path != ".":
        shutil.rmtree(path)
        open(path, "w").close()

def file_to_dir():
    path = rng.choice(every("file"))
    os.remove(path)
    os.mkdir(path)
    open(os.path.join(path, "inner"), "w").close()

def redo_dir():
    path = rng.choice(every("dir"))
    if path != ".":
        shutil.rmtree(path)
        os.mkdir(path)

def rename():
    os.rename(rng.choice(every()), fresh())

def move_dir():
    shutil.move(rng.choice(every("dir")), fresh())

def symlink():
    os.symlink(rng.choice(["../x", "/etc/passwd", "."]), fresh())

def hardlink():
    os.link(rng.choice(every("file")), fresh())

def chmod():
    path = rng.choice(every())
    if not os.path.islink(path):
        os.chmod(path, rng.choice([0o700, 0o755, 0o2750]) if os.path.isdir(path) else rng.choice([0o600, 0o444, 0o4755, 0]))

def xattr():
    path = rng.choice(every())
    if not os.path.islink(path):
        os.setxattr(path, rng.choice(["user.a", "user.overlay.opaque", "user.overlay.whiteout"]), b"y")

def fifo():
    os.mkfifo(fresh())

def truncate():
    os.truncate(rng.choice(every("file")), rng.randrange(3))

ops = [create, create, modify, delete, delete, mkdir, dir_to_file, file_to_dir, redo_dir, rename, rename, move_dir, symlink,
       hardlink, chmod, xattr, fifo, truncate]
failed = 0
for _ in range(count):
    try:
        rng.choice(ops)()
    except (OSError, shutil.Error, IndexError):
        failed += 1

seen = {}
for path in every():
    s = os.lstat(path)
    link = stat.S_ISLNK(s.st_mode)
    entry = {"mode": s.st_mode, "target": os.readlink(path) if link else None, "content": None, "xattrs": {}}
    if not link:
        names = os.listxattr(path) if s.st_mode & 0o400 else None
        entry["xattrs"] = None if names is None else {n: base64.b64encode(os.getxattr(path, n)).decode() for n in names}
    if stat.S_ISREG(s.st_mode):
        entry["size"] = s.st_size
        if s.st_mode & 0o400:
            entry["content"] = base64.b64encode(open(path, "rb").read()).decode()
    seen["" if path == "." else path] = entry
json.dump({"failed": failed, "seen": seen}, sys.stdout)
"""


@pytest.fixture
async def storage(settings: Settings) -> Any:
    opened = await open_storage(settings, method="overlay")
    yield opened
    await opened.close()


def change(inside: Inside, clone: Clone, seed: int, count: int) -> dict[str, Any]:
    done = inside(clone.mount("/state"), "/usr/bin/python3", "-", str(seed), str(count), stdin=INSIDE)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    # The test is worth something only when most operations worked.
    assert seen["failed"] < count * 0.7
    result: dict[str, Any] = seen["seen"]
    return result


def shown(inside: Inside, mount: Mount) -> dict[str, Any]:
    """Return what the kernel shows, changing nothing."""
    done = inside(mount, "/usr/bin/python3", "-", "0", "0", stdin=INSIDE)
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)["seen"]
    return result


def from_host(tree: Tree) -> dict[str, Any]:
    found: dict[str, Any] = {}
    top = tree.entry("")
    assert top is not None
    for entry in (top, *tree.walk()):
        kind = {"file": stat.S_IFREG, "dir": stat.S_IFDIR, "link": stat.S_IFLNK, "fifo": stat.S_IFIFO}[entry.kind]
        readable = bool(entry.mode & 0o400)
        seen: dict[str, Any] = {"mode": kind | entry.mode, "target": entry.target, "content": None, "xattrs": {}}
        if entry.kind != "link":
            seen["xattrs"] = {n: base64.b64encode(v).decode() for n, v in tree.xattrs(entry.path).items()} if readable else None
        if entry.kind == "file":
            seen["size"] = entry.size
            if readable:
                seen["content"] = base64.b64encode(tree.read(entry.path)).decode()
        found[entry.path] = seen
    return found


async def seed_state(settings: Settings, inside: Inside, storage: Storage) -> SealedDir:
    blank = await storage.blank("box/state", Role.SERVER)
    change(inside, blank, seed=1, count=60)
    mount = blank.mount("/state")
    done = inside(mount, "/bin/sh", "-c", "cd /state && mkdir -p a/b/c && echo 1 >a/b/one && echo 2 >two && ln -f two three")
    assert done.returncode == 0, done.stderr
    if settings.users.server is None:
        open_modes(Path(mount.layers[0]))
    return await storage.seal(blank)


def open_modes(top: Path) -> None:
    """An ordinary user's manager can only seal what its owner may read."""
    for path in (top, *top.rglob("*")):
        if not path.is_symlink():
            path.chmod(stat.S_IMODE(path.lstat().st_mode) | 0o600)


@pytest.mark.parametrize("seed", range(12))
async def test_the_host_reads_what_the_kernel_shows(settings: Settings, inside: Inside, storage: Storage, seed: int) -> None:
    golden = await seed_state(settings, inside, storage)
    clone = await storage.clone(golden)
    assert (await clone.prove()).holds
    before = from_host(clone.tree())
    seen = change(inside, clone, seed=100 + seed, count=40)
    assert from_host(clone.tree()) == seen
    # What changed() does not name is as before, and it names every path that differs.
    touched = clone.tree().changed()
    assert touched is not None
    assert {path for path in before.keys() | seen.keys() if before.get(path) != seen.get(path)} <= touched
    assert not (await clone.prove()).holds
    assert await storage.verify(golden)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("uppers", ["in memory", "beside the layers"])
async def test_layers_of_layers_read_as_the_kernel_shows_them(settings: Settings, inside: Inside, seed: int, uppers: str) -> None:
    if uppers == "beside the layers":  # then an upper is frozen by a rename, else by a copy
        settings = replace(settings, scratch=settings.store)
    storage = await open_storage(settings, method="overlay")
    sealed = await seed_state(settings, inside, storage)
    for level in range(3):
        clone = await storage.clone(sealed)
        seen = change(inside, clone, seed=1000 * seed + level, count=25)
        if settings.users.server is None:
            done = inside(clone.mount("/state"), "/bin/sh", "-c", "chmod -R u+rwX /state")
            assert done.returncode == 0, done.stderr
            seen = from_host(clone.tree())
        sealed = await storage.seal(clone)
        assert len(sealed.layers) == level + 2
        child = await storage.clone(sealed)
        assert from_host(child.tree()) == seen
        again = shown(inside, child.mount("/state"))
        assert again == seen
        assert (await child.prove()).holds  # reading leaves no trace in the upper
        readonly = child.mount("/state", readonly=True)
        assert shown(inside, readonly) == seen
        assert inside(readonly, "/bin/sh", "-c", "echo x > /state/x").returncode != 0
        await child.destroy()
    await storage.close()


async def test_a_tall_stack_is_flattened_and_loses_nothing(settings: Settings, inside: Inside, storage: Storage) -> None:
    sealed = await seed_state(settings, inside, storage)
    heights = []
    for level in range(9):
        clone = await storage.clone(sealed)
        script = (
            f"cd /state && echo {level} >file{level} && rm -f file{level - 2} && setfattr -n user.overlay.x -v {level} two; true"
        )
        assert inside(clone.mount("/state"), "/bin/sh", "-c", script).returncode == 0
        before = from_host(clone.tree())
        sealed = await storage.seal(clone)
        heights.append(len(sealed.layers))
        child = await storage.clone(sealed)
        assert from_host(child.tree()) == before
        await child.destroy()
        assert await storage.verify(sealed)
    assert heights == [2, 3, 4, 5, 6, 7, 8, 1, 2]


async def test_hard_links_of_a_layer_stay_together(settings: Settings, inside: Inside, storage: Storage) -> None:
    golden = await seed_state(settings, inside, storage)
    tree = (await storage.clone(golden)).tree()
    two, three = tree.entry("two"), tree.entry("three")
    assert two is not None
    assert three is not None
    assert two.inode == three.inode


async def test_the_agent_can_forge_neither_whiteouts_nor_opaque_directories(
    settings: Settings, inside: Inside, storage: Storage
) -> None:
    golden = await seed_state(settings, inside, storage)
    clone = await storage.clone(golden)
    script = """
import os
for path, name in (("a", "opaque"), ("two", "whiteout"), ("a", "redirect"), ("two", "metacopy")):
    os.setxattr("/state/" + path, "user.overlay." + name, b"y")
os.truncate("/state/two", 0)
try:
    os.mknod("/state/wh", 0o020000, 0)
except PermissionError:
    print("refused")
"""
    done = inside(clone.mount("/state"), "/usr/bin/python3", "-c", script)
    assert done.stdout == "refused\n", done.stderr
    tree = clone.tree()
    assert tree.read("a/b/one") == b"1\n"
    assert tree.xattrs("two") == {"user.overlay.whiteout": b"y", "user.overlay.metacopy": b"y"}
    sealed = await storage.seal(clone)
    assert (await storage.clone(sealed)).tree().xattrs("a") == {"user.overlay.opaque": b"y", "user.overlay.redirect": b"y"}


async def test_leftovers_of_a_killed_mount_are_deleted(settings: Settings, inside: Inside, storage: Storage) -> None:
    """The kernel leaves a directory of mode 000 in the work directory, and an agent leaves what it likes."""
    golden = await seed_state(settings, inside, storage)
    clone = await storage.clone(golden)
    script = "cd /state && mkdir -p x/y/z && touch x/y/z/f && chmod 0 x/y/z x/y x && kill -9 $$"
    inside(clone.mount("/state"), "/bin/sh", "-c", script)
    work = Path(clone.mount("/state").work or "")
    assert [p.name for p in work.iterdir()] == ["work"]
    assert stat.S_IMODE((work / "work").lstat().st_mode) == 0
    await clone.destroy()
    with pytest.raises(SnapshotMissing):
        clone.tree()


async def test_a_clone_under_way_elsewhere_is_not_reachable_by_the_other_role(
    settings: Settings, inside: Inside, storage: Storage
) -> None:
    if settings.users.agent is None:
        pytest.skip("an ordinary user has one id for every role")
    golden = await seed_state(settings, inside, storage)
    clone = await storage.clone(golden)
    for path in (*clone.mount("/state").layers, clone.mount("/state").upper or ""):
        assert lists(settings.users.server, path)
        assert not lists(settings.users.agent, path)


def lists(uid: int | None, path: str) -> bool:
    return subprocess.run(["/bin/ls", path], user=uid, group=uid, extra_groups=[], capture_output=True, check=False).returncode == 0
