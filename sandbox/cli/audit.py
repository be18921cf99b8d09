"""`autoclave audit`: deep verification of what is kept, with its reports; made to be run every night."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sandbox.cli import output
from sandbox.cli.options import Home, Json, RuntimeName, Size, load
from sandbox.cli.running import run
from sandbox.errors import AutoclaveError, EnvironmentInvalid

if TYPE_CHECKING:
    from sandbox.ports import Environment
    from sandbox.report import AuditReport
    from sandbox.settings import Settings


def audit(
    *environments: Annotated[str, Parameter(help="Which ones; all that have a baseline by default.")],
    size: Size = 2,
    runtime: RuntimeName = None,
    home: Home = None,
    json: Json = False,
) -> int:
    """Digest every golden snapshot again, read every namespace deep, and list what quarantined trajectories had reached.

    Audits the running pool where there is one, else namespaces that it makes for the purpose. Writes an HTML and a JUnit XML
    report. Exit code 1 when something was found, when a seal is broken, or when something could not be looked at.

    Example: autoclave audit shop --json
    """
    settings = load(home, runtime)
    report = run(_audit(settings, environments, size))
    if json:
        from sandbox.report import as_json

        output.print_json(as_json(report))
    else:
        from sandbox.report import terminal

        output.show(terminal.audit(report))
    return 0 if report.verdict.value == "clean" else 1


async def _audit(settings: Settings, names: tuple[str, ...], size: int) -> AuditReport:
    from sandbox.audit import examine, publish
    from sandbox.client import connect
    from sandbox.client.place import listens
    from sandbox.clock import SystemClock
    from sandbox.ledger import open_ledger
    from sandbox.wiring import open_pool

    clock = SystemClock()
    progress = output.Progress()
    async with AsyncExitStack() as stack:
        running = listens(settings)
        found, problems = _opened(list(names) or await _known(settings, running=running), settings)
        chosen = [e.spec.name for e in found]
        started = clock.now()
        progress.say(f"auditing {', '.join(chosen)}" + (" on the running pool" if running else ""))
        pool: Any = await stack.enter_async_context(
            connect(settings) if running else open_pool(found, size=size, settings=settings)
        )
        ledger = await stack.enter_async_context(open_ledger(settings.ledger, clock=clock, read_only=True))
        if not running:
            await _filled(pool, chosen, size)
        report = await examine(pool, ledger, found, clock=clock, started=started, sessions=pool, problems=problems)
        report = await publish(report, settings.reports)
        await pool.record_audit({"started": report.started.isoformat(), "verdict": report.verdict.value, "html": report.html})
        return report


def _opened(names: list[str], settings: Settings) -> tuple[list[Environment], list[str]]:
    """Open what can be opened; the others are findings, unless nothing is left to audit."""
    from sandbox.wiring import environment

    found, problems = [], []
    for name in names:
        try:
            found.append(environment(name, settings))
        except AutoclaveError as error:
            if len(names) == 1:
                raise
            problems.append(f"environment {name} was not audited, since it cannot be opened: {error.message}")
    if not found:
        raise EnvironmentInvalid("none of these environments can be opened", problems=tuple(problems))
    return found, problems


async def _known(settings: Settings, *, running: bool) -> list[str]:
    """The running pool's environments, else all that have a baseline."""
    from sandbox.client import connect
    from sandbox.clock import SystemClock
    from sandbox.ledger import open_ledger

    if running:
        async with connect(settings) as pool:
            return sorted((await pool.status())["environments"])
    names: list[str] = []
    if settings.ledger.exists():
        async with open_ledger(settings.ledger, clock=SystemClock(), read_only=True) as ledger:
            names = sorted({n.environment_name for n in await ledger.namespaces(retired=True)})
    if not names:
        raise EnvironmentInvalid("nothing to audit: no environment was used in this home yet", fix="name one: autoclave audit shop")
    return names


async def _filled(pool: Any, names: list[str], size: int) -> None:
    """Wait until the pool has made its namespaces, or has given up on them."""
    from sandbox.aio import poll

    async def full() -> bool:
        status = (await pool.status())["environments"]
        return all(status[n]["ready"] >= size or status[n]["broken"] or status[n]["breaker"] for n in names)

    await poll(full, timeout=600, interval=0.05, slowest=0.5)
