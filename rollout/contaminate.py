"""`--contaminate`: a share of the trajectories leaves something behind that the author's own reset misses, as agents do.

Nothing is pretended: the leak is made in the session, the environment runs under its hook, the pool's check finds what it finds.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any

from envs.demo.agents import LEAKS, Leak
from rollout.running.draft import Draft
from sandbox.errors import AutoclaveError

log = logging.getLogger(__name__)
OTHER = (
    Leak(name="a file in its directory", shell="echo left > .left-behind"),
    Leak(name="a file in /tmp", shell="echo x > /tmp/x"),
)


class Contaminator:
    """Leaves a leak of the environment's kind in `share` of the sessions, chosen by seed and trajectory."""

    def __init__(self, environment: str, *, share: float, seed: int) -> None:
        if not 0 <= share <= 1:
            raise ValueError(f"a share lies between 0 and 1, not at {share}")
        self._leaks = LEAKS.get(environment, OTHER)
        self._share = share
        self._seed = seed
        self.planted: list[str] = []

    async def __call__(self, session: Any, draft: Draft) -> None:
        number = int.from_bytes(hashlib.blake2b(f"{self._seed}/{draft.ticket.id}".encode(), digest_size=8).digest(), "big")
        if number / 2**64 >= self._share:
            return
        leak = self._leaks[number % len(self._leaks)]
        try:
            result = await session.run(["sh", "-euc", leak.shell], limit_s=60)
        except AutoclaveError as error:
            log.warning("a leak was not planted", extra={"event": "rollout.not_planted", "leak": leak.name, "error": str(error)})
            return
        if result.exit_code == 0:  # what the agent broke itself may be in the way; then nothing was planted
            draft.planted = leak.name
            self.planted.append(draft.id)
