"""The probe score: each leak alone on a fresh state. Did the probes see it and at which depth, and did the reset repair it?"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from envs.planting.candidates import Candidate
from envs.planting.plant import plant
from envs.trial import Trial
from sandbox.errors import AutoclaveError
from sandbox.model import Depth, Verdict

log = logging.getLogger(__name__)
Say = Callable[[str], None]
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one planted leak. `seen` is the least depth at which a check in place sees it, None where none did; `left`
    what still differs after the reset, or why that failed; `refused` why it could not be planted."""

    name: str
    kind: str
    what: str
    declared: Depth | None
    seen: Depth | None = None
    fields: tuple[str, ...] = ()
    left: str = ""
    refused: str = ""
    blind: str = ""  # why no probe can see it, where none can

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": self.kind,
            "what": self.what,
            "declared": self.declared,
            "seen": self.seen,
            "fields": list(self.fields),
            "left": self.left,
            "refused": self.refused,
            "blind": self.blind,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeScore:
    """How many planted leaks the probes saw before a reset, and how many the reset undid."""

    outcomes: tuple[Outcome, ...] = ()
    inapplicable: Mapping[str, str] = field(default_factory=dict)
    false_alarms: tuple[str, ...] = ()  # fields that differ after a reset of a state that nobody touched
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
    def share(self) -> float:
        return self.caught / self.planted if self.planted else 0.0

    def as_json(self) -> dict[str, Any]:
        return {
            "planted": self.planted,
            "caught": self.caught,
            "repaired": self.repaired,
            "missed": list(self.missed),
            "late": list(self.late),
            "left": list(self.left),
            "share": round(self.share, 4),
            "false_alarms": list(self.false_alarms),
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
    noise = await _noise(trial)
    outcomes: list[Outcome] = []
    fresh = False
    for number, candidate in enumerate(chosen, 1):
        say(f"score: {number} of {len(chosen)}, {candidate.name}")
        if not fresh:
            await trial.renew()
        outcomes.append(await _one(trial, candidate, noise))
        fresh = trial.replaces and not outcomes[-1].left and not outcomes[-1].refused
    return ProbeScore(
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
    return frozenset(differences(await trial.look()))


async def _one(trial: Trial, candidate: Candidate, noise: frozenset[str]) -> Outcome:
    leak = candidate.leak
    outcome = Outcome(
        name=candidate.name,
        kind=candidate.kind,
        what=candidate.what,
        declared=leak.seen if leak is not None else Depth.DEEP,
        blind=leak.blind if leak is not None and leak.seen is None else "",
    )
    async with AsyncExitStack() as held:
        if refused := await plant(trial.instance, candidate, held):
            return replace(outcome, refused=refused)
        seen, fields = await _seen(trial, candidate.shows)
        return replace(outcome, seen=seen, fields=fields, left=await _left(trial, noise))


async def _seen(trial: Trial, shows: str) -> tuple[Depth | None, tuple[str, ...]]:
    """As a check that follows no replacement sees it, in a field that `shows` matches: quick first, then deep."""
    for depth in (Depth.QUICK, Depth.DEEP):
        try:
            found = {name for name in differences(await trial.read(depth)) if fnmatchcase(name.partition("/")[2], shows)}
        except AutoclaveError as error:  # it ended the instance, which nobody can overlook
            return depth, (error.message.splitlines()[0][:160],)
        if found:
            return depth, tuple(sorted(found)[:_SHOWN])
    return None, ()


async def _left(trial: Trial, noise: frozenset[str]) -> str:
    try:
        await trial.reset()
        left = sorted(differences(await trial.look()) - noise)
    except (AutoclaveError, OSError, TimeoutError) as error:
        return f"the reset fails: {' '.join(str(error).split())[:160]}"
    return ", ".join(left[:_SHOWN]) + (f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else "")


def differences(verdict: Verdict) -> set[str]:
    """What a verdict found, as `probe/field`, or `probe: reason`."""
    return {f"{m.probe}/{m.field}" for m in verdict.mismatches} | {f"{p.probe}: {p.reason}" for p in verdict.problems}
