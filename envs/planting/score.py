"""The probe score: each leak alone on a fresh state. Did the probes see it and at which depth, and did the reset repair it?"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from envs.planting.candidates import Candidate
from envs.planting.plant import plant
from envs.trial import Trial, told
from sandbox.errors import AutoclaveError, InstanceLost
from sandbox.model import Depth, ResetMethod, Verdict

log = logging.getLogger(__name__)
Say = Callable[[str], None]
_SHOWN = 3
AGAIN_S = 1.0
GIVE_UP = 3  # starts in a row that fail: then it is the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one planted leak. `seen` is the least depth at which a check in place sees it (None where none did), `probes`
    those that did at that depth; `left` what still differs after the reset, at the least depth `left_at`, or why that failed;
    `refused` why it could not be planted."""

    name: str
    kind: str
    what: str
    declared: Depth | None
    repaired_by: ResetMethod
    needs: str = ""
    seen: Depth | None = None
    probes: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    left: str = ""
    left_at: Depth | None = None
    refused: str = ""
    blind: str = ""  # why no probe can see it, where none can

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "what": self.what,
            "needs": self.needs,
            "declared": self.declared,
            "repaired_by": self.repaired_by.value,
            "seen": self.seen,
            "probes": list(self.probes),
            "fields": list(self.fields),
            "left": self.left,
            "left_at": self.left_at,
            "refused": self.refused,
            "blind": self.blind,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeScore:
    """How many planted leaks the probes saw before a reset, and how many the reset undid."""

    method: ResetMethod = ResetMethod.RESTORE
    outcomes: tuple[Outcome, ...] = ()
    inapplicable: Mapping[str, str] = field(default_factory=dict)
    false_alarms: tuple[str, ...] = ()  # fields that differ in a state that nobody touched, fresh or after a reset
    of: int = 0  # how many could have been planted, where a sample was drawn
    seed: int | None = None

    @property
    def _planted(self) -> list[Outcome]:
        return [o for o in self.outcomes if not o.refused]

    @property
    def _visible(self) -> list[Outcome]:
        return [o for o in self._planted if not o.blind]

    @property
    def planted(self) -> int:
        return len(self._visible)

    @property
    def caught(self) -> int:
        return sum(o.seen is not None for o in self._visible)

    @property
    def repaired(self) -> int:
        return sum(not o.left for o in self._visible)

    @property
    def missed(self) -> tuple[str, ...]:
        return tuple(o.name for o in self._visible if o.seen is None)

    @property
    def late(self) -> tuple[str, ...]:
        """Those that only deep sees, though quick should."""
        return tuple(o.name for o in self._visible if o.declared is Depth.QUICK and o.seen is Depth.DEEP)

    @property
    def left(self) -> tuple[str, ...]:
        return tuple(o.name for o in self._planted if o.left)

    @property
    def broken(self) -> tuple[str, ...]:
        """Those that the reset left although it is strong enough that it must undo them."""
        rank = list(ResetMethod).index
        return tuple(o.name for o in self._planted if o.left and rank(self.method) >= rank(o.repaired_by))

    @property
    def share(self) -> float:
        return self.caught / self.planted if self.planted else 0.0

    def under(self, percent: float) -> bool:
        """Fewer were seen than so many of a hundred; where none was planted, nothing says that any would be."""
        return self.caught * 100 < percent * self.planted if self.planted else percent > 0

    def alone(self, probe: str) -> tuple[str, ...]:
        """The leaks that this probe saw and no other: what would be missed without it."""
        return tuple(o.name for o in self._visible if o.probes == (probe,))

    def as_json(self) -> dict[str, Any]:
        probes = sorted({name for o in self._visible for name in o.probes})
        return {
            "method": self.method.value,
            "planted": self.planted,
            "caught": self.caught,
            "repaired": self.repaired,
            "missed": list(self.missed),
            "late": list(self.late),
            "left": list(self.left),
            "broken": list(self.broken),
            "share": round(self.share, 4),
            "false_alarms": list(self.false_alarms),
            "only_seen_by": {name: len(self.alone(name)) for name in probes},
            "refused": {o.name: o.refused for o in self.outcomes if o.refused},
            "inapplicable": dict(self.inapplicable),
            "sample": {"of": self.of, "seed": self.seed} if self.seed is not None else None,
            "leaks": [o.as_json() for o in self.outcomes if not o.refused],
        }


async def survey(
    trial: Trial,
    wanted: Sequence[Candidate],
    *,
    inapplicable: Mapping[str, str],
    sample: int = 0,
    seed: int = 0,
    say: Say = lambda _: None,
) -> ProbeScore:
    """Plant each (or a sample of them, drawn by the seed), look, reset by the environment's method, look again."""
    chosen = list(wanted)
    if 0 < sample < len(chosen):
        kept = set(random.Random(seed).sample(range(len(chosen)), sample))
        chosen = [c for n, c in enumerate(chosen) if n in kept]
    await trial.renew()
    idle = frozenset(differences(await trial.read(Depth.DEEP)))
    noise = idle | await _noise(trial)
    outcomes: list[Outcome] = []
    fresh, failures = False, 0
    for number, candidate in enumerate(chosen, 1):
        say(f"score: {number} of {len(chosen)}, {candidate.name}")
        try:
            if not fresh:
                await trial.renew()
        except (AutoclaveError, OSError, TimeoutError) as error:  # what was measured until now is not thrown away for one of them
            failures += 1
            if failures == GIVE_UP:
                raise
            outcomes.append(replace(declared(candidate), refused=f"no fresh state for it: {told(error, most=160)}"))
            continue
        failures = 0
        outcomes.append(await _one(trial, candidate, noise, before=noise if fresh else idle))
        fresh = trial.method.replaces and not outcomes[-1].left and not outcomes[-1].refused
    return ProbeScore(
        method=trial.method,
        outcomes=tuple(outcomes),
        inapplicable=inapplicable,
        false_alarms=tuple(sorted(noise)),
        of=len(wanted),
        seed=seed if len(chosen) < len(wanted) else None,
    )


