"""What goes wrong with a store: a full disk, a stranger's directory, a place out of reach, states that cannot be read."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sandbox.errors import EnvironmentInvalid, LimitReached, RuntimeUnavailable, SnapshotMissing
from sandbox.model import Role
from sandbox.ports import Clone
from sandbox.settings import Settings
from sandbox.storage import background, describe, open_storage

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def small_disk(passable_dir: Path) -> Iterator[Path]:
    """A filesystem of 3 MB."""
    place = passable_dir / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=0755,nr_inodes=200", "none", str(place)], check=True)
    yield place
    subprocess.run(["umount", str(place)], check=True)


def put(clone: Clone, name: str, size: int) -> None:
    path = Path(clone.mount("/s").upper or clone.mount("/s").layers[0]) / name
    path.write_bytes(os.urandom(size))
    owner = path.parent.stat()
    os.chown(path, owner.st_uid, owner.st_gid)


@pytest.mark.root
async def test_a_disk_that_fills_while_cloning_leaves_nothing_half_made(settings: Settings, small_disk: Path) -> None:
    settings = replace(settings, store=small_disk / "store")
    storage = await open_storage(settings, method="copy")
    blank = await storage.blank("box/state", Role.SERVER)
    put(blank, "large", 2_000_000)
    sealed = await storage.seal(blank)
    with pytest.raises(LimitReached, match=f"no space is left in {settings.store}/clones while cloning 'box/state'") as raised:
        await storage.clone(sealed)
    assert "AUTOCLAVE_STORE" in raised.value.fix
    assert list((settings.store / "clones").iterdir()) == []
    assert await storage.verify(sealed)
    await storage.close()


@pytest.mark.root
@pytest.mark.namespaces
async def test_a_disk_that_fills_while_sealing_leaves_nothing_half_made(settings: Settings, small_disk: Path) -> None:
    settings = replace(settings, store=small_disk / "store")
    storage = await open_storage(settings, method="overlay")
    blank = await storage.blank("box/state", Role.SERVER)
    put(blank, "f", 1_500_000)
    golden = await storage.seal(blank)
    clone = await storage.clone(golden)
    put(clone, "more", 2_000_000)
    with pytest.raises(LimitReached, match=f"no space is left in {settings.store}/snapshots while sealing"):
        await storage.seal(clone)
    await storage.close()
    assert sorted(p.name for p in (settings.store / "snapshots").iterdir() if p.is_dir()) == [Path(golden.layers[0]).parent.name]


@pytest.mark.root
@pytest.mark.namespaces
async def test_scratch_without_room_names_the_scratch(settings: Settings, small_disk: Path) -> None:
    settings = replace(settings, scratch=small_disk / "scratch")
    storage = await open_storage(settings, method="overlay")
    golden = await storage.seal(await storage.blank("box/state", Role.SERVER))
    clones: list[Clone] = []

    async def fill() -> None:
        while len(clones) < 200:
            clones.append(await storage.clone(golden))

    with pytest.raises(LimitReached, match=f"no space is left in {settings.scratch}/clones") as raised:
        await fill()
    assert "AUTOCLAVE_SCRATCH" in raised.value.fix
    assert len(list((settings.scratch / "clones").iterdir())) == len(clones)
    await clones[0].destroy()
    await storage.close()


@pytest.mark.root
async def test_a_store_that_the_roles_cannot_reach_is_refused_with_the_fix(settings: Settings) -> None:
    private = Path(tempfile.mkdtemp(prefix="autoclave-test-"))  # mode 0700
    try:
        with pytest.raises(RuntimeUnavailable, match=r"the agent user \(uid 64100\) cannot pass through to") as raised:
            await open_storage(replace(settings, store=private / "store"))
        assert "chmod o+x" in raised.value.fix
        reports = describe(replace(settings, store=private / "store"))
        assert {r.works for r in reports} == {False}
        assert "cannot pass through" in reports[0].why
    finally:
        shutil.rmtree(private)


async def test_a_store_that_is_a_link_or_a_file_is_refused(settings: Settings, passable_dir: Path) -> None:
    (passable_dir / "link").symlink_to(passable_dir)
    (passable_dir / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(RuntimeUnavailable, match="is not a directory of this user"):
            await open_storage(replace(settings, store=passable_dir / name))


@pytest.mark.root
async def test_a_strangers_scratch_is_refused(settings: Settings) -> None:
    """Its name in /dev/shm can be guessed, so another user could make it first."""
    settings.scratch.mkdir()
    os.chown(settings.scratch, 64_100, 64_100)
    with pytest.raises(RuntimeUnavailable, match="is not a directory of this user"):
        await open_storage(settings)


async def test_an_unknown_storage_names_the_known_ones(settings: Settings) -> None:
    with pytest.raises(RuntimeUnavailable, match="no storage 'zfs'") as raised:
        await open_storage(settings, method="zfs")
    assert "auto, btrfs, reflink, overlay, copy" in raised.value.fix


@pytest.mark.namespaces
async def test_a_bwrap_that_is_not_there_rules_out_the_overlay_only(settings: Settings, passable_dir: Path) -> None:
    settings = replace(settings, bwrap=passable_dir / "nothing")
    found = {r.name: r for r in describe(settings)}
    assert found["overlay"].why.startswith("no bubblewrap 0.11 or newer")
    storage = await open_storage(settings)
    assert storage.name != "overlay"
    assert storage.in_force["not_chosen"]["overlay"].startswith("no bubblewrap 0.11 or newer")
    await storage.close()


@pytest.mark.parametrize("method", ["overlay", "copy"])
@pytest.mark.namespaces
async def test_what_its_owner_may_not_read_is_sealed_by_root_and_refused_to_an_ordinary_user(
    settings: Settings, method: str
) -> None:
    storage = await open_storage(settings, method=method)
    blank = await storage.blank("box/state", Role.SERVER)
    put(blank, "closed", 10)
    Path(blank.mount("/s").layers[0], "closed").chmod(0)
    if os.geteuid() == 0:
        assert (await storage.clone(await storage.seal(blank))).tree().read("closed")
    else:
        with pytest.raises(EnvironmentInvalid, match="closed' cannot be read by its owner") as raised:
            await storage.seal(blank)
        assert "run the manager as root" in raised.value.fix
        assert [p for p in (settings.store / "snapshots").iterdir() if p.is_dir()] == []
    await storage.close()


async def test_a_broken_record_is_a_missing_snapshot(settings: Settings) -> None:
    storage = await open_storage(settings, method="copy")
    sealed = await storage.seal(await storage.blank("box/state", Role.SERVER))
    await storage.close()
    (record,) = (settings.store / "snapshots").glob("*.json")
    record.write_text('{"id": "half')
    again = await open_storage(settings, method="copy")
    with pytest.raises(SnapshotMissing):
        await again.clone(sealed)
    assert await again.sweep([sealed]) == (str(Path(sealed.layers[0]).parent),)
    await again.close()


async def test_a_backlog_of_deletions_is_bounded(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "MOST_WAITING", 0)
    monkeypatch.setattr("sandbox.storage.store.DELETIONS_LIMIT_S", 0.05)
    storage = await open_storage(settings, method="copy")
    with pytest.raises(LimitReached, match="wait for deletion"):
        await storage.blank("box/state", Role.SERVER)
    await storage.close()
