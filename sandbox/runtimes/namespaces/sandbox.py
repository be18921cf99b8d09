"""One bubblewrap sandbox: planned, started, watched, looked into from outside, killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Self

from sandbox import binaries
from sandbox.aio import in_thread, poll, run_shielded
from sandbox.errors import InstanceLost
from sandbox.model import ProcessInfo
from sandbox.ports import Listener
from sandbox.runtimes import observe
from sandbox.runtimes.channel import starter
from sandbox.runtimes.channel.channel import Channel
from sandbox.runtimes.group.box import SandboxPlan, scratch
from sandbox.runtimes.namespaces import bwrap, limits, profile, rootfs, seccomp
from sandbox.runtimes.namespaces.birth import birthplace
from sandbox.runtimes.namespaces.child import Child, Output, launch
from sandbox.runtimes.namespaces.spawner import spawner
from sandbox.settings import Settings

SHUT_S = 5.0  # the init greets, and then shuts itself to others
_FULLY_CHECKED: set[tuple[Settings, str]] = set()  # roots whose inside has tried to leave, and could not


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """What can be made ready off the event loop."""

    bwrap: binaries.Bubblewrap
    starter: starter.Starter | None
    groups: limits.Groups
    group: limits.Group
    arguments: list[str]


def _prepare(plan: SandboxPlan, settings: Settings, made: list[limits.Group]) -> _Prepared:
    program = binaries.bubblewrap(settings)
    first = starter.starter(settings, plan.root) if plan.argv is None else None
    mounts = rootfs.placed(plan.root, (*plan.mounts, first.mount) if first else plan.mounts)
    root = rootfs.arguments(
        settings,
        plan.root,
        uid=plan.uid,
        gid=plan.gid,
        home=plan.home,
        hostname=plan.hostname,
        targets=tuple(m.target for m in mounts),
    )
    arguments = [
        *bwrap.confinement(uid=plan.uid, gid=plan.gid, hostname=plan.hostname, first_process=first is not None),
        *bwrap.filesystem(root, mounts, plan.limits),
        # The init gets an empty environment: what is set for commands must not reach into it (LD_PRELOAD).
        *bwrap.environment({} if first else plan.environment()),
        *("--chdir", plan.workdir),
    ]
    groups = limits.detected(settings)
    group = groups.make(f"{plan.name}.{uuid.uuid4().hex[:8]}".replace("/", "_"), plan.limits)
    made.append(group)
    return _Prepared(bwrap=program, starter=first, groups=groups, group=group, arguments=arguments)


class Sandbox:
    """A running sandbox. `async with await Sandbox.start(plan, settings) as sandbox:`, or `start` and `kill`."""

    def __init__(self, plan: SandboxPlan, settings: Settings, ready: _Prepared, child: Child, output: Output) -> None:
        self.plan, self._settings = plan, settings
        self._ready, self._child, self._output = ready, child, output
        self._channel: Channel | None = None
        self.pid = 0  # host pid of the namespace's first process
        self.main_pid = 0  # host pid of the server; of the init where there is a channel
        self._first = self._main = -1  # pidfds
        self._killing: asyncio.Task[None] | None = None
        self.in_force: Mapping[str, Any] = {}

    @classmethod
    async def start(cls, plan: SandboxPlan, settings: Settings, *, timeout: float = 20.0) -> Sandbox:
        """Start it and check its profile; with a channel, return when that answers, else when the program is being executed.
        Raises RuntimeUnavailable (the machine lacks something, or the sandbox is not as claimed) or InstanceLost (it ended while
        starting; the message carries bubblewrap's)."""
        made: list[limits.Group] = []  # known here even when this is cancelled while the thread works
        try:
            ready = await in_thread(_prepare, plan, settings, made)
            sandbox, info, near = await _spawn(plan, settings, ready)
        except BaseException:
            for group in made:
                await in_thread(group.remove, timeout=1.0)
            raise
        try:
            async with asyncio.timeout(timeout):
                await sandbox._come_up(info, near)
        except BaseException as error:
            if near is not None and sandbox._channel is None:
                near.close()
            await run_shielded(sandbox.kill())
            if isinstance(error, TimeoutError):
                raise sandbox._lost(f"it was not up within {timeout:g} s") from error
            raise
        finally:
            os.close(info)
        return sandbox

    async def _come_up(self, info: int, near: socket.socket | None) -> None:
        if near is not None:
            self._channel = await Channel.open(
                near, self.plan.name, limits=self.plan.limits, env=self.plan.environment(), workdir=self.plan.workdir
            )
        self.pid = await self._child_pid(info)
        with contextlib.suppress(ProcessLookupError):
            self._first = os.pidfd_open(self.pid)
        if self._channel is None:
            status = await self._confined()
        else:
            self.main_pid = self.pid
            try:
                await self._channel.hello()
            except InstanceLost:
                await self._child.ended.wait()
                raise self._lost("it ended while starting") from None
            status = observe.fields(self.pid)
        try:
            self._main = os.pidfd_open(self.main_pid)
            await self._check(status)
        except (FileNotFoundError, ProcessLookupError):
            await self._child.ended.wait()
            raise self._lost("it ended while starting") from None

    async def _child_pid(self, info: int) -> int:
        """Wait for what bubblewrap writes once the namespaces exist."""
        text = b""
        while not text.rstrip().endswith(b"}"):
            await _readable(info)
            piece = os.read(info, 4096)
            if not piece:
                await self._child.ended.wait()
                raise self._lost("bubblewrap could not start it")
            text += piece
        return int(json.loads(text)["child-pid"])

    async def _confined(self) -> dict[str, str]:
        """Wait until the server's own program is being executed, under the filter."""
        interval = 0.002  # about what bubblewrap needs at least; each look costs as much as half of that
        while not self._child.ended.is_set():
            for member in observe.members(self.pid, self._ready.group.pids()):
                status = observe.fields(member.host)
                if member.inside == 2 and status.get("Seccomp") == "2" and observe.is_another(member.host):
                    self.main_pid = member.host
                    return status
            await asyncio.sleep(interval)
            interval = min(interval * 1.5, 0.02)
        raise self._lost("it ended while starting")

    async def _check(self, status: dict[str, str]) -> None:
        plan, host_uid = self.plan, self._settings.users.of(self.plan.role)
        owner = os.geteuid() if host_uid is None else host_uid
        groups = () if os.geteuid() == 0 else os.getgroups()
        profile.check_process(status, host_uid=owner, who=plan.name, groups=groups)
        targets = rootfs.TARGETS | {starter.INSIDE, *(m.target.rstrip("/") for m in rootfs.placed(plan.root, plan.mounts))}
        profile.check_namespace(self.pid, targets=targets, inside_uid=plan.uid, host_uid=owner, who=plan.name)
        if "pids" not in self._ready.groups.bases and limits.forks_can_be_bounded():
            for pid in {self.pid, self.main_pid}:
                await spawner(host_uid).call(partial(limits.bound_forks, pid, plan.limits))
        if self._channel is not None and not await poll(partial(_shut, self.pid, owner), timeout=SHUT_S):
            profile.refuse(["others of its user may look into its init"], plan.name)
        if self._channel is not None and (self._settings, plan.root) not in _FULLY_CHECKED:
            profile.check_facts(await self._channel.facts(), plan.name)
            _FULLY_CHECKED.add((self._settings, plan.root))
        tmp_mb, shm_mb = scratch(plan.limits)
        self.in_force = {
            "sandbox": f"bubblewrap {self._ready.bwrap.version}",
            "uid": owner,
            "inner_uid": plan.uid,
            **({"groups": f"the manager's own: {', '.join(map(str, groups))}"} if set(groups) - {os.getegid()} else {}),
            "capabilities": "none",
            "no_new_privileges": True,
            "seccomp": f"deny list of {len(seccomp.DENIED)} calls ({os.uname().machine})",
            "network": "none",
            "root": "host's system directories, read-only" if plan.root == "host" else "unpacked image, read-only",
            "scratch": f"/tmp {tmp_mb} MiB, /dev/shm {shm_mb} MiB (memory)",
            **limits.in_force(self._ready.groups, plan.limits),
        }
        if self._ready.starter is not None:
            self.in_force = {**self.in_force, "init": self._ready.starter.label}

    @property
    def channel(self) -> Channel:
        """The command channel; raises InstanceLost where the plan has argv."""
        if self._channel is None:
            raise InstanceLost(f"{self.plan.name} is a server and takes no commands", fix="run commands in the agent's sandbox")
        return self._channel

    @property
    def exit_code(self) -> int | None:
        """The main process's exit code once it has ended (128 + n for a death by signal n)."""
        return self._child.exit_code

    def alive(self) -> bool:
        return not self._child.ended.is_set() and self._killing is None and (self._channel is None or self._channel.dead is None)

    def signal(self, number: int) -> None:
        """Signal the main process. No error when it has ended."""
        if self._main >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._main, number)

    async def wait(self, timeout: float) -> bool:
        """Wait until it has ended; False when it still runs after `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._child.ended.wait()
        except TimeoutError:
            return False
        return True

    async def kill(self, *, timeout: float = 10.0) -> None:
        """Kill the namespace's first process and wait until bubblewrap has ended: by then the kernel has reaped every process of
        the namespace. Removes the control group. Idempotent; raises InstanceLost when something inside cannot be killed."""
        if self._killing is None:
            self._killing = asyncio.ensure_future(self._kill(timeout))
        await run_shielded(_settled(self._killing))

    async def _kill(self, timeout: float) -> None:
        if self._first >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
        else:
            await self._kill_unborn()
        try:
            if not await self.wait(timeout):
                raise self._lost(f"it could not be killed within {timeout:g} s")
        finally:
            self._output.drain()
            self._output.close()
            if self._channel is not None:
                self._channel.fail("the sandbox was ended")
            for fd in (self._first, self._main):
                if fd >= 0:
                    os.close(fd)
            self._first = self._main = -1
            await in_thread(self._ready.group.remove, timeout=2.0)

    async def _kill_unborn(self) -> None:
        """Kill bubblewrap before it has told its child's pid. Alone it would leave that child waiting for it for ever."""
        self._child.signal(signal.SIGSTOP)
        born = await in_thread(observe.children, self._child.pid)
        for pid in born:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._child.signal(signal.SIGKILL)

    async def processes(self) -> tuple[ProcessInfo, ...]:
        """Every process inside, read from the host's /proc by PID namespace."""
        return await in_thread(observe.processes, self.pid, self.plan.role, self.plan.resource, self._ready.group.pids())

    async def listeners(self) -> tuple[Listener, ...]:
        """Every socket of its network namespace."""
        return await in_thread(observe.listeners, self._living_pid(), self.plan.role, self.plan.resource)

    async def mounts(self) -> tuple[str, ...]:
        """Its mount table: `target type options`."""
        return await in_thread(observe.mounts, self._living_pid())

    def _living_pid(self) -> int:
        if self._child.ended.is_set():
            raise self._lost("it has ended")
        return self.pid

    def oom_kills(self) -> int | None:
        """How often the kernel killed inside for memory; None where nobody counts."""
        return self._ready.group.oom_kills()

    def memory_peak(self) -> int | None:
        """The most bytes that were in use inside at once; None where nobody counts."""
        return self._ready.group.memory_peak()

    def log_tail(self, limit: int = 4000) -> bytes:
        """The end of what bubblewrap and a server wrote to stdout and stderr."""
        return self._output.tail(limit)

    def _lost(self, what: str) -> InstanceLost:
        self._output.drain()
        said = self.log_tail(800).decode("utf-8", "replace").strip()
        killed = self.oom_kills()
        why = f" ({killed} killed for memory, limit {self.plan.limits.memory_mb} MiB)" if killed else ""
        return InstanceLost(f"sandbox {self.plan.name}: {what}{why}{f': {said}' if said else ''}", fix="ask for a new session")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.kill()


