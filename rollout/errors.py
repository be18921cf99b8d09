"""The errors of the training side; they are `AutoclaveError`s, so that the command line words them like all others."""

from __future__ import annotations

from sandbox.errors import AutoclaveError


class EngineLost(AutoclaveError):
    """The engine died, refused, or does not answer: infrastructure, so the trajectory's reward is None, never 0."""

    exit_code = 3


class RequestInvalid(AutoclaveError):
    """The engine cannot take what it was asked: the data is wrong, and asking again would not help."""

    exit_code = 2


class TokenOutOfRange(RequestInvalid):
    """A token id that the engine's vocabulary does not hold; sent on, it could kill the engine with all its requests."""


class ToolFault(AutoclaveError):
    """A tool could not act for a reason that the policy did not cause."""

    exit_code = 3


class Saturated(AutoclaveError):
    """A dependency's waiting line is full; nothing was queued."""

    exit_code = 3


class NotLearnable(AutoclaveError):
    """A batch from which the learner cannot make a step: its numbers are not finite. The weights stay as they were."""

    exit_code = 4


class RolloutStopped(AutoclaveError):
    """The run ended before its end: nothing moved, contamination above the alarm limit, or the trainer gave up."""

    exit_code = 1


class RecordTorn(AutoclaveError):
    """A journal holds a line that is neither a record nor a torn last line."""

    exit_code = 4
