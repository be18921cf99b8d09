"""Reading git's objects stays within limits, whatever an agent wrote into the store."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tracemalloc
import zlib
from pathlib import Path

import pytest

from probes.repo import objects
from probes.repo.objects import ObjectsTooLarge, ObjectStore
from sandbox.resources import repo
from sandbox.storage.tree import PlainTree

LIMIT = 1_000_000


def store(folder: Path) -> ObjectStore:
    return ObjectStore(PlainTree(folder), "objects").open()


def put(folder: Path, name: bytes, data: bytes) -> None:
    path = folder / "objects" / name.hex()[:2] / name.hex()[2:]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def loose(folder: Path, kind: str, body: bytes) -> bytes:
    raw = f"{kind} {len(body)}\0".encode() + body
    name = hashlib.sha1(raw).digest()
    put(folder, name, zlib.compress(raw))
    return name


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "OBJECT_LARGEST", LIMIT)


def test_an_object_that_grows_is_not_inflated(tmp_path: Path) -> None:
    name = loose(tmp_path, "commit", b"tree " + bytes(80 * LIMIT))
    assert next((tmp_path / "objects").glob("*/*")).stat().st_size < LIMIT

    tracemalloc.start()
    with pytest.raises(ObjectsTooLarge, match="one object holds more than 1000000 bytes; the repository is not examined"):
        store(tmp_path).reached(name)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 10 * LIMIT


def test_all_objects_together_have_a_limit(tmp_path: Path) -> None:
    parent = b""
    for number in range(6):
        body = b"tree " + b"00" * 20 + b"\n" + (b"parent " + parent.hex().encode() + b"\n" if parent else b"") + b"\n"
        parent = loose(tmp_path, "commit", body + bytes(LIMIT // 2) + bytes([number]))
    many = store(tmp_path)
    many.left = 2 * LIMIT

    with pytest.raises(ObjectsTooLarge, match="in all"):
        many.reached(parent)


def test_a_delta_that_copies_its_base_over_and_over_is_stopped(tmp_path: Path) -> None:
    base = bytes(LIMIT // 2)
    copy = b"\xf0" + len(base).to_bytes(3, "little")  # copy from 0, as many bytes as the base has

    with pytest.raises(ObjectsTooLarge, match="a delta makes more than"):
        objects._apply(base, b"\x01\x01" + copy * 100_000, "pack")


def test_a_pack_whose_deltas_lead_round_in_a_circle_ends(tmp_path: Path) -> None:
    on_itself = b"\x60\x00" + zlib.compress(b"\x01\x01\x01a")  # a delta on the object 0 bytes before it
    pack = objects._Pack(path="p.pack", offsets={}, data=on_itself)
    (tmp_path / "objects").mkdir()

    with pytest.raises(ObjectsTooLarge, match="a chain of more than"):
        store(tmp_path)._packed(pack, 0, 0)


def test_an_object_under_anothers_name_is_found_out(tmp_path: Path) -> None:
    name = hashlib.sha1(b"commit 5\0other").digest()
    put(tmp_path, name, zlib.compress(b"commit 7\0planted"))

    with pytest.raises(ValueError, match="does not hold what its name says"):
        store(tmp_path).reached(name)


def test_a_loose_object_does_not_stand_in_for_a_packed_one(tmp_path: Path) -> None:
    def git(*argv: str) -> str:
        argv = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path), *argv)
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60).stdout.strip()

    git("init", "-q", "-b", "main")
    (tmp_path / "a.txt").write_text("a")
    git("add", "a.txt")
    git("commit", "-q", "-m", "one")
    git("repack", "-a", "-d", "-q")
    head = bytes.fromhex(git("rev-parse", "HEAD"))
    repository = tmp_path / ".git"
    before = store(repository).reached(head)
    put(repository, head, zlib.compress(b"commit 7\0planted"))

    assert len(before[0]) == 3
    assert store(repository).reached(head) == before


def test_clean_brings_the_objects_back_whole(tmp_path: Path) -> None:
    golden, work = tmp_path / "golden", tmp_path / "work"

    def script(text: str, folder: Path, last: str) -> None:
        argv = ["/bin/sh", "-c", text, "sh", str(folder), last]
        subprocess.run(argv, check=True, timeout=60, env={"PATH": os.environ["PATH"], **repo._ENV})

    golden.mkdir()
    (golden / "a.txt").write_text("a")
    script(repo._BUILD, golden, "Start")
    shutil.copytree(golden, work, symlinks=True)
    head = bytes.fromhex((work / ".git" / "packed-refs").read_text().splitlines()[-1].split()[0])
    put(work / ".git", head, zlib.compress(b"commit 7\0planted"))
    loose(work / ".git", "blob", b"a note")
    (work / ".git" / "objects" / "info" / "alternates").write_text("/tmp\n")
    (work / "a.txt").write_text("b")

    script(repo._CLEAN, work, str(golden))

    def held(folder: Path) -> dict[str, bytes]:
        return {str(p.relative_to(folder)): p.read_bytes() for p in (folder / ".git" / "objects").rglob("*") if p.is_file()}

    assert held(work) == held(golden)
    assert (work / "a.txt").read_text() == "a"
