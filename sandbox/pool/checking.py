"""One check: a verdict of the environment's verifier, with everything that follows from it recorded in one transaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from sandbox.lifecycle import Event, State, after
from sandbox.model import Baseline, CheckOutcome, Depth, Mismatch, Problem, TrajectoryId, Verdict, VerdictStatus
from sandbox.pool.hosts import Host
from sandbox.pool.members import Namespace, Ports
from sandbox.ports import Environment, Subject

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A verdict and what recording it changed."""

    verdict: Verdict
    outcome: CheckOutcome

    @property
    def clean(self) -> bool:
        return self.verdict.clean


class Checker:
    """Judges a namespace in state VERIFYING and moves it on."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self.on_failed_instance: Callable[[Host, str], None] = lambda host, why: None
        self.on_doubted_instance: Callable[[Host, str], None] = lambda host, why: None

    async def check(self, namespace: Namespace, depth: Depth, *, purpose: str) -> Checked:
        """Check and record. Afterwards the namespace is READY (RESETTING for a closing check) or QUARANTINED."""
        verdict = await self.judge(namespace, depth)
        outcome = await self._ports.ledger.record_check(
            namespace.id,
            verdict,
            generation=namespace.generation,
            window=namespace.environment.spec.check.window,
            purpose=purpose,
        )
        self._note(namespace, verdict, outcome, closing=purpose == "closing")
        namespace.environment.judged(outcome)
        if outcome.instance is not None and namespace.host is not None:
            self.on_failed_instance(namespace.host, f"check {outcome.check} of namespace {namespace.id} found it changed")
        if verdict.clean and purpose == "reset":
            namespace.resets_since_deep = 0 if depth is Depth.DEEP else namespace.resets_since_deep + 1
        if verdict.clean and depth is Depth.DEEP:
            namespace.resets_since_deep, namespace.deep_since, namespace.deep_wanted = 0, None, False
        return Checked(verdict=verdict, outcome=outcome)

    async def check_fork(self, namespace: Namespace, parent: TrajectoryId) -> Checked:
        """A fork's start check: its snapshot's proof and the live quick fields."""
        verdict = await self.judge(namespace, Depth.QUICK)
        outcome = await self._ports.ledger.fork_check(namespace.id, verdict, generation=namespace.generation, parent=parent)
        self._note(namespace, verdict, outcome, closing=False)
        return Checked(verdict=verdict, outcome=outcome)

    async def judge(self, namespace: Namespace, depth: Depth) -> Verdict:
        """Ask the verifier. It tries a probe that gave no answer once more itself; a verdict that is inconclusive stays so."""
        subject = namespace.live().subject()
        environment, baseline = namespace.environment.environment, namespace.start.baseline
        return await self.ask(environment, subject, baseline, depth)

    async def ask(self, environment: Environment, subject: Subject, baseline: Baseline, depth: Depth) -> Verdict:
        """Return the verifier's verdict on whatever subject, the physical proof included."""
        return _with_proof(await self._ask(environment, subject, baseline, depth), subject)

    async def _ask(self, environment: Environment, subject: Subject, baseline: Baseline, depth: Depth) -> Verdict:
        limit = self._ports.limits.check_s
        try:
            async with asyncio.timeout(limit):
                return await environment.verifier.check(subject, baseline, depth)
        except TimeoutError:
            reason = f"the check did not end within {limit:g} s (limits.check_s)"
        except Exception as error:
            log.exception("verifier raised", extra={"event": "pool.verifier_raised", "environment": environment.spec.name})
            reason = f"{type(error).__name__}: {error}"
        return Verdict(status=VerdictStatus.INCONCLUSIVE, depth=depth, problems=(Problem(probe="verifier", reason=reason),))

    def _note(self, namespace: Namespace, verdict: Verdict, outcome: CheckOutcome, *, closing: bool) -> None:
        if verdict.clean:
            state = State.RESETTING if closing else after(State.VERIFYING, Event.PASSED)
            namespace.checked = self._ports.clock.now()
        else:
            state = after(State.VERIFYING, Event.FAILED)
            log.warning(
                "check failed",
                extra={
                    "event": "pool.check_failed",
                    "namespace": namespace.id,
                    "check": outcome.check,
                    "status": verdict.status.value,
                    "mismatches": len(verdict.mismatches),
                    "quarantined": len(outcome.quarantined),
                },
            )
        namespace.record = replace(namespace.record, state=state, checked=namespace.checked, last_check=outcome.check)


def _with_proof(verdict: Verdict, subject: Subject) -> Verdict:
    """A clone that is not proven equal to its snapshot is a mismatch, whatever the probes read."""
    proof = subject.proof
    if proof is None or proof.holds or not verdict.clean:
        return verdict
    mismatch = Mismatch(
        probe="identity", field=proof.method, expected="equal to the sealed snapshot", actual=proof.detail or "differs"
    )
    return replace(verdict, status=VerdictStatus.MISMATCH, mismatches=(mismatch,))
