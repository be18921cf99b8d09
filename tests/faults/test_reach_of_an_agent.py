"""What a session's agent can read: nothing of the host but its system directories, nothing of ours, no task, no solution."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import envs
from envs import define
from sandbox import Pool
from sandbox.runtimes.namespaces import rootfs
from sandbox.settings import Settings

pytestmark = [pytest.mark.namespaces, pytest.mark.done_when]

MARK = "canary-4f1d7c20"
# Every readable file outside the system directories that holds the text of stdin; what is listed is what the agent could read.
SEARCH = """
import os, sys
wanted = sys.stdin.buffer.read().split(b"\\0")
for top, folders, names in os.walk("/"):
    folders[:] = [f for f in folders if os.path.join(top, f) not in ("/proc", "/sys", "/dev", "/usr")]
    for name in names:
        path = os.path.join(top, name)
        try:
            if not os.path.isfile(path):
                continue
            text = open(path, "rb").read()
        except OSError:
            continue
        for number, each in enumerate(wanted):
            if each in text:
                print(number, path)
"""


def everything_below(*places: Path) -> list[str]:
    """Return paths on the host of ledger, goldens, clones, uppers and whatever else lies there."""
    return [os.path.join(top, name) for place in places for top, _, names in os.walk(place) for name in names]


def system_python() -> str:
    return "/usr/bin/python3"


@pytest.mark.parametrize("name", ["repo", pytest.param("shop", marks=pytest.mark.postgres)])
@pytest.mark.timeout(300)
async def test_the_agent_reads_nothing_beyond_its_world(
    settings: Settings, passable_dir: Path, nothing_left: None, name: str
) -> None:
    (passable_dir / "canary").write_text(MARK)  # open to all on the host
    async with Pool.open([name], size=1, settings=settings) as pool:
        tasks = pool.environment(name).environment.tasks
        held_out = next(t for t in tasks.values() if t.split == "held-out")
        settings.home.joinpath("canary").write_text(MARK)
        settings.store.joinpath("canary").write_text(MARK)
        async with pool.session(name, wait=120, ttl=120) as session:
            ours = everything_below(settings.home, settings.store, settings.scratch, settings.run)
            assert str(settings.ledger) in ours
            package = Path(envs.__file__).parent
            solutions = [str(p) for p in package.rglob("*") if p.is_file()]
            host = [
                "/etc/shadow",
                "/etc/gshadow",
                "/etc/passwd-",
                "/root/.bashrc",
                "/proc/1/environ",
                "/proc/kcore",
                "/var/log/dpkg.log",
            ]
            paths = "\0".join([*ours, *solutions, *host, str(passable_dir / "canary")])
            script = (
                "tr '\\0' '\\n' | while IFS= read -r path; do if head -c 1 \"$path\" >/dev/null 2>&1; then echo \"$path\"; fi; done"
            )
            reached = await session.run(["sh", "-c", script], stdin=paths.encode(), limit_s=60, output_bytes=1_000_000)
            assert reached.exit_code == 0
            assert [p for p in reached.text.splitlines() if p != "/proc/1/environ"] == []
            environ = await session.run(["sh", "-c", "cat /proc/1/environ /proc/self/environ | tr '\\0' '\\n'"], limit_s=20)
            assert not [line for line in environ.text.splitlines() if str(settings.home) in line or str(settings.store) in line]
            wanted = "\0".join([MARK, held_out.prompt, held_out.id])
            found = await session.run([system_python(), "-c", SEARCH], stdin=wanted.encode(), limit_s=60)
            assert (found.exit_code, found.text) == (0, ""), found
            raised = await session.run(["sh", "-c", "sudo -n cat /etc/shadow || su -c 'cat /etc/shadow' </dev/null || chroot / id"])
            assert raised.stdout == b""
            score = await session.run(["sh", "-c", "ls -d /checks /check /solutions /tasks* 2>/dev/null"])
            assert score.stdout == b""
        await pool.cleared([session.trajectory_id], timeout=60)


async def test_the_start_state_of_a_task_holds_nothing_of_its_solution(settings: Settings, nothing_left: None) -> None:
    async with Pool.open(["repo"], size=1, settings=settings) as pool:
        tasks = pool.environment("repo").environment.tasks
        task = next(t for t in tasks.values() if t.split == "held-out" and t.start)
        change = task.start["code"]["replace"][0]
        async with pool.session("repo", task=task.id, wait=120, ttl=120) as session:
            wanted = "\0".join([task.prompt, task.id, *([change["old"]] if len(change["old"]) > 30 else [])])
            found = await session.run([system_python(), "-c", SEARCH], stdin=wanted.encode(), limit_s=60)
            assert (found.exit_code, found.text) == (0, ""), found
        await pool.cleared([session.trajectory_id], timeout=60)


async def test_a_package_below_a_system_directory_is_empty_inside(
    settings: Settings, passable_dir: Path, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if ours were installed there: the host's /usr is mounted, and with it would be every task and solution."""
    place = next(
        path for path in sorted(Path("/usr/share").iterdir()) if path.is_dir() and not path.is_symlink() and any(path.iterdir())
    )
    monkeypatch.setattr(rootfs, "hidden_directories", lambda: rootfs.below_roots([place]))
    described = {
        "name": "box",
        "version": "1",
        "resources": {"box": {"kind": "files", "files": {"a": "1"}, "target": "/workspace"}},
    }
    async with Pool.open([define(described, passable_dir)], size=1, settings=settings) as pool:
        async with pool.session("box", wait=120, ttl=120) as session:
            script = f"ls -A {place}; touch {place}/x && echo written; umount {place} && echo gone; ls /usr/share | head -1"
            seen = await session.run(["sh", "-c", script], limit_s=20)
            assert len(seen.text.split()) == 1, seen
        await pool.cleared([session.trajectory_id], timeout=60)
