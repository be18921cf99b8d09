"""A memory instance that several namespaces share: files of their own, and files that belong to all (below `common/`)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from sandbox.errors import InstanceLost, ResetFailed
from sandbox.model import EnvironmentSpec, ExecResult, IdentityProof, InstanceId, Isolation, Mismatch, NamespaceId, Snapshot
from sandbox.ports import Part, Sharing
from sandbox.testing.instance import MemoryInstance, MemorySubject

if TYPE_CHECKING:
    from sandbox.testing.runtime import MemoryRuntime

COMMON = "common/"
EVERY = "common/every/"  # what every part gets when it is made, as default privileges of a database


class MemoryTenant(MemoryInstance):
    """A namespace of a shared instance. `set common/PATH TEXT` changes what belongs to all."""

    def __init__(self, shared: MemoryShared, snapshot: Snapshot, namespace: NamespaceId, generation: int) -> None:
        super().__init__(shared.runtime, shared.environment, snapshot, namespace, generation)
        self.shared = shared

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
        match list(argv):
            case ["set", path, text] if path.startswith(COMMON):
                await self._acting("run")
                self.shared.commons[path] = text
                return ExecResult(exit_code=0, stdout=b"", stderr=b"")
            case ["kill", "instance"]:
                self.shared.dead = True
                return ExecResult(exit_code=0, stdout=b"", stderr=b"")
        return await super().run(argv, stdin=stdin)

    async def come_up(self, snapshot: Snapshot, generation: int) -> None:
        if self.shared.dead:
            raise ResetFailed(f"instance {self.shared.id} does not run")
        await super().come_up(snapshot, generation)
        self.proof = None
        assert self.clone is not None
        self.clone.files.update({p.removeprefix(EVERY): t for p, t in self.shared.commons.items() if p.startswith(EVERY)})

    async def snapshot_now(self) -> Snapshot:
        raise ResetFailed("no snapshot can be taken of a shared instance")

    def subject(self) -> MemorySharedSubject:
        return MemorySharedSubject(self, Sharing(own=self.part, names=self.shared.names))

    @property
    def part(self) -> Part:
        return Part(isolation=Isolation.DIRECTORY, namespace=self.namespace, name=self.namespace, secret="")

    async def close(self) -> None:
        self.shared.tenants.pop(self.namespace, None)
        await super().close()


class MemorySharedSubject(MemorySubject):
    """A namespace of a shared instance (or, in `WholeSubject`, all of it)."""

    def __init__(self, tenant: MemoryTenant, sharing: Sharing) -> None:
        super().__init__(tenant)
        self.sharing = sharing
        self.commons: Mapping[str, str] = tenant.shared.commons

    @property
    def in_place(self) -> bool:
        return True

    @property
    def proof(self) -> IdentityProof | None:
        return None


class MemoryShared:
    """Implements `SharedInstance` in memory."""

    def __init__(
        self, runtime: MemoryRuntime, environment: EnvironmentSpec, snapshot: Snapshot, instance: InstanceId, generation: int
    ) -> None:
        self.runtime = runtime
        self.environment = environment
        self.id = instance
        self.snapshot = snapshot
        self.generation = generation
        self.commons: dict[str, str] = self._golden()
        self.tenants: dict[NamespaceId, MemoryTenant] = {}
        self.seen: list[Mismatch] = []  # what a test lets canaries see
        self.dead = False

    @property
    def names(self) -> Collection[str]:
        return tuple(self.tenants)

    async def open(self, namespace: NamespaceId, generation: int) -> MemoryTenant:
        await self.runtime.faults.at("open")
        tenant = MemoryTenant(self, self.snapshot, namespace, generation)
        await tenant.come_up(self.snapshot, generation)
        self.tenants[namespace] = tenant
        self.runtime.own(tenant)
        return tenant

    async def rebuild(self, snapshot: Snapshot, generation: int) -> None:
        await self.runtime.faults.at("rebuild")
        for tenant in self.tenants.values():
            tenant.dead = True
        self.commons.clear()
        self.seen.clear()
        self.commons.update(self._golden())
        self.snapshot, self.generation, self.dead = snapshot, generation, False

    async def canaries(self) -> Sequence[Mismatch]:
        await self.runtime.faults.at("canaries")
        return tuple(self.seen)

    def subject(self) -> WholeSubject:
        return WholeSubject(self)

    async def alive(self) -> bool:
        return not self.dead

    async def close(self) -> None:
        self.dead = True
        for tenant in list(self.tenants.values()):
            await tenant.close()

    def _golden(self) -> dict[str, str]:
        return dict(self.environment.resources[0].options.get("commons", {}))


class WholeSubject(MemorySubject):
    """All of a shared instance."""

    def __init__(self, shared: MemoryShared) -> None:
        if shared.dead:
            raise InstanceLost(f"instance {shared.id} is dead")
        super().__init__(
            MemoryInstance(shared.runtime, shared.environment, shared.snapshot, NamespaceId(shared.id), shared.generation)
        )
        self.sharing = Sharing(own=None, names=shared.names)
        self.commons: Mapping[str, str] = shared.commons

    @property
    def in_place(self) -> bool:
        return True
