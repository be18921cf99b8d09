"""`autoclave doctor`: what this machine has, what will be in force, and the command for what it lacks."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sandbox.cli import output
from sandbox.cli.options import Home, Json, RuntimeName, load
from sandbox.errors import AutoclaveError, RuntimeUnavailable
from sandbox.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing looked at. `needed` False: the product works without it, and says so in `in_force`."""

    name: str
    ok: bool
    detail: str
    fix: str = ""
    needed: bool = True


def doctor(*, runtime: RuntimeName = None, home: Home = None, json: Json = False) -> int:
    """Look at this machine: packages, namespaces, programs, storage, limits, disk.

    Exit code 3 when something that the chosen runtime needs is missing; each such line ends with the command that brings it.

    Example: autoclave doctor --json
    """
    settings = load(home, runtime)
    with output.Progress().step("looking at this machine"):
        found = [finding for look in LOOKS for finding in _safely(look, settings)]
    healthy = all(f.ok for f in found if f.needed)
    if json:
        output.print_json({"ok": healthy, "findings": found, "home": settings.home, "store": settings.store})
    else:
        output.show(_table(found, settings))
    return 0 if healthy else RuntimeUnavailable.exit_code


def _safely(look: Callable[[Settings], Iterator[Finding]], settings: Settings) -> list[Finding]:
    """What raises becomes a finding; doctor itself must always answer."""
    try:
        return list(look(settings))
    except AutoclaveError as error:
        return [Finding(name=look.__name__.strip("_"), ok=False, detail=error.message, fix=error.fix)]
    except OSError as error:
        return [Finding(name=look.__name__.strip("_"), ok=False, detail=str(error))]


def _machine(_: Settings) -> Iterator[Finding]:
    yield Finding(name="linux", ok=sys.platform == "linux", detail=f"{platform.system()} {platform.release()}", fix="use Linux")
    version = platform.python_version()
    yield Finding(name="python", ok=sys.version_info >= (3, 11), detail=version, fix="use Python 3.11 or newer")
    who = "root: sandboxes run as unprivileged ids" if os.geteuid() == 0 else f"ordinary user {os.geteuid()}: sandboxes run as it"
    yield Finding(name="user", ok=True, detail=who)


def _packages(_: Settings) -> Iterator[Finding]:
    """Our import names are general: another distribution of the same name would shadow ours."""
    owners = packages_distributions()
    for name in ("sandbox", "probes", "envs", "rollout"):
        others = sorted(set(owners.get(name, ())) - {"autoclave"})
        module = __import__(name)
        ours = Path(str(module.__file__)).parent.parent == Path(__file__).parents[2]
        yield Finding(
            name=f"package {name}",
            ok=ours and not others,
            detail=str(module.__file__) if ours else f"{module.__file__} is not ours",
            fix=f"pip uninstall {' '.join(others) or name}, or use a virtual environment of its own",
        )


def _namespaces(settings: Settings) -> Iterator[Finding]:
    from sandbox import binaries
    from sandbox.runtimes.namespaces import limits, rootfs

    program = binaries.bubblewrap(settings)
    yield Finding(name="bubblewrap", ok=True, detail=f"{program.version} ({program.path})")
    hidden = [str(path) for path in rootfs.hidden_directories()]
    yield Finding(
        name="tasks hidden",
        ok=True,
        detail=f"sandboxes see nothing in {', '.join(hidden)}" if hidden else "no environment's package lies where sandboxes look",
    )
    groups = limits.detected(settings)
    for controller in ("memory", "pids", "cpu"):
        if controller in groups.bases:
            yield Finding(name=f"limit {controller}", ok=True, detail=f"cgroup v{groups.bases[controller][0]}")
        else:
            yield Finding(
                name=f"limit {controller}",
                ok=False,
                needed=False,
                detail=f"per process only: {groups.missing[controller]}",
                fix="run as root, or delegate the controller to this user (systemd-run --user -p Delegate=yes)",
            )


def _programs(settings: Settings) -> Iterator[Finding]:
    from sandbox import binaries

    found = binaries.postgres(settings)
    yield Finding(name="postgres", ok=True, detail=f"{found.version} from the {found.origin} ({found.host})")
    yield Finding(name="git", ok=True, detail=f"{binaries.git_version()} ({binaries.git()})")


def _docker(settings: Settings) -> Iterator[Finding]:
    from sandbox.runtimes.docker.survey import survey

    needed = settings.runtime == "docker"
    try:
        found = asyncio.run(survey(settings))
    except AutoclaveError as error:
        yield Finding(name="docker", ok=False, needed=needed, detail=error.message, fix=error.fix)
        return
    yield Finding(name="docker", ok=True, needed=needed, detail=found.engine)
    yield Finding(name="docker state", ok=not found.problem, needed=needed, detail=found.mode or found.problem, fix=found.fix)


def _storage(settings: Settings) -> Iterator[Finding]:
    from sandbox.storage import describe

    for report in describe(settings):
        label = "in force" if report.chosen else "would work too" if report.works else f"not here: {report.why}"
        yield Finding(name=f"storage {report.name}", ok=report.works, needed=False, detail=label)
    scratch = settings.scratch if settings.scratch.exists() else settings.scratch.parent
    free = shutil.disk_usage(settings.store if settings.store.exists() else settings.store.parent).free // 1_000_000
    yield Finding(
        name="disk",
        ok=free > 2000,
        detail=f"{free} MB free for {settings.store}, budget {settings.disk_budget_mb} MB; uppers in {scratch}",
        fix="autoclave gc, or set AUTOCLAVE_STORE to a roomier disk",
    )


def _home(settings: Settings) -> Iterator[Finding]:
    from sandbox.client.place import listens, socket_path

    ledger = f"ledger of {settings.ledger.stat().st_size // 1024} KiB" if settings.ledger.exists() else "no ledger yet"
    running = f"a pool listens at {socket_path(settings)}" if listens(settings) else "no pool is up"
    yield Finding(name="home", ok=True, detail=f"{settings.home}: {ledger}; {running}")


def _browser(settings: Settings) -> Iterator[Finding]:
    from sandbox.resources.browser.program import chromium

    try:
        found = chromium(settings)
        yield Finding(name="chromium", ok=True, detail=f"{found.version} ({found.host})", needed=False)
    except RuntimeUnavailable as error:
        yield Finding(name="chromium", ok=False, detail=error.message, fix=error.fix, needed=False)
    there = find_spec("playwright") is not None
    fix = "pip install 'autoclave[browser]'"
    yield Finding(name="playwright", ok=there, detail="for session.page()" if there else "not installed", fix=fix, needed=False)


LOOKS: tuple[Callable[[Settings], Iterator[Finding]], ...] = (
    _machine,
    _packages,
    _namespaces,
    _programs,
    _browser,
    _docker,
    _storage,
    _home,
)


def _table(found: list[Finding], settings: Settings) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(title=f"Autoclave on this machine (home {settings.home})", title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    table.add_column("what", no_wrap=True)
    table.add_column("found", overflow="fold")
    for finding in found:
        mark = Text("ok", style="green") if finding.ok else Text("no", style="bold red" if finding.needed else "yellow")
        text = Text(finding.detail)
        if not finding.ok and finding.fix:
            text.append(f"\n{finding.fix}", style="bold" if finding.needed else "dim")
        table.add_row(mark, finding.name, text)
    return table
