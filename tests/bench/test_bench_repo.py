"""Reset and quick check of a repository of 20,000 files after 50 were changed, beside the bare swap and what git can do."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import xxhash

from sandbox.binaries import bubblewrap
from sandbox.model import Depth, Role

pytestmark = [pytest.mark.bench, pytest.mark.slow, pytest.mark.namespaces, pytest.mark.timeout(1800)]

FILES, FOLDERS, MEAN = 20_000, 200, 2_048  # bytes a file on average
CHANGE = (
    'n=0; while [ $n -lt 50 ]; do echo "# changed" >> d$((n % 40))/f$((n * 200 + n % 40)).py; n=$((n + 1)); done; echo x > left.log'
)
GIT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}


def seed(base: Path) -> dict[str, Any]:
    line = "value = value + 1  # some text to fill the line\n"
    for number in range(FILES):
        folder = base / "seed" / f"d{number % FOLDERS}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{number}.py").write_text(f"number = {number}\n" + line * (2 * MEAN * (number % 100) // 100 // len(line)))
    return {
        "name": "bench",
        "version": "1",
        "description": "many files",
        "workdir": "/workspace",
        "resources": {"code": {"kind": "repo", "seed": "seed", "target": "/workspace"}},
    }


def git_and_hash(top: Path) -> None:
    """What stands for a verified reset where nothing replaces the state: put back what git knows, then read everything there is."""
    for argv in (["git", "reset", "-q", "--hard"], ["git", "clean", "-fdxq"]):
        subprocess.run(argv, cwd=top, env=GIT, check=True)
    digest = xxhash.xxh3_128()
    for folder, folders, files in os.walk(top):
        folders.sort()
        for name in sorted(files):
            digest.update(os.fsencode(name))
            with open(os.path.join(folder, name), "rb") as file:
                digest.update(file.read())


async def test_repository(
    built: Any, bare: Any, alternately: Callable[..., Awaitable[Any]], rows: Any, passable_dir: Path, tmp_path: Path
) -> None:
    async with built(seed(passable_dir), passable_dir) as b:
        shutil.rmtree(passable_dir / "seed")
        golden = b.snapshot.dir("code/tree") if any(d.name == "code/tree" for d in b.snapshot.dirs) else b.snapshot.dirs[0]
        generation = 1

        async def ours() -> float:
            nonlocal generation
            changed = await b.instance.run(["/bin/sh", "-c", CHANGE])
            assert changed.exit_code == 0, changed
            generation += 1
            began = time.perf_counter()
            await b.instance.restore(b.snapshot, generation)
            verdict = await b.environment.verifier.check(b.instance.subject(), b.baseline, Depth.QUICK)
            took = (time.perf_counter() - began) * 1e3
            assert verdict.clean, verdict
            return took

        copy = b.settings.scratch / "by-hand"
        await asyncio.to_thread(shutil.copytree, golden.layers[0], copy, symlinks=True)
        git_and_hash(copy)

        async def by_hand() -> float:
            await asyncio.to_thread(subprocess.run, ["/bin/sh", "-c", CHANGE], cwd=copy, check=True)
            began = time.perf_counter()
            await asyncio.to_thread(git_and_hash, copy)
            return (time.perf_counter() - began) * 1e3

        plan = {
            "layers": golden.layers,
            "target": "/workspace",
            "bwrap": str(bubblewrap(b.settings).path),
            "binds": [],
            "argv": ["/bin/sh", "-c", "echo ready; exec /bin/sh"],
            "postgres": "",
            "writes": [CHANGE],
        }
        with bare(plan, b.settings.users.of(Role.AGENT)) as other:
            reset, plain, git = await alternately(40, ours, other.round, by_hand)
        size = f"{golden.files:,} files, {golden.bytes / (1 << 20):.0f} MiB"
        rows.slower(
            f"reset + quick check, repository ({size}), 50 changed", reset, "kill + swap + bwrap + shell ready", plain, below=3
        )
        rows.faster("the same", reset, "git reset --hard && git clean -fdx + full hash", git, least=10)
