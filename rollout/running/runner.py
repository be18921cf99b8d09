"""Runs one trajectory: a session, turns, a score while the lease is still held, a record. One trajectory's fault ends it alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from rollout.admission.budgets import Budget, Spend
from rollout.admission.limits import JUDGE, MODEL, SESSION, Limits
from rollout.admission.remaining import Remaining
from rollout.classify import Signs, classify, unanswered
from rollout.deadline import deadline
from rollout.engines.engine import ABORT, LENGTH, Completion, Engine, Request, check_ids
from rollout.errors import EngineLost, RequestInvalid, Saturated
from rollout.judging import Judge, by_task
from rollout.policies.policy import Calls, Final, Malformed, Policy
from rollout.record import Action, Trajectory
from rollout.running.board import Board, Phase
from rollout.running.draft import Draft, Ticket
from rollout.running.tooling import Tooling
from rollout.terms import Failure, Termination
from sandbox.errors import AutoclaveError, EnvironmentInvalid, InstanceLost, PoolBroken, PoolBusy, SessionExpired, StaleGeneration
from sandbox.model import Score
from sandbox.ports import Clock

log = logging.getLogger(__name__)
Reward = Callable[[Score, Draft], float | None]
Leave = Callable[[Any, Draft], Awaitable[None]]  # plants a leak in a session; for `--contaminate`


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Called once, after `turn` turns, with the live session and what was said so far: where a group's members fork."""

    turn: int
    fork: Callable[[Any, Draft], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Of one trajectory. Seconds and tokens; every wait has one."""

    turns: int = 16
    answer_tokens: int = 1024
    total_tokens: int = 16_384
    trajectory_s: float = 900.0  # for the turns, time in lines apart; twice that with it
    turn_s: float = 900.0  # that the lease lasts on for a turn that was begun before its time was over
    generate_s: float = 300.0
    score_s: float = 120.0
    session_wait_s: float = 300.0  # boot and verification included
    release_s: float = 120.0
    tool_grace_s: float = 15.0  # above the tool's own limit


def as_scored(score: Score, _: Draft) -> float | None:
    """The task's own reward."""
    return score.reward


def shaped(score: Score, draft: Draft) -> float | None:
    """The task's reward, and up to a tenth for answers that could be read and actions that worked."""
    if score.reward is None or not draft.actions:
        return score.reward
    good = sum(not a.malformed and a.ok for a in draft.actions) / len(draft.actions)
    return 0.9 * score.reward + 0.1 * good


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What all trajectories of a run share."""

    pool: Any  # sandbox.Pool or sandbox.RemotePool
    engine: Engine
    policy: Policy
    tooling: Tooling
    limits: Limits
    board: Board
    clock: Clock
    bounds: Bounds = field(default_factory=Bounds)
    signs: Signs = field(default_factory=Signs)
    reward: Reward = as_scored
    temperature: float = 1.0
    leave: Leave | None = None
    judge: Judge = by_task
    memory: bool = False  # read how much memory each environment took
    remaining: Remaining = field(default_factory=Remaining)


class Runner:
    """Makes records. `run` raises nothing but cancellation."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def run(self, ticket: Ticket, budget: Budget, *, branch: Branch | None = None) -> Trajectory:
        """Run one trajectory in a session of its own."""
        draft = Draft(ticket=ticket, clock=self._parts.clock, budget=budget)
        await self._guarded(draft, self._in_own_session(draft, branch))
        record = draft.freeze()
        self._parts.remaining.saw(record)
        return record

    async def run_fork(self, ticket: Ticket, budget: Budget, *, session: Any, parent: Draft) -> Trajectory:
        """Go on from where `parent` stood, in a session that was forked from its state. Ends the session."""
        draft = Draft(ticket=ticket, clock=self._parts.clock, budget=budget)
        draft.take_prefix(parent)
        await self._guarded(draft, self._in_fork(session, draft))
        return draft.freeze()

    async def _in_fork(self, session: Any, draft: Draft) -> None:
        async with self.holding(session, draft):
            await self.play(session, draft)

    async def _guarded(self, draft: Draft, work: Awaitable[None]) -> None:
        """The boundary: whatever one trajectory ran into ends that trajectory, with its reason."""
        try:
            await work
        except (InstanceLost, StaleGeneration, SessionExpired) as error:
            draft.end(Termination.ENVIRONMENT_LOST, str(error))
        except (PoolBusy, PoolBroken) as error:
            draft.end(Termination.NO_SESSION, str(error))
        except EngineLost as error:
            draft.end(Termination.ENGINE, str(error))
        except (RequestInvalid, EnvironmentInvalid) as error:
            draft.end(Termination.DATA, str(error))
        except Saturated as error:
            draft.end(Termination.SATURATED, str(error))
        except TimeoutError as error:
            draft.end(Termination.SATURATED, f"no place in time: {error}")
        except AutoclaveError as error:
            draft.end(Termination.ENVIRONMENT_LOST, f"{type(error).__name__}: {error}")
        except Exception as error:
            log.warning("a trajectory failed", exc_info=True, extra={"event": "rollout.fault", "trajectory": draft.id})
            draft.end(Termination.FAULT, f"{type(error).__name__}: {error}")

    async def _in_own_session(self, draft: Draft, branch: Branch | None) -> None:
        ticket, parts = draft.ticket, self._parts
        bounds = parts.bounds
        parts.board.enter(ticket.id, Phase.SESSION)
        async with parts.limits.hold(SESSION, ticket.id, priority=ticket.priority) as place:
            draft.session_queue_s = place.queue_s
            began = parts.clock.monotonic()
            ttl = 2 * bounds.trajectory_s + bounds.turn_s + bounds.score_s + bounds.release_s + 60
            session = await parts.pool.acquire(
                ticket.environment,
                task=ticket.task.id,
                wait=bounds.session_wait_s,
                ttl=ttl,
                priority=ticket.priority,
                trajectory=ticket.id,
                group=ticket.group,
            )
            draft.creation_s = parts.clock.monotonic() - began
            async with self.holding(session, draft):
                await self.play(session, draft, branch)

    @asynccontextmanager
    async def holding(self, session: Any, draft: Draft) -> AsyncIterator[None]:
        """Hold the session, and time its ending."""
        draft.lease, draft.in_force = session.lease, session.in_force
        try:
            yield
        except asyncio.CancelledError as cancelled:
            try:
                await self._end(session, draft)
            except AutoclaveError as error:  # it must not hide that this was cancelled
                raise cancelled from error
            raise
        except BaseException:
            await self._end(session, draft)
            raise
        else:
            await self._end(session, draft)

    async def _end(self, session: Any, draft: Draft) -> None:
        self._parts.board.enter(draft.id, Phase.TEARDOWN)
        began, draft.teardown_at = self._parts.clock.monotonic(), draft.now
        try:
            async with deadline(self._parts.clock, self._parts.bounds.release_s):
                await session.release()
        except TimeoutError as error:
            raise InstanceLost(f"the session did not end within {self._parts.bounds.release_s:g} s (release_s)") from error
        draft.teardown_s = self._parts.clock.monotonic() - began

    async def play(self, session: Any, draft: Draft, branch: Branch | None = None) -> None:
        """Take turns until one ends it, then score. What ends the turns never reaches the score: that has its own bounds."""
        if not draft.tokens:
            draft.prompt(self._parts.policy.first(draft.ticket.task, self._parts.tooling.specs))
        await self._guarded(draft, self._turns(session, draft, branch))
        if draft.failure.has_reward and (lost := unanswered(draft.actions)) is not None:
            draft.end(
                Termination.DEAD_TOOL, f"it ended ({draft.termination}) after an act without an answer of {lost.tool}: {lost.error}"
            )
        if self._parts.memory:
            draft.memory_peak_mb = await self._memory(session)
        if self._parts.leave is not None and draft.failure.has_reward:
            await self._parts.leave(session, draft)
        if draft.failure.has_reward:
            await self._score(session, draft)

    async def _turns(self, session: Any, draft: Draft, branch: Branch | None) -> None:
        """Its time is looked at between turns: within one, each wait has its own deadline, and says itself whose matter it is."""
        bounds, began, forked_s = self._parts.bounds, draft.now, 0.0
        while len(draft.turns) < bounds.turns:
            if branch is not None and len(draft.turns) == branch.turn:
                at = draft.now
                await branch.fork(session, draft)
                forked_s += draft.now - at
            spent = draft.now - began - forked_s
            if spent - draft.in_line_s >= bounds.trajectory_s:
                draft.end(Termination.TIME_LIMIT, f"{bounds.trajectory_s:g} s")
                return
            if spent >= 2 * bounds.trajectory_s:
                draft.end(Termination.SATURATED, f"{draft.in_line_s:.0f} of its {spent:.0f} s were spent in line")
                return
            if await self._turn(session, draft):
                return
        draft.end(Termination.TURN_LIMIT, f"{bounds.turns} turns")

    async def _turn(self, session: Any, draft: Draft) -> bool:
        """One answer and what it asks for; True when the trajectory is over."""
        parts = self._parts
        room = parts.bounds.total_tokens - len(draft.tokens)
        if room < 1:
            draft.end(Termination.TOKEN_LIMIT, f"{parts.bounds.total_tokens} tokens")
            return True
        completion = await self._generate(draft, min(room, parts.bounds.answer_tokens))
        answer = parts.policy.read(completion.ids, parts.tooling.specs)
        cut = completion.finish == LENGTH
        if isinstance(answer, Final):
            draft.end(Termination.TOKEN_LIMIT if cut else Termination.FINAL, "the last answer was cut" if cut else "")
            return True
        if isinstance(answer, Malformed):
            return self._malformed(draft, completion, answer.why + (" (it was cut at the token limit)" if cut else ""))
        return await self._act(session, draft, completion, answer)

    async def _generate(self, draft: Draft, most: int) -> Completion:
        """Hold a model slot for this, and for nothing else."""
        parts, ticket = self._parts, draft.ticket
        priority = parts.remaining.priority(ticket.task.family, turns=len(draft.turns), spent_s=draft.now)
        request = Request(
            ids=tuple(draft.tokens),
            session=draft.id,
            max_tokens=most,
            temperature=parts.temperature,
            stop_ids=parts.policy.stop_ids,
            seed=None if ticket.seed is None else ticket.seed + len(draft.turns),
            priority=priority,
            labels={
                "task": ticket.task.id,
                "member": str(ticket.member),
                "turn": str(len(draft.turns)),
                "attempt": str(ticket.attempt),
            },
        )
        check_ids(request.ids, parts.engine.vocab_size)
        at = draft.now
        parts.board.enter(draft.id, Phase.MODEL)
        async with parts.limits.hold(MODEL, draft.id, priority=priority) as place:
            try:
                async with deadline(parts.clock, parts.bounds.generate_s) as scope:
                    completion = await parts.engine.generate(request)
            except TimeoutError as error:
                if not scope.expired():
                    raise
                raise EngineLost(f"no answer within {parts.bounds.generate_s:g} s (generate_s)") from error
        if completion.finish == ABORT:
            raise EngineLost("the engine aborted the request")
        try:
            versions = completion.version_of_each()
        except ValueError as error:
            raise EngineLost(f"the engine's answer does not fit together: {error}") from error
        draft.answer(completion, versions, queue_s=place.queue_s, at=at)
        return completion

    def _malformed(self, draft: Draft, completion: Completion, why: str) -> bool:
        """Tell the model, as another try of its own: the exploration budget pays."""
        began, at = self._parts.clock.monotonic(), draft.now
        draft.prompt(self._parts.policy.observe(completion.ids, [("error", why)]))
        spent = self._parts.clock.monotonic() - began
        turn = len(draft.turns) - 1
        draft.actions.append(Action(turn=turn, tool="", malformed=True, ok=False, error=why, observation_s=spent, at=at))
        if (ended := classify(draft.actions, self._parts.signs)) is not None:
            draft.end(*ended)
            return True
        if not draft.budget.spend(Spend.EXPLORE):
            draft.end(Termination.MALFORMED, f"the exploration budget is spent: {why}")
            return True
        return False

    async def _act(self, session: Any, draft: Draft, completion: Completion, answer: Calls) -> bool:
        parts = self._parts
        results: list[tuple[str, str]] = []
        began = parts.clock.monotonic()
        with parts.board.within(draft.id, Phase.TOOL, answer.calls[0].tool):
            async with parts.limits.tool_wait(draft.id):
                for call in answer.calls:
                    action, text = await parts.tooling.act(session, call, draft)
                    draft.actions.append(action)
                    results.append((call.tool, text))
                    if (ended := classify(draft.actions, parts.signs)) is not None:
                        draft.end(*ended)
                        break
        draft.tool_wait_s += parts.clock.monotonic() - began
        if draft.termination is not Termination.FINAL:
            return True
        began = parts.clock.monotonic()
        draft.prompt(parts.policy.observe(completion.ids, results))
        draft.actions[-1] = parts.tooling.observed(draft.actions[-1], parts.clock.monotonic() - began)
        return False

    async def _memory(self, session: Any) -> float | None:
        """The environment's peak so far, in MiB; None where nobody counts, or where it was lost."""
        try:
            peak = await session.memory_peak()
        except AutoclaveError:
            return None
        return None if peak is None else round(peak / 2**20, 1)

    async def _score(self, session: Any, draft: Draft) -> None:
        """Judge from outside, with the lease still held. What the machine could not do is no reward, never a zero."""
        parts = self._parts
        began, draft.score_at = parts.clock.monotonic(), draft.now
        try:
            with parts.board.within(draft.id, Phase.JUDGE):
                async with parts.limits.hold(JUDGE, draft.id) as place:
                    draft.score_queue_s = place.queue_s
                    async with deadline(parts.clock, parts.bounds.score_s):
                        verdict = await parts.judge(session, draft)
                        score, draft.judge_tokens, draft.judge_agrees = verdict.score, verdict.prompt_tokens, verdict.agrees
        except (AutoclaveError, TimeoutError) as error:
            why = f"no verdict within {parts.bounds.score_s:g} s" if isinstance(error, TimeoutError) else str(error)
            score = Score(reward=None, success=False, detail=why)
        draft.judged(score, parts.reward(score, draft), parts.clock.monotonic() - began - draft.score_queue_s)
        if score.reward is None:
            draft.end(draft.termination, f"the judge gave no verdict: {score.detail}", failure=Failure.INFRA)
