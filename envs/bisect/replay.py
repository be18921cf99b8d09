"""Doing recorded actions again in fresh namespaces, with the resets that followed them and a deep check after that."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from envs import browser, destructive
from envs.bisect.search import Plan, Segment, Sought
from envs.trial import Trial
from sandbox.actions import ActionKind, RecordedAction
from sandbox.errors import AutoclaveError, InstanceLost, LimitReached
from sandbox.model import DestructiveAction, ResetMethod
from sandbox.pages import Pages, browser_of
from sandbox.pool.members import StartState
from sandbox.ports import Environment, Instance, Runtime

Say = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class Account:
    """What the replays took, and where they did not go as recorded (by trajectory and action, the first time)."""

    namespaces: int = 0
    resets: int = 0
    actions: int = 0
    diverged: dict[tuple[str, int], str] = field(default_factory=dict)
    failed_resets: list[str] = field(default_factory=list)
    in_force: Mapping[str, Any] = field(default_factory=dict)  # of the instances


class Replayer:
    """Implements `envs.bisect.search.Judge`, for a check that followed a reset by the environment's own method. `start` gives the
    start state of a task, and golden for the empty name."""

    def __init__(
        self,
        environment: Environment,
        runtime: Runtime,
        start: Callable[[str], Awaitable[StartState]],
        pages: Pages,
        *,
        say: Say = lambda _: None,
    ) -> None:
        self._environment = environment
        self._own = (environment.spec.reset.method,)
        self._runtime = runtime
        self._start = start
        self._pages = pages
        self._say = say
        self.account = Account()

    async def first(self, plan: Plan, sought: Sought) -> tuple[int, frozenset[str]] | None:
        return await self._replay(plan, sought, every=True)

    async def hits(self, plan: Plan, sought: Sought) -> frozenset[str]:
        found = await self._replay(plan or [Segment(trajectory="", actions=())], sought, every=False)
        return frozenset() if found is None else found[1]

    async def alone(self, action: DestructiveAction, task: str, sought: Sought) -> tuple[str | None, frozenset[str]]:
        """Do one catalogue entry in a fresh namespace, reset and look; return why it could not be done, and what differs."""
        async with Trial.open(self._environment, self._runtime, await self._start(task)) as trial:
            self.account.namespaces += 1
            refused = await destructive.act(trial.instance, action)
            browsed = action.browser is not None
            return refused, await self._reset(trial, action.name, self._own, sought, look=True, browsed=browsed)

    async def _replay(self, plan: Plan, sought: Sought, *, every: bool) -> tuple[int, frozenset[str]] | None:
        """In one namespace; another one follows where the start state is another."""
        trial: Trial | None = None
        task = ""
        async with AsyncExitStack() as stack:
            for number, segment in enumerate(plan):
                if trial is None or segment.task != task:
                    await stack.aclose()
                    task = segment.task
                    trial = await stack.enter_async_context(Trial.open(self._environment, self._runtime, await self._start(task)))
                    self.account.namespaces += 1
                    self.account.in_force = dict(trial.instance.in_force)
                if every:
                    self._say(f"replaying trajectory {number + 1} of {len(plan)}: {segment.trajectory}")
                resets = segment.resets or self._own
                look = number == len(plan) - 1 or (every and resets[-1:] == self._own)
                if await self._act(trial.instance, segment, whole=every):
                    browsed = any(action.page is not None for action in segment.actions)
                    differs = await self._reset(trial, segment.trajectory, resets, sought, look=look, browsed=browsed)
                else:  # the instance was lost, which a pool restores
                    differs = frozenset()
                    await trial.renew()
                if differs:
                    return number, differs
        return None

    async def _act(self, instance: Instance, segment: Segment, *, whole: bool) -> bool:
        """Do what was recorded, in its order; False where the instance was lost on the way. Where some of it is left out on purpose
        (not `whole`), it is no wonder that the rest goes otherwise."""
        try:
            return await self._act_all(instance, segment, whole=whole)
        finally:
            await self._pages.forget(segment.trajectory)

    async def _act_all(self, instance: Instance, segment: Segment, *, whole: bool) -> bool:
        for action in segment.actions:
            self.account.actions += 1
            try:
                said = await self._once(instance, segment.trajectory, action)
            except (LimitReached, ValueError) as error:  # a bound of the agent's world, or no command: the session met it as well
                said = "" if action.error else str(error).splitlines()[0]
            except InstanceLost:
                if whole and action.error != InstanceLost.__name__:
                    said = "it ended the instance, and did not when it was recorded"
                    self.account.diverged.setdefault((segment.trajectory, action.number), said)
                return False
            if said and whole:
                self.account.diverged.setdefault((segment.trajectory, action.number), said)
        return True

    async def _once(self, instance: Instance, trajectory: str, action: RecordedAction) -> str:
        """Return how it went otherwise than recorded, empty where it did not."""
        if action.kind is ActionKind.SCORE:
            await self._pages.forget(trajectory, comes_back=True)  # it ends with this, and Playwright would hear of that too late
            await instance.quiesce()
        elif action.kind is ActionKind.WRITE_FILE:
            try:
                await instance.write_file(action.path, action.data, mode=action.mode)
            except OSError as error:
                return "" if action.error else f"it could not be written: {error.strerror or error}"
            if action.error:
                return f"it was written, and ended with {action.error} when it was recorded"
        elif action.page is not None:
            _, address = browser_of(instance, self._environment.spec, action.resource)
            seen = await self._pages.act(trajectory, address, replace(action.page, data=action.data))
            if action.error:
                return f"it was done, and ended with {action.error} when it was recorded"
            if seen.ok != (action.exit_code == 0):
                said = seen.text.partition("\n")[0]
                return "the page took it, and refused it when it was recorded" if seen.ok else f"the page refuses it: {said}"
        elif action.kind is ActionKind.RUN:
            limit = action.limit_s or self._environment.spec.limits.action_s
            sent = {"stdin": action.stdin, "env": action.env, "cwd": action.cwd}
            done = await instance.run(action.argv, **sent, limit_s=limit)  # type: ignore[arg-type]
            if action.error:
                return f"it ended with {done.exit_code}, and was cut short ({action.error}) when it was recorded"
            if action.exit_code not in (None, done.exit_code):
                return f"it ended with {done.exit_code}, and with {action.exit_code} when it was recorded"
        return ""

    async def _reset(
        self, trial: Trial, what: str, methods: Sequence[ResetMethod], sought: Sought, *, look: bool, browsed: bool
    ) -> frozenset[str]:
        try:
            for method in methods:
                self.account.resets += 1
                await trial.reset(method)
        except (AutoclaveError, OSError, TimeoutError) as error:  # a pool answers it with a stronger method
            said = f"after {what}: {' '.join(str(error).split())[:200]}"
            if said not in self.account.failed_resets:
                self.account.failed_resets.append(said)
            await trial.renew()
            return frozenset()
        if not look:
            return frozenset()
        differs = await self._look(trial, what, sought)
        if not differs and browsed and not methods[-1].replaces:
            await asyncio.sleep(browser.SETTLED_S)
            differs = await self._look(trial, what, sought)
        return differs

    async def _look(self, trial: Trial, what: str, sought: Sought) -> frozenset[str]:
        verdict = await trial.look(quiesce=False)
        differs = sought.among(f"{m.probe}/{m.field}" for m in verdict.mismatches)
        if verdict.problems and not differs:  # no answer is not a no
            told = "; ".join(f"{p.probe}: {p.reason}" for p in verdict.problems)
            raise AutoclaveError(
                f"the check after replaying {what} gave no answer ({told})", fix="run it again on a quieter machine"
            )
        return differs
