"""Baselines of environments whose namespaces share an instance: one of a namespace, one of the instance as a whole."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable
from sandbox.model import Baseline, InstanceId, NamespaceId, Snapshot
from sandbox.pool.members import Ports
from sandbox.pool.review import Approve, require_approval, reviewed
from sandbox.ports import Environment, SharedInstance, SharingRuntime, Subject


def refuse(environment: Environment) -> None:
    """Raise EnvironmentInvalid for what cannot be had where namespaces share an instance."""
    spec, problems = environment.spec, []
    if spec.reset.method.value not in ("restore", "rebuild"):
        problems.append(f"reset.method: {spec.reset.method.value!r} works on a whole instance; a part is made anew (restore)")
    if any(task.start for task in environment.tasks.values()):
        problems.append("tasks: a start state of their own is a snapshot of a whole instance")
    if spec.check.window.value != "strict":
        problems.append("check.window: only 'strict', since what one holder did can reach every other")
    if problems:
        raise EnvironmentInvalid(
            f"environment {spec.name}: isolation {spec.isolation.value!r} does not go with all of this",
            problems=tuple(problems),
            fix='correct it, or set `isolation = "instance"`',
        )


def of_instance(key: str) -> str:
    """Return the key under which the baseline of the instance as a whole is kept, beside that of a namespace."""
    return f"{key}-instance"


async def record(
    ports: Ports,
    environment: Environment,
    snapshot: Snapshot,
    rebuilt: Snapshot,
    *,
    key: str,
    parts: Mapping[str, str],
    approve: Approve | None,
    accepted: Callable[[], Awaitable[None]],
) -> Baseline:
    """Read fresh namespaces and fresh instances, keep both baselines, return the namespace's: two namespaces on one clone and one
    on another, and of the second build one of each. An instance is read with a part on it, as it will be. `accepted` is called
    before anything is kept."""
    spec, ledger, verifier = environment.spec, ports.ledger, environment.verifier
    async with AsyncExitStack() as stack:
        one, other, again = [await _host(ports, stack, environment, s) for s in (snapshot, snapshot, rebuilt)]
        first, second, third, fourth = [await _part(ports, host) for host in (one, one, other, again)]
        async with asyncio.timeout(2 * ports.limits.check_s):
            namespace = await verifier.record([first, second, third], fourth, key=key)
            instance = await verifier.record([one.subject(), other.subject()], again.subject(), key=of_instance(key))
    found: dict[str, Baseline] = {}
    for baseline, name in ((instance, f"{spec.name} (instance)"), (namespace, spec.name)):
        made = reviewed(baseline, await ledger.baselines(name), state="golden", parts=parts, environment=name)
        await require_approval(made, approve, environment=name)
        found[name] = made
    await accepted()
    for name, made in found.items():
        await ledger.save_baseline(made, environment=spec.digest, environment_name=name)
    return made  # the namespace's, written last: where it is, the other is


async def _host(ports: Ports, stack: AsyncExitStack, environment: Environment, snapshot: Snapshot) -> SharedInstance:
    runtime = ports.runtime
    if not isinstance(runtime, SharingRuntime):
        raise RuntimeUnavailable(f"runtime {runtime.name} cannot share an instance", fix='set `isolation = "instance"`')
    async with asyncio.timeout(ports.limits.start_s):
        host = await runtime.start_shared(environment, snapshot, InstanceId(f"baseline-{secrets.token_hex(4)}"), 1)
    stack.push_async_callback(host.close)
    return host


async def _part(ports: Ports, host: SharedInstance) -> Subject:
    async with asyncio.timeout(ports.limits.start_s):
        return (await host.open(NamespaceId(f"baseline-{secrets.token_hex(4)}"), 1)).subject()
