"""What a bisection found, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs.bisect.history import History
from envs.bisect.replay import Account
from envs.bisect.reproduction import Entry
from envs.bisect.search import Found, Once, matches
from sandbox.actions import RecordedAction
from sandbox.model import ResetMethod, VerdictStatus


@dataclass(slots=True, kw_only=True)
class BisectReport:
    """`by_itself` are fields that the reset changes in a state that nobody touched. `entry` was replayed alone: `entry_leaves` is
    what it left of what is sought, `entry_refused` why it could not be done (to its end)."""

    history: History
    method: ResetMethod
    sought: tuple[str, ...]
    account: Account
    resets: Mapping[str, tuple[ResetMethod, ...]] = field(default_factory=dict)  # that followed each trajectory
    named: bool = False  # somebody named what is sought, by pattern
    by_itself: frozenset[str] = frozenset()
    found: Found | Once | None = None
    entry: Entry | None = None
    entry_leaves: frozenset[str] = frozenset()
    entry_refused: str = ""
    written: Path | None = None
    unwritten: str = ""  # why it could not be
    seconds: float = 0.0
    gaps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def culprit(self) -> tuple[str, RecordedAction] | None:
        """The trajectory and its action."""
        if not isinstance(self.found, Found):
            return None
        segment = self.history.segments[self.found.segment]
        return segment.trajectory, segment.actions[self.found.action]

    @property
    def fails_alone(self) -> bool:
        return bool(self.entry_leaves) and not self.entry_refused

    @property
    def verdict(self) -> VerdictStatus:
        """Clean means that all of it was done again and the reset held; nothing less does."""
        if self.by_itself or isinstance(self.found, Found):
            return VerdictStatus.MISMATCH
        doubtful = self.gaps or self.account.diverged or self.account.failed_resets or isinstance(self.found, Once)
        return VerdictStatus.INCONCLUSIVE if doubtful else VerdictStatus.CLEAN

    @property
    def unexplained(self) -> tuple[str, ...]:
        """Fields that were sought, and that neither the culprit nor the reset by itself changes."""
        known = self.by_itself | (self.found.fields if isinstance(self.found, Found) else frozenset())
        if self.named:
            return tuple(pattern for pattern in self.sought if not any(matches(field, pattern) for field in known))
        return tuple(name for name in self.sought if name not in known)

    def as_json(self) -> dict[str, Any]:
        history, found = self.history, self.found
        culprit = self.culprit
        return {
            "quarantine": history.quarantine,
            "check": history.check,
            "environment": history.environment,
            "environment_digest": history.digest,
            "namespace": history.namespace,
            "method": self.method.value,
            "resets": {name: [method.value for method in methods] for name, methods in self.resets.items()},
            "sought": list(self.sought),
            "suspects": [s.trajectory for s in history.segments[len(history.segments) - history.suspects :]],
            "verdict": self.verdict.value,
            "reproduced": culprit is not None,
            "trajectory": culprit[0] if culprit else None,
            "action": None if culprit is None else _action(culprit[1]),
            "first": found.first if isinstance(found, Found) else None,
            "fields": sorted(found.fields) if isinstance(found, Found) else [],
            "by_itself": sorted(self.by_itself),
            "unexplained": list(self.unexplained),
            "once": history.segments[found.segment].trajectory if isinstance(found, Once) else None,
            "needs": [] if not isinstance(found, Found) else _needs(found),
            "minimal": found.minimal if isinstance(found, Found) else None,
            "reproduction": None if self.entry is None else self._entry(self.entry),
            "written": self.written,
            "not_written": self.unwritten or None,
            "replayed": {
                "namespaces": self.account.namespaces,
                "resets": self.account.resets,
                "actions": self.account.actions,
                "seconds": round(self.seconds, 3),
            },
            "not_replayed": {name: list(gaps) for name, gaps in self.gaps.items()},
            "diverged": [{"trajectory": t, "action": n, "how": how} for (t, n), how in self.account.diverged.items()],
            "failed_resets": list(self.account.failed_resets),
            "in_force": dict(self.account.in_force),
        }

    def _entry(self, entry: Entry) -> dict[str, Any]:
        return {
            "name": entry.name,
            "toml": entry.toml,
            "fails_alone": self.fails_alone,
            "fields": sorted(self.entry_leaves),
            "refused": self.entry_refused or None,
        }


def _needs(found: Found) -> list[dict[str, Any]]:
    """The other actions that it takes, in order."""
    every = [(segment.trajectory, action) for segment in found.plan for action in segment.actions]
    return [{"trajectory": trajectory, **_action(action)} for trajectory, action in every[:-1]]


def _action(action: RecordedAction) -> dict[str, Any]:
    return {"number": action.number, "kind": action.kind.value, "text": action.text}
