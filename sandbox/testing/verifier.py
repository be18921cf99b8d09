"""A verifier over memory instances: it really compares, unless a test scripts the next verdict."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping, Sequence

from sandbox.errors import BaselineUnstable
from sandbox.model import Baseline, Depth, Mismatch, Reading, Verdict, VerdictStatus
from sandbox.ports import Subject


class ScriptedVerifier:
    """Reads every file and process as a field. After a proven replacement a quick check reads the live fields only."""

    def __init__(self) -> None:
        self.digest = "scripted"
        self.script: deque[Verdict | Exception | VerdictStatus | None] = deque()
        self.checks: list[tuple[str, Depth]] = []  # namespace and depth of every check

    async def record(self, subjects: Sequence[Subject], rebuilt: Subject | None, *, key: str) -> Baseline:
        first, *others = [await _read(subject, Depth.DEEP, replaced=False) for subject in subjects]
        unstable = sorted({field for other in others for field in {*first, *other} if first.get(field) != other.get(field)})
        if unstable:
            raise BaselineUnstable("fresh instances disagree", fields=tuple(f"memory/{field}" for field in unstable))
        drift = [] if rebuilt is None else _compare(first, await _read(rebuilt, Depth.DEEP, replaced=False))
        digest = hashlib.blake2b(repr(sorted(first.items())).encode(), digest_size=8).hexdigest()
        reading = Reading(probe="memory", depth=Depth.DEEP, fields=first)
        return Baseline(key=key, digest=digest, readings=(reading,), instances=len(subjects), drift=tuple(drift))

    async def check(self, subject: Subject, baseline: Baseline, depth: Depth) -> Verdict:
        self.checks.append((subject.namespace, depth))
        scripted = self.script.popleft() if self.script else None
        if scripted is VerdictStatus.INCONCLUSIVE and self.script:
            scripted = self.script.popleft()  # tried once more
        if isinstance(scripted, Exception):
            raise scripted
        if isinstance(scripted, Verdict):
            return scripted
        if isinstance(scripted, VerdictStatus):
            return Verdict(status=scripted, depth=depth)
        proof = subject.proof
        replaced = not subject.in_place and proof is not None and proof.holds
        actual = await _read(subject, depth, replaced=replaced)
        expected = {f: v for f, v in baseline.readings[0].fields.items() if _wanted(f, depth, replaced)}
        found = _compare(expected, actual)
        status = VerdictStatus.MISMATCH if found else VerdictStatus.CLEAN
        return Verdict(status=status, depth=depth, mismatches=tuple(found), fields=len(actual), in_force=subject.in_force)


async def _read(subject: Subject, depth: Depth, *, replaced: bool) -> dict[str, str]:
    commons = _commons(subject)
    sharing = getattr(subject, "sharing", None)  # asked by name: asking a protocol takes a fifth of a whole cycle of the pool
    if sharing is not None and sharing.own is None:
        return commons
    fields = {f"process/{p.argv[0]}": str(p.role) for p in await subject.processes()}
    tree = subject.tree("state")
    fields |= {f"file/{entry.path}": tree.read(entry.path).decode() for entry in tree.walk()}
    return {f: v for f, v in fields.items() if _wanted(f, depth, replaced)} | commons


def _commons(subject: Subject) -> dict[str, str]:
    """What belongs to a shared instance: all of it, or for one of its namespaces what no holder may change."""
    sharing = getattr(subject, "sharing", None)
    if sharing is None:
        return {}
    whole = sharing.own is None
    found: Mapping[str, str] = getattr(subject, "commons", {})
    return {path: text for path, text in found.items() if whole or path.startswith("common/guard/")}


def _wanted(field: str, depth: Depth, replaced: bool) -> bool:
    if depth is Depth.DEEP or field.startswith("process/"):
        return True
    return not replaced and not field.startswith("file/deep/")


def _compare(expected: Mapping[str, str], actual: Mapping[str, str]) -> list[Mismatch]:
    return [
        Mismatch(
            probe="memory",
            field=field,
            expected=expected.get(field),
            actual=actual.get(field),
            depth=Depth.DEEP if field.startswith("file/deep/") else Depth.QUICK,
            shared=field.startswith("common/"),
        )
        for field in sorted({*expected, *actual})
        if expected.get(field) != actual.get(field)
    ]
