"""The creation breaker: after repeated failures it opens and says why, instead of trying forever."""

from __future__ import annotations

from sandbox.ports import Clock


class Breaker:
    """Closed; open after `threshold` failures in a row; half-open after `pause_s`, when one attempt may try again."""

    def __init__(self, *, clock: Clock, threshold: int, pause_s: float) -> None:
        self._clock = clock
        self._threshold = threshold
        self._pause_s = pause_s
        self._failures = 0
        self._opened: float | None = None
        self._trying = False
        self.reason = ""

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    @property
    def retry_after_s(self) -> float:
        """Seconds until the next attempt may be made."""
        if self._opened is None:
            return 0.0
        return max(0.0, self._opened + self._pause_s - self._clock.monotonic())

    def can_try(self) -> bool:
        if self._opened is None:
            return True
        return not self._trying and self.retry_after_s == 0.0

    def begin(self) -> None:
        self._trying = self._opened is not None

    def succeeded(self) -> None:
        self._failures, self._opened, self._trying, self.reason = 0, None, False, ""

    def failed(self, reason: str) -> None:
        self._failures += 1
        self._trying = False
        self.reason = reason
        if self._failures >= self._threshold:
            self._opened = self._clock.monotonic()

    def skipped(self) -> None:
        """The attempt ended without an answer (cancelled)."""
        self._trying = False
