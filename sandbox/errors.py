"""Every error that Autoclave raises on purpose.

AutoclaveError
├── EnvironmentInvalid        a specification, seed or hook is wrong; names file, line or key
├── BaselineUnstable          two fresh instances disagree on fields that nobody declared volatile
├── BaselineRefused           a new baseline differs from the one before it, and nobody accepted that
├── BaselineMissing           nothing was recorded yet for this digest: run `autoclave env baseline`
├── SealBroken                a golden snapshot no longer has the digest it was sealed with
├── PoolBusy                  no namespace within the wait; carries `retry_after_s`
├── PoolBroken                creation failed too often, or the home is held by another manager
├── SessionExpired            the lease's deadline or heartbeat passed
├── StaleGeneration           a handle of an earlier generation was used
├── NotCleared                a trajectory may not ship; carries each one's clearance
├── LedgerConflict            compare-and-set lost: somebody else moved the row first
│   └── RecordMissing         the ledger holds nothing of that name
├── LimitReached              output, disk, process or queue bound hit
├── ResetFailed               a reset method ended in an error (escalation follows)
├── InstanceLost              the instance died or does not answer
├── RuntimeUnavailable        the machine lacks something; carries the `fix`
└── SnapshotMissing           the snapshot was removed or never existed

A failed command of the agent is not an error: it is an `ExecResult`. Each class says what happened and what to do next;
`exit_code` is what the command line returns for it.
"""

from __future__ import annotations

from collections.abc import Mapping


class AutoclaveError(Exception):
    """Base of all of ours. `fix` says what to do next, in one line; it may be empty."""

    exit_code = 4

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        return f"{self.message}. {self.fix}" if self.fix else self.message


class EnvironmentInvalid(AutoclaveError):
    """The environment's description is wrong. `problems` holds every one found, each naming file, line or key."""

    exit_code = 2

    def __init__(self, message: str, *, problems: tuple[str, ...] = (), fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.problems = problems

    def __str__(self) -> str:
        return "\n  ".join((super().__str__(), *self.problems))


class _NamesFields(AutoclaveError):
    """An error that lists `probe/field` names, one a line."""

    def __init__(self, message: str, *, fields: tuple[str, ...] = (), fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.fields = fields

    def __str__(self) -> str:
        return "\n  ".join((super().__str__(), *self.fields))


class BaselineUnstable(_NamesFields):
    """Two fresh instances disagree. `fields` names each `probe/field` with both values."""

    exit_code = 1


class BaselineRefused(_NamesFields):
    """Nobody accepted a new baseline: the one before it stays. `fields` names what differs between them, the first of it."""

    exit_code = 1


class BaselineMissing(AutoclaveError):
    """No baseline for this environment, probes, snapshot, runtime and storage."""

    exit_code = 2


class SealBroken(AutoclaveError):
    """A golden snapshot changed after it was sealed; its environment is retired until it is built again."""

    exit_code = 1


class PoolBusy(AutoclaveError):
    """No namespace came free in time, or none can come at all. Ask again after `retry_after_s` seconds."""

    exit_code = 3

    def __init__(self, message: str, *, retry_after_s: float, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.retry_after_s = retry_after_s


class PoolBroken(AutoclaveError):
    """The pool cannot serve; `reason` says why (open breaker, home in use, broken seal)."""

    exit_code = 3

    def __init__(self, reason: str, *, fix: str = "") -> None:
        super().__init__(reason, fix=fix)
        self.reason = reason


class SessionExpired(AutoclaveError):
    """The lease ran out; its namespace is being reset."""

    exit_code = 2


class StaleGeneration(AutoclaveError):
    """The handle belongs to a generation that has ended; ask the pool for a new session."""

    exit_code = 2


class NotCleared(AutoclaveError):
    """At least one trajectory is not cleared at the required depth, so nothing was shipped."""

    exit_code = 1

    def __init__(self, message: str, *, clearances: Mapping[str, str], fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.clearances = clearances


class LedgerConflict(AutoclaveError):
    """A compare-and-set found another value than expected; nothing was written."""


class RecordMissing(LedgerConflict):
    """The ledger holds no namespace, lease, trajectory, quarantine or batch of that name."""

    exit_code = 2


class LimitReached(AutoclaveError):
    """A bound was hit; the message names the bound, its value and the setting that moves it."""

    exit_code = 3


class ResetFailed(AutoclaveError):
    """A reset did not finish. Never shown to the next holder: the pool escalates."""

    exit_code = 1


class InstanceLost(AutoclaveError):
    """An instance died under a session: infrastructure failure, so its reward is None, never 0."""

    exit_code = 3


class RuntimeUnavailable(AutoclaveError):
    """Something that a runtime needs is not on this machine; `fix` is the command that brings it."""

    exit_code = 3


class SnapshotMissing(AutoclaveError):
    """The snapshot is not in the store."""

    exit_code = 2
