"""Says when nothing moves, and what holds it; after long enough, ends the run with that as the reason."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sandbox.ports import Clock

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds without any movement: until it is said, and until the run is ended."""

    say_s: float = 120.0
    stop_s: float = 1800.0

    def __post_init__(self) -> None:
        if not 0 < self.say_s <= self.stop_s:
            raise ValueError(f"patience of {self.say_s} s to speak and {self.stop_s} s to stop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """One stretch in which nothing moved."""

    at: str
    quiet_s: float
    holds: Mapping[str, Any]


class Watchdog:
    """`quiet_s` says for how long nothing moved, `holds` what is in the way, `stop` ends the run."""

    def __init__(
        self,
        *,
        clock: Clock,
        patience: Patience,
        quiet_s: Callable[[], float],
        holds: Callable[[], Mapping[str, Any]],
        stop: Callable[[str], None],
    ) -> None:
        self._clock = clock
        self._patience = patience
        self._quiet_s = quiet_s
        self._holds = holds
        self._stop = stop
        self.stalls: list[Stall] = []

    async def watch(self) -> None:
        """Look until cancelled. One stretch is said once."""
        said = False
        while True:
            await self._clock.sleep(self._patience.say_s / 4)
            quiet = self._quiet_s()
            if quiet < self._patience.say_s:
                said = False
                continue
            holds = self._holds()
            if not said:
                said = True
                stall = Stall(at=self._clock.now().isoformat(), quiet_s=round(quiet, 1), holds=holds)
                self.stalls.append(stall)
                log.warning("nothing moves", extra={"event": "rollout.stall", "quiet_s": stall.quiet_s, "holds": dict(holds)})
            if quiet >= self._patience.stop_s:
                self._stop(f"nothing moved for {quiet:.0f} s: {_told(holds)}")
                return


def _told(holds: Mapping[str, Any]) -> str:
    return "; ".join(f"{name}: {what}" for name, what in holds.items() if what) or "nothing is held"
