"""Graphs of things that depend on one another."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterable, Mapping

Graph = Mapping[str, Iterable[str]]
Weighted = Mapping[str, Mapping[str, int]]


class CycleError(ValueError):
    """The graph has a circle; `path` walks it and ends where it began."""

    def __init__(self, path: list[str]) -> None:
        super().__init__(" -> ".join(path))
        self.path = path


def nodes(graph: Graph) -> list[str]:
    """Return every node, also those that only appear as a target, in order of appearance."""
    seen: dict[str, None] = {}
    for node, targets in graph.items():
        seen.setdefault(node)
        for target in targets:
            seen.setdefault(target)
    return list(seen)


def order(graph: Graph) -> list[str]:
    """Return nodes so that each comes after all that it depends on; ties go by name. Raises CycleError."""
    waiting = {node: set(graph.get(node, ())) for node in nodes(graph)}
    ready = [node for node, needs in waiting.items() if not needs]
    heapq.heapify(ready)
    out: list[str] = []
    while ready:
        node = heapq.heappop(ready)
        out.append(node)
        del waiting[node]
        for other, needs in waiting.items():
            if node in needs:
                needs.remove(node)
                if not needs:
                    heapq.heappush(ready, other)
    if waiting:
        raise CycleError(find_cycle({n: sorted(needs) for n, needs in waiting.items()}))
    return out


def find_cycle(graph: Graph) -> list[str]:
    """Return a path that ends where it began, [] when there is none."""
    done: set[str] = set()
    for start in nodes(graph):
        path: list[str] = []
        if found := _walk(graph, start, path, done):
            return found
    return []


def _walk(graph: Graph, node: str, path: list[str], done: set[str]) -> list[str]:
    if node in path:
        return [*path[path.index(node) :], node]
    if node in done:
        return []
    path.append(node)
    for target in graph.get(node, ()):
        if found := _walk(graph, target, path, done):
            return found
    path.pop()
    done.add(node)
    return []


def reachable(graph: Graph, start: str) -> set[str]:
    """Return all that can be reached from `start`, itself included."""
    seen = {start}
    queue = deque([start])
    while queue:
        for target in graph.get(queue.popleft(), ()):
            if target not in seen:
                seen.add(target)
                queue.append(target)
    return seen


def distances(graph: Graph, start: str) -> dict[str, int]:
    """Return how many edges away each node is."""
    out = {start: 0}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for target in graph.get(node, ()):
            if target not in out:
                out[target] = out[node] + 1
                queue.append(target)
    return out


def cheapest(graph: Weighted, start: str, goal: str) -> tuple[int, list[str]] | None:
    """Return the cost and the nodes of the cheapest way, None when there is none. Costs may not be negative."""
    queue: list[tuple[int, list[str]]] = [(0, [start])]
    settled: set[Hashable] = set()
    while queue:
        cost, path = heapq.heappop(queue)
        node = path[-1]
        if node == goal:
            return cost, path
        if node in settled:
            continue
        settled.add(node)
        for target, weight in graph.get(node, {}).items():
            if weight < 0:
                raise ValueError(f"negative cost from {node} to {target}")
            if target not in settled:
                heapq.heappush(queue, (cost + weight, [*path, target]))
    return None


def components(graph: Graph) -> list[list[str]]:
    """Return the groups that hang together, directions ignored: each sorted, the largest first."""
    both: dict[str, set[str]] = {node: set() for node in nodes(graph)}
    for node, targets in graph.items():
        for target in targets:
            both[node].add(target)
            both[target].add(node)
    groups: list[list[str]] = []
    left = set(both)
    while left:
        group = reachable(both, min(left))
        left -= group
        groups.append(sorted(group))
    return sorted(groups, key=lambda g: (-len(g), g[0]))
