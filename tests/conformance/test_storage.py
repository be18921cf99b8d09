"""One suite over every way of cloning that the machine allows: btrfs and XFS on loop-back images, overlay and copy anywhere."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import stat
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.errors import EnvironmentInvalid, LimitReached, RuntimeUnavailable, SnapshotMissing
from sandbox.model import Role, SealedDir
from sandbox.ports import Clone, Storage
from sandbox.settings import Settings
from sandbox.storage import describe, open_storage
from sandbox.storage.btrfs import opened
from sandbox.storage.ioctl import create_subvolume, set_readonly

Inside = Callable[..., subprocess.CompletedProcess[str]]
Need = Callable[[str, str], None]

pytestmark = [pytest.mark.namespaces, pytest.mark.usefixtures("nothing_left")]
METHODS = ("btrfs", "reflink", "overlay", "copy")
IMAGE_OF = "autoclave-test-image-"  # and the number of the process that mounted it
IMAGES = {"btrfs": ("mkfs.btrfs", "-q"), "reflink": ("mkfs.xfs", "-q", "-m", "reflink=1")}
SEED = """
set -e
umask 022
cd /state
mkdir -p d/e
echo one >d/one; echo two >two; ln two three; ln -s d/one link; mkfifo fifo
head -c 300000 /dev/zero | tr '\\0' x >large
truncate -s 20000000 sparse
chmod 4750 d/one; chmod 2700 d/e
python3 -c 'import os; os.setxattr("two", "user.note", b"1"); os.setxattr("d", "user.overlay.opaque", b"y")'
"""
# One of each kind: content, mode, new, gone, renamed, link, xattr, the top itself.
CHANGES = (
    "echo more >>two",
    "chmod 600 large",
    "touch new",
    "rm d/one",
    "mv two d/two",
    "ln -sfn elsewhere link",
    'python3 -c \'import os; os.setxattr("large", "user.note", b"2")\'',
    "chmod 711 .",
)


@pytest.fixture(scope="module")
def images() -> Iterator[dict[str, Path]]:
    """Where an image of each filesystem is mounted; made when first asked for."""
    mounted: dict[str, Path] = {}
    yield mounted
    for place in mounted.values():
        subprocess.run(["umount", str(place)], check=True)
        shutil.rmtree(place.parent)


def remove_images_of_ended_runs() -> None:
    """A run that was killed could not unmount its own."""
    for base in Path("/var/tmp").glob(f"{IMAGE_OF}*"):
        number = base.name.removeprefix(IMAGE_OF).split("-")[0]
        if number.isdigit() and not Path("/proc", number).exists():
            subprocess.run(["umount", "--quiet", str(base / "mnt")], check=False, capture_output=True)
            if not os.path.ismount(base / "mnt"):
                shutil.rmtree(base, ignore_errors=True)


def test_images_of_a_killed_run_are_removed_by_the_next(need: Need) -> None:
    if os.geteuid() != 0:
        need("root", "only root mounts images")
    process = subprocess.Popen(["true"])
    process.wait()
    base = Path(tempfile.mkdtemp(prefix=f"{IMAGE_OF}{process.pid}-", dir="/var/tmp"))
    own = Path(tempfile.mkdtemp(prefix=f"{IMAGE_OF}{os.getpid()}-", dir="/var/tmp"))
    (base / "mnt").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(base / "mnt")], check=True)
    remove_images_of_ended_runs()
    assert (base.exists(), own.exists()) == (False, True)
    own.rmdir()


def mounted_image(images: dict[str, Path], method: str, need: Need) -> Path:
    if method in images:
        return images[method]
    if os.geteuid() != 0:
        need(method, "only root can mount an image")
    if shutil.which(IMAGES[method][0]) is None:
        need(method, f"no {IMAGES[method][0]} (apt-get install btrfs-progs xfsprogs)")
    remove_images_of_ended_runs()
    base = Path(tempfile.mkdtemp(prefix=f"{IMAGE_OF}{os.getpid()}-", dir="/var/tmp"))
    base.chmod(0o755)
    with (base / "image").open("wb") as image:
        image.truncate(400_000_000)
    subprocess.run([*IMAGES[method], str(base / "image")], check=True, capture_output=True)
    (base / "mnt").mkdir()
    done = subprocess.run(
        ["mount", "-o", "loop", str(base / "image"), str(base / "mnt")], check=False, capture_output=True, text=True
    )
    if done.returncode:
        shutil.rmtree(base)
        need(method, f"the image cannot be mounted: {done.stderr.strip()}")
    (base / "mnt").chmod(0o755)
    images[method] = base / "mnt"
    return images[method]


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def settings(settings: Settings, passable_dir: Path, method: str, images: dict[str, Path], need: Need) -> Iterator[Settings]:
    """The shared settings, with the store on the filesystem that the method asks for."""
    if method not in IMAGES:
        yield settings
        return
    store = mounted_image(images, method, need) / passable_dir.name
    yield replace(settings, store=store)
    shutil.rmtree(store, ignore_errors=True)


@pytest.fixture
async def storage(settings: Settings, method: str) -> AsyncIterator[Storage]:
    opened_storage = await open_storage(settings, method=method)
    yield opened_storage
    await opened_storage.close()


@pytest.fixture
def sealed_state(storage: Storage, inside: Inside) -> Callable[[], asyncio.Task[SealedDir]]:
    async def make() -> SealedDir:
        blank = await storage.blank("box/state", Role.SERVER)
        act(inside, blank, SEED)
        return await storage.seal(blank)

    return lambda: asyncio.ensure_future(make())


def act(inside: Inside, clone: Clone, script: str) -> None:
    done = inside(clone.mount("/state"), "/bin/sh", "-ec", f"cd /state\n{script}")
    assert done.returncode == 0, done.stderr


def listing(clone: Clone) -> dict[str, object]:
    tree = clone.tree()
    top = tree.entry("")
    assert top is not None
    return {
        e.path: (
            e.kind,
            e.mode,
            e.uid,
            e.target,
            e.size if e.kind == "file" else 0,
            e.mtime_ns if e.path else 0,
            dict(tree.xattrs(e.path)),
            tree.read(e.path) if e.kind == "file" else b"",
        )
        for e in (top, *tree.walk())
    }


async def test_a_clone_is_its_origin_in_everything_that_counts(
    settings: Settings, storage: Storage, method: str, inside: Inside
) -> None:
    blank = await storage.blank("box/state", Role.SERVER)
    act(inside, blank, SEED)
    before = listing(blank)
    sealed = await storage.seal(blank)
    assert (sealed.name, sealed.role, sealed.files) == ("box/state", Role.SERVER, 7)
    clone = await storage.clone(sealed)
    assert listing(clone) == before
    proof = await clone.prove()
    assert proof.holds, proof.detail
    assert (
        proof.method
        == {"btrfs": "subvolume-generation", "reflink": "shared-extents", "overlay": "empty-upper", "copy": "digest"}[method]
    )
    two, three, sparse = (clone.tree().entry(name) for name in ("two", "three", "sparse"))
    assert two is not None
    assert three is not None
    assert sparse is not None
    assert two.inode == three.inode
    assert os.stat(clone.tree().real("sparse")).st_blocks * 512 < 1_000_000
    assert two.uid == (settings.users.server or os.geteuid())
    assert storage.name == method
    assert storage.in_force["storage"] == method
    assert await storage.verify(sealed)


async def test_every_storage_gives_a_state_the_same_digest(
    storage: Storage, sealed_state: Callable[[], asyncio.Task[SealedDir]]
) -> None:
    """So that a digest in a report means the same everywhere; the owner does not count either."""
    assert (await sealed_state()).digest == "6fe7e060434528a405e789a4c6ae4771a2314622f74c94464035075061619a04"


async def test_a_change_reaches_neither_origin_nor_sibling_and_no_proof_holds(
    storage: Storage, inside: Inside, sealed_state: Callable[[], asyncio.Task[SealedDir]]
) -> None:
    sealed = await sealed_state()
    sibling = await storage.clone(sealed)
    before = listing(sibling)
    for change in CHANGES:
        clone = await storage.clone(sealed)
        act(inside, clone, change)
        assert listing(clone) != before, change
        proof = await clone.prove()
        assert not proof.holds, change
        assert proof.detail
    assert listing(sibling) == before
    assert (await sibling.prove()).holds
    assert await storage.verify(sealed)


async def test_a_sealed_change_is_a_new_state_and_uses_up_its_clone(
    storage: Storage, inside: Inside, sealed_state: Callable[[], asyncio.Task[SealedDir]]
) -> None:
    golden = await sealed_state()
    clone = await storage.clone(golden)
    act(inside, clone, "rm -r d; echo 2 >new; chmod 700 .")
    before = listing(clone)
    child = await storage.seal(clone)
    assert child.digest != golden.digest
    assert listing(await storage.clone(child)) == before
    assert await storage.verify(golden)
    assert await storage.verify(child)
    for use in (clone.tree, lambda: clone.mount("/state")):
        with pytest.raises(SnapshotMissing, match="already sealed"):
            use()
    with pytest.raises(SnapshotMissing):
        await storage.seal(clone)
    await clone.destroy()
    assert await storage.verify(child)


async def test_a_child_outlives_its_removed_parent_and_nothing_outlives_both(
    settings: Settings, storage: Storage, inside: Inside, sealed_state: Callable[[], asyncio.Task[SealedDir]]
) -> None:
    golden = await sealed_state()
    clone = await storage.clone(golden)
    act(inside, clone, "echo 2 >new")
    child = await storage.seal(clone)
    held = await storage.clone(golden)
    await storage.remove(golden)
    with pytest.raises(SnapshotMissing):
        await storage.clone(golden)
    await held.destroy()
    clone = await storage.clone(child)
    assert clone.tree().read("d/one") == b"one\n"
    await clone.destroy()
    assert await storage.verify(child)
    await storage.remove(child)
    await storage.remove(child)  # twice is no error
    assert list((settings.store / "snapshots").iterdir()) == []
    assert await storage.usage_bytes() == 0


async def test_names_are_never_used_again(storage: Storage, sealed_state: Callable[[], asyncio.Task[SealedDir]]) -> None:
    sealed = await sealed_state()
    seen = set()
    for _ in range(20):
        clone = await storage.clone(sealed)
        mount = clone.mount("/state")
        seen.add(mount.upper or mount.layers[0])
        await clone.destroy()
        await clone.destroy()
        assert not Path(mount.upper or mount.layers[0]).exists()
    assert len(seen) == 20


async def test_many_clones_at_once(storage: Storage, sealed_state: Callable[[], asyncio.Task[SealedDir]]) -> None:
    sealed = await sealed_state()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(storage.clone(sealed)) for _ in range(12)]
    clones = [task.result() for task in tasks]
    assert all([(await clone.prove()).holds for clone in clones])
    async with asyncio.TaskGroup() as group:
        for clone in clones:
            group.create_task(clone.destroy())


async def test_tampering_breaks_the_seal(
    storage: Storage, method: str, sealed_state: Callable[[], asyncio.Task[SealedDir]]
) -> None:
    sealed = await sealed_state()
    top = Path(sealed.layers[0])
    if method == "btrfs":
        with pytest.raises(OSError, match="Read-only"):
            (top / "two").write_text("tampered")
        with opened(top) as directory:
            set_readonly(directory, False)
    (top / "two").write_text("TWO\n")
    os.utime(top / "two", ns=(1, 1))
    assert not await storage.verify(sealed)
    if method == "btrfs":
        assert not (await (await storage.clone(sealed)).prove()).holds
    shutil.rmtree(top / "d")
    assert not await storage.verify(sealed)


async def test_a_missing_layer_is_a_missing_snapshot(storage: Storage, sealed_state: Callable[[], asyncio.Task[SealedDir]]) -> None:
    sealed = await sealed_state()
    Path(sealed.layers[0]).parent.chmod(0o700)
    os.rename(sealed.layers[0], sealed.layers[0] + "-gone")
    assert not await storage.verify(sealed)
    with pytest.raises(SnapshotMissing, match="Build"):
        await storage.clone(sealed)
    os.rename(sealed.layers[0] + "-gone", sealed.layers[0])
    with pytest.raises(SnapshotMissing):
        await storage.clone(replace(sealed, layers=("/etc",)))


async def test_sweep_deletes_what_a_killed_manager_left(
    settings: Settings, storage: Storage, method: str, inside: Inside, sealed_state: Callable[[], asyncio.Task[SealedDir]]
) -> None:
    kept = await sealed_state()
    clone = await storage.clone(kept)
    act(inside, clone, "echo 2 >new")
    child = await storage.seal(clone)
    dropped = await sealed_state()
    left, blank = await storage.clone(child), await storage.blank("box/other", Role.AGENT)
    act(inside, left, "mkdir -p x/y && chmod 0 x/y x")
    half = settings.store / "snapshots" / "half-made"
    half.mkdir()
    half_trash = settings.store / "trash" / "old"
    half_trash.mkdir()
    # A second manager, as after a kill: it knows the store's directory only.
    later = await open_storage(settings, method=method)
    mine = await later.clone(child)
    gone = await later.sweep([child])
    holders = {str(Path(c.mount("/s").upper or c.mount("/s").layers[0]).parent) for c in (left, blank)}
    assert set(gone) >= holders | {str(half), str(Path(dropped.layers[0]).parent)}
    assert not any(Path(path).exists() for path in gone)
    assert not half_trash.exists()
    assert (await mine.prove()).holds
    assert await later.verify(child)
    if method == "overlay":
        assert Path(kept.layers[0]).is_dir()
    with pytest.raises(SnapshotMissing):
        await later.clone(dropped)
    assert set(await later.sweep([])) == {str(Path(child.layers[0]).parent)} - {str(Path(p).parent) for p in mine.origin.layers}
    await mine.destroy()
    await later.sweep([])
    await later.close()
    assert list((settings.store / "snapshots").iterdir()) == []


async def test_cancelled_calls_leave_nothing(
    settings: Settings, storage: Storage, inside: Inside, sealed_state: Callable[[], asyncio.Task[SealedDir]]
) -> None:
    sealed = await sealed_state()
    task = asyncio.ensure_future(storage.clone(sealed))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    clone = await storage.clone(sealed)
    act(inside, clone, "echo 2 >new")
    sealing = asyncio.ensure_future(storage.seal(clone))
    await asyncio.sleep(0.001)
    sealing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sealing
    await clone.destroy()
    assert [p.name for p in (settings.store / "snapshots").iterdir() if p.is_dir()] == [Path(sealed.layers[0]).parent.name]
    for top in (settings.store, settings.scratch):
        assert list((top / "clones").iterdir()) == []


async def test_usage_is_what_lies_beyond_the_origin(
    storage: Storage, method: str, inside: Inside, sealed_state: Callable[[], asyncio.Task[SealedDir]]
) -> None:
    sealed = await sealed_state()
    assert await storage.usage_bytes() >= 300_000
    clone = await storage.clone(sealed)
    fresh = await clone.usage_bytes()
    assert fresh >= 300_000 if method == "copy" else fresh < 100_000
    act(inside, clone, "head -c 2000000 /dev/urandom >new; sync new")
    assert 2_000_000 <= await clone.usage_bytes() - fresh < 2_300_000


async def test_what_is_only_opened_for_writing_is_not_written(
    storage: Storage, inside: Inside, sealed_state: Callable[[], asyncio.Task[SealedDir]]
) -> None:
    """An overlay copies such a file up whole, and servers open all their files so, whoever asks them."""
    clone = await storage.clone(await sealed_state())
    fresh = await clone.usage_bytes()
    act(inside, clone, "find . -type f -exec sh -c ': >>\"$1\"' - {} ';'")
    assert await clone.usage_bytes() - fresh < 100_000
    act(inside, clone, "head -c 500000 /dev/urandom >>large; sync large")
    assert 450_000 <= await clone.usage_bytes() - fresh < 700_000


async def test_a_subvolume_in_a_state_is_refused_rather_than_lost(storage: Storage, method: str) -> None:
    if method != "btrfs":
        return
    blank = await storage.blank("box/state", Role.SERVER)
    top = Path(blank.mount("/s").layers[0])
    (top / "d").mkdir()
    with opened(top / "d") as directory:
        create_subvolume(directory, "inner")
    (top / "d" / "inner" / "e").mkdir()
    (top / "d" / "inner" / "e" / "f").write_text("would be lost")
    with pytest.raises(EnvironmentInvalid, match="'d/inner' is a subvolume"):
        await storage.seal(blank)


async def test_the_disk_budget_refuses_a_seal_and_spares_the_clone(
    settings: Settings, storage: Storage, method: str, inside: Inside, sealed_state: Callable[[], asyncio.Task[SealedDir]]
) -> None:
    tight = await open_storage(replace(settings, disk_budget_mb=1), method=method)
    blank = await tight.blank("box/state", Role.SERVER)
    act(inside, blank, "head -c 2000000 /dev/urandom >new; sync new")
    with pytest.raises(LimitReached, match="disk budget of 1 MiB") as raised:
        await tight.seal(blank)
    assert "AUTOCLAVE_DISK_BUDGET_MB" in raised.value.fix
    assert blank.tree().entry("new") is not None
    act(inside, blank, "rm new")
    await tight.seal(blank)
    await tight.close()


async def test_another_storages_snapshots_are_refused_by_name(
    settings: Settings, method: str, sealed_state: Callable[[], asyncio.Task[SealedDir]]
) -> None:
    sealed = await sealed_state()
    other = await open_storage(settings, method="overlay" if method == "copy" else "copy")
    with pytest.raises(SnapshotMissing, match=f"sealed by the storage '{method}'") as raised:
        await other.clone(sealed)
    assert f"AUTOCLAVE_STORAGE={method}" in raised.value.fix
    assert await other.verify(sealed)
    await other.close()


async def test_the_choice_is_made_by_trying(settings: Settings, method: str) -> None:
    reports = {r.name: r for r in describe(settings)}
    assert tuple(reports) == METHODS
    assert reports[method].works
    chosen = await open_storage(settings)
    assert [r.name for r in reports.values() if r.chosen] == [chosen.name]
    assert METHODS.index(chosen.name) <= METHODS.index(method)
    for report in reports.values():
        assert report.why
        if not report.works:
            with pytest.raises(RuntimeUnavailable, match=re.escape(report.why)) as raised:
                await open_storage(settings, method=report.name)
            assert raised.value.fix
    await chosen.close()
    for top in (settings.store, settings.scratch):
        assert [p for p in top.glob("*/*") if "try-" in p.name] == []


async def test_a_state_directory_begins_private_and_empty(settings: Settings, storage: Storage) -> None:
    for role in Role:
        blank = await storage.blank("box/state", role)
        entry = blank.tree().entry("")
        assert entry is not None
        assert (entry.mode, entry.uid) == (stat.S_IRWXU, settings.users.of(role) or os.geteuid())
        assert list(blank.tree().walk()) == []
        assert not (await blank.prove()).holds
        assert blank.origin.layers == ()