async def _spawn(plan: SandboxPlan, settings: Settings, ready: _Prepared) -> tuple[Sandbox, int, socket.socket | None]:
    """Start bubblewrap inside its bounds. It reads its arguments from a pipe first, and where it cannot be born inside, it is moved
    there while it waits for them, so that nothing of the sandbox ever runs outside."""
    command = ready.starter.argv if ready.starter else (plan.argv or ())
    thread = spawner(settings.users.of(plan.role))
    bounds = limits.resource_limits(plan.limits, ready.groups)
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        near, far = (None, None) if ready.starter is None else socket.socketpair()
        if near is not None and far is not None:
            ours.callback(near.close)
            theirs.callback(far.close)
        (args_in, args_out), (info_in, info_out), (said_in, said_out) = os.pipe(), os.pipe(), os.pipe()
        filter_fd = seccomp.open_program()
        for fd in (args_in, info_out, said_out, filter_fd, args_out):
            theirs.callback(os.close, fd)
        for fd in (info_in, said_in):
            ours.callback(os.close, fd)
        arguments = ["--seccomp", str(filter_fd), "--info-fd", str(info_out), *ready.arguments]  # what confines comes first
        argv = [str(ready.bwrap.path), "--unsetenv", f"{label(settings)}{plan.name}", "--args", str(args_in), "--", *command]

        started: list[subprocess.Popen[bytes]] = []

        place = birthplace(ready.group)
        if place is not None:
            theirs.callback(place.close)

        def begin() -> None:
            with place.entered() if place is not None else contextlib.nullcontext():
                started.append(launch(argv, channel=far, output=said_out, pass_fds=(args_in, info_out, filter_fd)))
            limits.bound_process(started[0].pid, bounds)

        try:
            await thread.call(begin)
        except BaseException:
            for process in started:
                process.kill()  # it has no arguments yet, and so no child
                process.wait()
            raise
        child = Child(started[0])
        try:
            if place is None:
                await in_thread(ready.group.add, child.pid)
            _write_all(args_out, bwrap.encode(arguments))
            output = Output(said_in, plan.log, plan.log_bytes)
        except BaseException:
            child.signal(signal.SIGKILL)
            raise
        os.set_blocking(info_in, False)
        ours.pop_all()
        return Sandbox(plan, settings, ready, child, output), info_in, near


def label(settings: Settings) -> str:
    """How the command line of every bubblewrap of this home begins, after `--unsetenv`: see `leftovers`."""
    return f"autoclave:{limits.tag(settings)}:"


def _write_all(fd: int, data: bytes) -> None:
    """The pipe holds 64 KiB and bubblewrap reads it at once, so this does not wait for anybody."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(fd)


async def _shut(pid: int, owner: int) -> bool:
    return not observe.is_dumpable(pid, owner)


async def _settled(task: asyncio.Task[None]) -> None:
    await asyncio.shield(task)
