"""Memory instances: a world that is a dictionary of files and a list of processes, and what probes see of it."""

from __future__ import annotations

import fnmatch
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandbox.errors import InstanceLost, LimitReached
from sandbox.model import EnvironmentSpec, ExecResult, IdentityProof, NamespaceId, ProcessInfo, ResetMethod, Role, Snapshot
from sandbox.ports import Listener, Mount
from sandbox.testing.storage import MemoryClone, MemoryTree

if TYPE_CHECKING:
    from sandbox.testing.runtime import MemoryRuntime


class MemoryInstance:
    """One running copy. Agents say `set PATH TEXT`, `get PATH`, `rm PATH`, `spawn NAME`, `die`."""

    def __init__(
        self, runtime: MemoryRuntime, environment: EnvironmentSpec, snapshot: Snapshot, namespace: NamespaceId, generation: int
    ) -> None:
        self._runtime = runtime
        self.environment = environment
        self.snapshot = snapshot
        self.namespace = namespace
        self.generation = generation
        self.clone: MemoryClone | None = None
        self.processes: list[str] = []
        self.dead = False
        self.revoked = False
        self.in_place = False
        self.proof: IdentityProof | None = None

    @property
    def in_force(self) -> Mapping[str, Any]:
        return self._runtime.in_force

    @property
    def files(self) -> dict[str, str]:
        if self.clone is None:
            raise InstanceLost(f"{self.namespace} is closed")
        return self.clone.files

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        limit_s: float | None = None,
        output_bytes: int | None = None,
    ) -> ExecResult:
        if not argv or not argv[0]:
            raise ValueError("a command needs a program name")
        await self._acting("run")
        match list(argv):
            case ["set", path, text]:
                self.files[path] = text
            case ["get", path] if path in self.files:
                return ExecResult(exit_code=0, stdout=self.files[path].encode(), stderr=b"")
            case ["cat"]:
                return ExecResult(exit_code=0, stdout=stdin, stderr=b"")
            case ["rm", path] if path in self.files:
                del self.files[path]
            case ["spawn", name]:
                self.processes.append(name)
            case ["die"]:
                self.dead = True
                raise InstanceLost(f"the init of {self.namespace} ended")
            case _:
                return ExecResult(exit_code=127, stdout=b"", stderr=b"not found")
        return ExecResult(exit_code=0, stdout=b"", stderr=b"")

    async def read_file(self, path: str, *, limit_bytes: int = 16_000_000) -> bytes:
        await self._acting("run")
        if path not in self.files:
            raise FileNotFoundError(path)
        if len(data := self.files[path].encode("latin-1")) > limit_bytes:
            raise LimitReached(f"{path} is larger than {limit_bytes} bytes (limit_bytes)")
        return data

    async def write_file(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        await self._acting("run")
        self.files[path] = data.decode("latin-1")

    def endpoint(self, resource: str) -> str:
        return f"memory://{self.namespace}/{self.generation}/{resource}"

    async def quiesce(self) -> None:
        await self._acting("quiesce")
        self.processes.clear()

    async def revoke(self) -> None:
        self.revoked = True
        await self._runtime.faults.at("revoke")
        self.processes = [name for name in self.processes if self._survives(ResetMethod.CLEAN, f"process/{name}")]

    async def reset_in_place(self, generation: int, *, hook: Sequence[str] | None) -> None:
        await self._runtime.faults.at("reset_in_place")
        if self.dead:
            raise InstanceLost(f"{self.namespace} is dead")
        self._settle(ResetMethod.CLEAN if hook is None else ResetMethod.HOOK, generation, in_place=True, proof=None)

    async def restore(self, snapshot: Snapshot, generation: int) -> None:
        await self._runtime.faults.at("restore")
        before, processes = (dict(self.files), self.processes) if self.clone is not None else ({}, [])
        await self.come_up(snapshot, generation)
        self.files.update({p: t for p, t in before.items() if self._survives(ResetMethod.RESTORE, f"file/{p}")})
        self.processes = [name for name in processes if self._survives(ResetMethod.RESTORE, f"process/{name}")]

    async def come_up(self, snapshot: Snapshot, generation: int) -> None:
        """Fresh clone, physical proof, start."""
        if self.clone is not None:
            await self.clone.destroy()
        self.clone = await self._runtime.storage.clone(snapshot.dirs[0])
        self.snapshot, self.generation, self.processes = snapshot, generation, []
        self.proof = await self.clone.prove()
        self.dead = self.revoked = self.in_place = False
        for path in self.environment.resources[0].options["per_start"]:
            self.clone.files[path] = secrets.token_hex(4)

    async def snapshot_now(self) -> Snapshot:
        await self._acting("snapshot")
        assert self.clone is not None
        parent, generation = self.snapshot, self.generation
        kept, self.clone = self.clone, None
        files = dict(kept.files)
        snapshot = await self._runtime.seal(self.environment, kept, parent=parent.id, task=None)
        if self.dead or self.revoked or self.generation != generation:
            await self._runtime.storage.remove(snapshot.dirs[0])
            raise InstanceLost(f"{self.namespace} was revoked")
        self.clone = await self._runtime.storage.clone(parent.dirs[0])
        self.clone.files.clear()
        self.clone.files.update(files)
        return snapshot

    def subject(self) -> MemorySubject:
        return MemorySubject(self)

    async def alive(self) -> bool:
        return not self.dead and self.clone is not None

    async def close(self) -> None:
        await self._runtime.faults.at("close")
        self.dead = True
        self._runtime.machine.running.discard(self)
        if self.clone is not None:
            await self.clone.destroy()
            self.clone = None

    def _settle(self, method: ResetMethod, generation: int, *, in_place: bool, proof: IdentityProof | None) -> None:
        golden = self._runtime.storage.content(self.snapshot.dirs[0])
        left = {p: self.files.get(p) for p in {*golden, *self.files} if self._survives(method, f"file/{p}")}
        processes = [name for name in self.processes if self._survives(method, f"process/{name}")]
        self.files.clear()
        self.files.update(golden)
        for path, text in left.items():
            if text is None:
                self.files.pop(path, None)
            else:
                self.files[path] = text
        self.processes, self.generation = processes, generation
        self.in_place, self.revoked, self.proof = in_place, False, proof

    def _survives(self, method: ResetMethod, field: str) -> bool:
        return any(fnmatch.fnmatch(field, pattern) for pattern in self._runtime.leaks.get(method, ()))

    async def _acting(self, step: str) -> None:
        await self._runtime.faults.at(step)
        if self.dead or self.revoked:
            raise InstanceLost(f"{self.namespace} does not answer")


class MemorySubject:
    """What probes see of a memory instance."""

    def __init__(self, instance: MemoryInstance) -> None:
        self._instance = instance

    @property
    def environment(self) -> EnvironmentSpec:
        return self._instance.environment

    @property
    def namespace(self) -> NamespaceId:
        return self._instance.namespace

    @property
    def in_place(self) -> bool:
        return self._instance.in_place

    @property
    def proof(self) -> IdentityProof | None:
        return self._instance.proof

    @property
    def in_force(self) -> Mapping[str, Any]:
        return self._instance.in_force

    def tree(self, resource: str, state: str | None = None) -> MemoryTree:
        return MemoryTree(self._instance.files)

    def endpoint(self, resource: str) -> str:
        return self._instance.endpoint(resource)

    async def processes(self) -> Sequence[ProcessInfo]:
        named = enumerate(self._instance.processes, start=2)
        return [ProcessInfo(pid=pid, parent=1, role=Role.AGENT, argv=(name,)) for pid, name in named]

    async def listeners(self) -> Sequence[Listener]:
        return ()

    async def mounts(self, role: Role) -> Sequence[str]:
        return ()

    async def trusted_run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, binds: Sequence[Mount] = (), limit_s: float = 60.0
    ) -> ExecResult:
        return ExecResult(exit_code=127, stdout=b"", stderr=b"a memory instance has no binaries")
