"""Which servers see which others, and so in what order they start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from sandbox.errors import EnvironmentInvalid
from sandbox.ports import Resource
from sandbox.runtimes.group.together import together

Peers = Mapping[str, tuple[str, ...]]


def peers_of(environment: str, resources: Sequence[Resource]) -> Peers:
    """Return the peers of every server by resource name; raise EnvironmentInvalid for one that is no server, and for a cycle."""
    plans = {r.spec.name: plan for r in resources if (plan := r.server()) is not None}
    peers = {name: plan.peers for name, plan in plans.items()}
    problems = [f"resource {n} needs {p}, which has no server" for n, of in peers.items() for p in of if p not in peers]
    if problems:
        raise EnvironmentInvalid(f"environment {environment}: servers that are not there", problems=tuple(problems))
    try:
        TopologicalSorter(peers).prepare()
    except CycleError as error:
        raise EnvironmentInvalid(
            f"environment {environment}: servers that wait for each other: {' -> '.join(error.args[1])}",
            fix="let one of them do without the other",
        ) from error
    return peers


def with_dependents(peers: Peers, names: Collection[str]) -> frozenset[str]:
    """Return the names and everything that sees one of them, directly or not: what starts anew has a new socket directory."""
    found = set(names)
    while more := {name for name, of in peers.items() if name not in found and found & set(of)}:
        found |= more
    return frozenset(found)


async def start_in_order(peers: Peers, names: Collection[str], start: Callable[[str], Awaitable[None]]) -> None:
    """Start servers side by side, each after those of its peers that start, too."""
    ready = {name: asyncio.Event() for name in names}

    async def one(name: str) -> None:
        for peer in peers[name]:
            if peer in ready:
                await ready[peer].wait()
        await start(name)
        ready[name].set()

    await together(*(one(name) for name in names))


async def stop_in_order(peers: Peers, names: Collection[str], stop: Callable[[str], Awaitable[None]]) -> None:
    """Stop servers side by side, each after those that see it."""
    stopped = {name: asyncio.Event() for name in names}

    async def one(name: str) -> None:
        for dependent in names:
            if name in peers[dependent]:
                await stopped[dependent].wait()
        await stop(name)
        stopped[name].set()

    await together(*(one(name) for name in names))
