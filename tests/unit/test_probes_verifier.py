"""The verifier fails closed (P1), records only what is stable (P2), and keeps the whole difference (P4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from probes import Findings, ProbeContext, ProbeVerifier, probe
from sandbox.errors import BaselineUnstable
from sandbox.model import (
    Baseline,
    CheckPolicy,
    Depth,
    EnvironmentSpec,
    ExecResult,
    IdentityProof,
    Mismatch,
    NamespaceId,
    ProcessInfo,
    Role,
    VerdictStatus,
    VolatileField,
)
from sandbox.ports import Listener, Mount, Subject, Tree

ENVIRONMENT = EnvironmentSpec(name="e", version="1", digest="d")
NAMESPACE = NamespaceId("n-1")
HOLDS = IdentityProof(method="empty-upper", holds=True)
Step = Mapping[str, str] | Exception | Findings


@dataclass
class World:
    """A subject that holds what the probes below read."""

    fields: dict[str, str] = field(default_factory=lambda: {"quick/a": "1", "deep/b": "2"})
    in_place: bool = False
    proof: IdentityProof | None = HOLDS
    environment: EnvironmentSpec = ENVIRONMENT
    namespace: NamespaceId = NAMESPACE
    in_force: Mapping[str, Any] = field(default_factory=lambda: {"runtime": "test"})

    def tree(self, resource: str, state: str | None = None) -> Tree:
        raise NotImplementedError

    def endpoint(self, resource: str) -> str:
        raise NotImplementedError

    async def processes(self) -> Sequence[ProcessInfo]:
        return []

    async def listeners(self) -> Sequence[Listener]:
        return []

    async def mounts(self, role: Role) -> Sequence[str]:
        return []

    async def trusted_run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, binds: Sequence[Mount] = (), limit_s: float = 60.0
    ) -> ExecResult:
        raise NotImplementedError


@dataclass
class WorldProbe:
    """Reads a World; `steps` come first, one for each reading: fields, findings or an error."""

    name: str = "w"
    digest: str = "1"
    depth: Depth = Depth.QUICK
    alone: bool = False
    steps: list[Step] = field(default_factory=list)
    asked: list[tuple[Depth, bool]] = field(default_factory=list)
    running: list[str] = field(default_factory=list)
    pause: float = 0.0

    def depth_of(self, name: str, *, in_place: bool) -> Depth | None:
        if name.startswith("replaced/"):
            return None if in_place else Depth.QUICK
        return Depth.DEEP if name.startswith("deep") and not in_place else Depth.QUICK

    async def read(self, context: ProbeContext) -> Findings:
        self.asked.append((context.depth, context.baseline is not None))
        self.running.append(f"{self.name} begins")
        await asyncio.sleep(self.pause)
        self.running.append(f"{self.name} ends")
        step = self.steps.pop(0) if self.steps else None
        if isinstance(step, Exception):
            raise step
        if isinstance(step, Findings):
            return step
        subject: Any = context.subject
        return Findings(fields=dict(subject.fields) if step is None else step)


def verifier_of(*probes: WorldProbe, limit_s: float = 5.0, volatile: tuple[VolatileField, ...] = ()) -> ProbeVerifier:
    return ProbeVerifier(probes, policy=CheckPolicy(probe_limit_s=limit_s), volatile=volatile)


async def recorded(verifier: ProbeVerifier, *worlds: Subject, rebuilt: Subject | None = None) -> Baseline:
    return await verifier.record(worlds or (World(), World()), rebuilt, key="k")


async def test_an_unchanged_world_is_clean_at_both_depths() -> None:
    verifier = verifier_of(WorldProbe())
    baseline = await recorded(verifier)

    for depth, fields in ((Depth.QUICK, 1), (Depth.DEEP, 2)):
        verdict = await verifier.check(World(), baseline, depth)

        assert (verdict.status, verdict.depth, verdict.fields) == (VerdictStatus.CLEAN, depth, fields)


async def test_quick_judges_quick_fields_only_and_deep_both() -> None:
    verifier = verifier_of(WorldProbe())
    baseline = await recorded(verifier)
    world = World(fields={"quick/a": "1", "deep/b": "changed"})

    assert (await verifier.check(world, baseline, Depth.QUICK)).clean
    assert (await verifier.check(world, baseline, Depth.DEEP)).mismatches == (
        Mismatch(probe="w", field="deep/b", expected="2", actual="changed", depth=Depth.DEEP),
    )


async def test_after_hook_or_clean_quick_judges_what_a_proof_would_have_vouched_for() -> None:
    verifier = verifier_of(WorldProbe())
    baseline = await recorded(verifier)
    world = World(fields={"quick/a": "1", "deep/b": "changed"}, in_place=True, proof=None)

    verdict = await verifier.check(world, baseline, Depth.QUICK)

    assert verdict.mismatches == (Mismatch(probe="w", field="deep/b", expected="2", actual="changed", depth=Depth.QUICK),)
    assert "not replaced" in verdict.in_force["reset_scope"]
    assert verdict.in_force["runtime"] == "test"


async def test_the_whole_difference_of_every_probe_is_kept() -> None:
    verifier = verifier_of(WorldProbe(name="one"), WorldProbe(name="two"))
    baseline = await recorded(verifier)

    verdict = await verifier.check(World(fields={"quick/new": "3"}), baseline, Depth.DEEP)

    assert [(m.probe, m.field, m.expected, m.actual) for m in verdict.mismatches] == [
        (p, f, e, a)
        for p in ("one", "two")
        for f, e, a in (("deep/b", "2", None), ("quick/a", "1", None), ("quick/new", None, "3"))
    ]
    assert verdict.status is VerdictStatus.MISMATCH


@pytest.mark.parametrize("step", [RuntimeError("boom"), PermissionError("may not"), {}, Findings(fields={}, problems=("why",))])
async def test_a_probe_that_fails_twice_is_inconclusive(step: Step) -> None:
    source = WorldProbe()
    verifier = verifier_of(source, WorldProbe(name="other"))
    baseline = await recorded(verifier)
    source.steps = [step, step]

    verdict = await verifier.check(World(fields={"quick/a": "x", "deep/b": "2"}), baseline, Depth.QUICK)

    assert verdict.status is VerdictStatus.INCONCLUSIVE
    assert not verdict.clean
    assert [p.probe for p in verdict.problems] == ["w"]
    assert [m.probe for m in verdict.mismatches] == ["other"]  # what the others found is kept


async def test_a_probe_that_fails_once_is_asked_once_more() -> None:
    source = WorldProbe()
    verifier = verifier_of(source)
    baseline = await recorded(verifier)
    source.steps = [RuntimeError("loaded machine")]

    assert (await verifier.check(World(), baseline, Depth.QUICK)).clean


async def test_a_probe_that_hangs_is_inconclusive_within_its_limit() -> None:
    source = WorldProbe()
    verifier = verifier_of(source, limit_s=0.05)
    baseline = await recorded(verifier)
    source.pause = 30

    verdict = await verifier.check(World(), baseline, Depth.QUICK)

    assert [p.reason for p in verdict.problems] == ["no answer within 0.05 s (check.probe_limit_s)"]


async def test_a_cancelled_check_is_cancelled() -> None:
    source = WorldProbe()
    verifier = verifier_of(source)
    baseline = await recorded(verifier)
    source.pause = 30
    task = asyncio.ensure_future(verifier.check(World(), baseline, Depth.QUICK))
    await asyncio.sleep(0.01)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_a_broken_off_reading_did_not_reach_is_no_mismatch() -> None:
    source = WorldProbe()
    verifier = verifier_of(source)
    baseline = await recorded(verifier)
    part = Findings(fields={"quick/a": "x"}, problems=("table locked",))
    source.steps = [part, part]

    verdict = await verifier.check(World(), baseline, Depth.DEEP)

    assert verdict.status is VerdictStatus.INCONCLUSIVE
    assert [(m.field, m.actual) for m in verdict.mismatches] == [("quick/a", "x")]


async def test_a_missing_proof_is_inconclusive_and_a_broken_one_a_mismatch() -> None:
    verifier = verifier_of(WorldProbe())
    baseline = await recorded(verifier)

    missing = await verifier.check(World(proof=None), baseline, Depth.QUICK)
    broken = await verifier.check(
        World(proof=IdentityProof(method="empty-upper", holds=False, detail="3 paths")), baseline, Depth.QUICK
    )

    assert (missing.status, missing.problems[0].probe) == (VerdictStatus.INCONCLUSIVE, "identity")
    assert (broken.status, broken.mismatches[0].field, broken.mismatches[0].depth) == (
        VerdictStatus.MISMATCH,
        "identity",
        Depth.QUICK,
    )
    assert (await verifier.check(World(proof=None, in_place=True), baseline, Depth.QUICK)).clean


async def test_a_baseline_without_a_probe_is_inconclusive() -> None:
    baseline = await recorded(verifier_of(WorldProbe()))

    verdict = await verifier_of(WorldProbe(), WorldProbe(name="later")).check(World(), baseline, Depth.QUICK)

    assert [p.probe for p in verdict.problems] == ["later"]


async def test_a_field_read_only_after_a_replacement_is_not_missed_in_place() -> None:
    fields = {"quick/a": "1", "replaced/c": "3"}
    verifier = verifier_of(WorldProbe())
    baseline = await recorded(verifier, World(fields=fields), World(fields=fields))

    assert (await verifier.check(World(fields={"quick/a": "1"}, in_place=True), baseline, Depth.DEEP)).clean
    assert not (await verifier.check(World(fields={"quick/a": "1"}), baseline, Depth.DEEP)).clean


async def test_clones_that_disagree_are_refused_with_every_field_named() -> None:
    verifier = verifier_of(WorldProbe())

    with pytest.raises(BaselineUnstable) as caught:
        await recorded(verifier, World(), World(fields={"quick/a": "other", "deep/c": "2"}))

    assert [line.split(":")[0] for line in caught.value.fields] == ["w/deep/b", "w/deep/c", "w/quick/a"]


async def test_a_declared_volatile_field_is_neither_recorded_nor_compared() -> None:
    volatile = (VolatileField(pattern="w/quick/*", reason="a clock"),)
    verifier = verifier_of(WorldProbe(), volatile=volatile)
    baseline = await recorded(verifier, World(), World(fields={"quick/a": "other", "deep/b": "2"}))

    assert [dict(r.fields) for r in baseline.readings] == [{"deep/b": "2"}]
    assert (await verifier.check(World(fields={"quick/a": "third", "deep/b": "2"}), baseline, Depth.DEEP)).clean


async def test_one_clone_is_not_enough() -> None:
    with pytest.raises(BaselineUnstable, match="at least two"):
        await recorded(verifier_of(WorldProbe()), World())


async def test_a_probe_that_cannot_read_a_fresh_instance_makes_no_baseline() -> None:
    with pytest.raises(BaselineUnstable, match="could not read"):
        await recorded(verifier_of(WorldProbe(steps=[RuntimeError("a"), RuntimeError("b")])))


async def test_a_rebuilt_instance_that_differs_is_drift_and_still_compared() -> None:
    verifier = verifier_of(WorldProbe())
    baseline = await recorded(verifier, World(), World(), rebuilt=World(fields={"quick/a": "salt", "deep/b": "2"}))

    assert [(m.field, m.expected, m.actual) for m in baseline.drift] == [("quick/a", "1", "salt")]
    assert not (await verifier.check(World(fields={"quick/a": "salt", "deep/b": "2"}), baseline, Depth.QUICK)).clean


async def test_a_baseline_digest_does_not_depend_on_order_and_does_on_content() -> None:
    forward, backward = {"quick/a": "1", "quick/z": "2"}, {"quick/z": "2", "quick/a": "1"}
    digests = [
        (await recorded(verifier_of(*order), World(fields=f), World(fields=f))).digest
        for order, f in (
            ((WorldProbe(name="x"), WorldProbe(name="y")), forward),
            ((WorldProbe(name="y"), WorldProbe(name="x")), backward),
            ((WorldProbe(name="x"), WorldProbe(name="y")), {**forward, "quick/a": "9"}),
        )
    ]

    assert digests[0] == digests[1] != digests[2]


async def test_a_probe_that_must_be_alone_runs_before_the_others() -> None:
    order: list[str] = []
    probes = [WorldProbe(name="a", running=order, pause=0.01), WorldProbe(name="first", running=order, alone=True, pause=0.01)]
    probes.append(WorldProbe(name="b", running=order, pause=0.01))
    verifier = verifier_of(*probes)

    await recorded(verifier)

    assert order[:4] == ["first begins", "first ends", "a begins", "b begins"]


async def test_a_deep_probe_is_not_run_in_a_quick_check() -> None:
    deep = WorldProbe(name="deep", depth=Depth.DEEP)
    verifier = verifier_of(WorldProbe(), deep)
    baseline = await recorded(verifier)
    deep.asked.clear()

    await verifier.check(World(), baseline, Depth.QUICK)
    assert deep.asked == []
    await verifier.check(World(), baseline, Depth.DEEP)
    assert deep.asked == [(Depth.DEEP, True)]


def test_the_digest_covers_probes_and_what_is_declared_volatile() -> None:
    volatile = (VolatileField(pattern="w/x", reason="because of y"),)
    digests = {
        verifier_of(WorldProbe()).digest,
        verifier_of(WorldProbe(digest="2")).digest,
        verifier_of(WorldProbe(name="v")).digest,
        verifier_of(WorldProbe(), volatile=volatile).digest,
    }

    assert len(digests) == 4
    assert verifier_of(WorldProbe()).digest in digests


def test_two_probes_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="unique"):
        verifier_of(WorldProbe(), WorldProbe())


async def test_a_function_makes_a_probe() -> None:
    @probe("stock", depth=Depth.QUICK)
    async def stock(context: ProbeContext) -> Mapping[str, str]:
        return {"negative": str(context.subject.namespace)}

    @probe("stock", depth=Depth.QUICK)
    async def other(context: ProbeContext) -> Mapping[str, str]:
        return {"positive": str(context.subject.namespace)}

    verifier = ProbeVerifier([stock], policy=CheckPolicy())
    baseline = await recorded(verifier)

    assert (await verifier.check(World(), baseline, Depth.QUICK)).clean
    assert stock.digest != other.digest
    assert _same(stock.digest, lambda: stock.digest)


def _same(digest: str, again: Callable[[], str]) -> bool:
    return digest == again()


async def test_a_check_in_which_no_probe_reads_anything_is_not_clean() -> None:
    verifier = verifier_of(WorldProbe(depth=Depth.DEEP))
    baseline = await recorded(verifier)
    verdict = await verifier.check(World(), baseline, Depth.QUICK)
    assert verdict.status is VerdictStatus.INCONCLUSIVE
    assert "no probe reads anything" in verdict.problems[0].reason