async def _noise(trial: Trial) -> frozenset[str]:
    """What the reset changes by itself says nothing of a leak."""
    try:
        await trial.reset()
    except (AutoclaveError, OSError, TimeoutError):
        log.warning("a reset of an untouched state failed", exc_info=True)
        await trial.renew()
    return frozenset(differences(await trial.look(quiesce=False)))


async def _one(trial: Trial, candidate: Candidate, noise: frozenset[str], *, before: frozenset[str]) -> Outcome:
    """`before` is what differs already in the state that it is planted in: seeing that is not seeing the leak."""
    outcome = declared(candidate)
    async with AsyncExitStack() as held:
        if refused := await plant(trial.instance, candidate, held):
            return replace(outcome, refused=refused)
        seen = await _seen(trial, candidate, outcome, before)
        return seen if seen.refused else await _left(trial, noise, seen)


def declared(candidate: Candidate) -> Outcome:
    """What is said of a leak before it is planted."""
    leak, action = candidate.leak, candidate.action
    if leak is None:
        assert action is not None
        return Outcome(
            name=candidate.name,
            kind=candidate.kind,
            what=candidate.what,
            declared=None if action.blind else action.seen,
            repaired_by=action.repaired_by,
            needs=f"role {action.role}" if action.role else "",
            blind=action.blind,
        )
    return Outcome(
        name=candidate.name,
        kind=candidate.kind,
        what=candidate.what,
        declared=leak.seen,
        repaired_by=leak.repaired_by,
        needs=leak.needs.value,
        blind=leak.blind if leak.seen is None else "",
    )


async def _seen(trial: Trial, candidate: Candidate, outcome: Outcome, before: frozenset[str]) -> Outcome:
    """As a check that follows no replacement sees it, in a field that the leak must show in: quick first, then deep, and deep again
    while what was planted may still be on its way to the disk; and by which probes at that depth."""
    loop = asyncio.get_running_loop()
    until = loop.time() + (0.0 if outcome.blind else candidate.shown_within_s)
    depth = Depth.QUICK
    while True:
        try:
            verdict = await trial.read(depth)
            if verdict.problems and not verdict.mismatches:  # a loaded machine is no leak: what one leaves is there again
                verdict = await trial.read(depth)
        except InstanceLost as error:  # it ended the instance, which nobody can overlook
            return replace(outcome, seen=depth, fields=(error.message.splitlines()[0][:160],))
        except (AutoclaveError, OSError, TimeoutError) as error:  # no answer is none in the probes' favour
            return replace(outcome, refused=f"planted, but it could not be looked at: {told(error, most=160)}")
        found = {name for name in _beside(differences(verdict), before) if fnmatchcase(_field(name), candidate.shows)}
        if found:
            probes = tuple(sorted({re.split("[/:]", name, maxsplit=1)[0] for name in found}))
            return replace(outcome, seen=depth, probes=probes, fields=tuple(sorted(found)[:_SHOWN]))
        if depth is Depth.DEEP:
            if loop.time() >= until:
                return outcome
            await asyncio.sleep(AGAIN_S)
        depth = Depth.DEEP


def _beside(found: set[str], before: frozenset[str]) -> set[str]:
    """Leave out what was so before, and whatever a probe says that gave no full answer then either."""
    silent = {probe for name in before if (probe := _silent(name))}
    return {name for name in found - before if _silent(name) not in silent}


def _silent(name: str) -> str:
    """The probe that gave no full answer, empty where `name` is a field."""
    probe, colon, _ = name.partition(": ")
    return probe if colon and "/" not in probe else ""


def _field(name: str) -> str:
    return name.partition("/")[2]


async def _left(trial: Trial, noise: frozenset[str], outcome: Outcome) -> Outcome:
    try:
        await trial.reset()
        verdict = await trial.look(quiesce=False)  # as a pool does after it: what goes on running is left
    except (AutoclaveError, OSError, TimeoutError) as error:
        return replace(outcome, left=f"the reset fails: {' '.join(str(error).split())[:160]}")
    left = sorted(differences(verdict) - noise)
    depths = {m.depth for m in verdict.mismatches if f"{m.probe}/{m.field}" in left}
    text = ", ".join(left[:_SHOWN]) + (f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else "")
    return replace(outcome, left=text, left_at=(Depth.QUICK if Depth.QUICK in depths else Depth.DEEP) if left else None)


def differences(verdict: Verdict) -> set[str]:
    """What a verdict found, as `probe/field`, or `probe: reason`."""
    return {f"{m.probe}/{m.field}" for m in verdict.mismatches} | {f"{p.probe}: {p.reason}" for p in verdict.problems}
