"""What each sandbox of an environment is: which directories it sees, under which user, with which variables."""

from __future__ import annotations

import dataclasses
import itertools
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from sandbox import staging
from sandbox.errors import EnvironmentInvalid
from sandbox.model import NOTHING, EnvironmentSpec, Limits, Role, SealedDir
from sandbox.ports import Clone, Environment, Mount, Resource, StateDir
from sandbox.runtimes.group.box import DEFAULT_PATH, SandboxPlan
from sandbox.runtimes.group.order import peers_of
from sandbox.settings import Settings

HOME = "/home/agent"
HOOKS = "/autoclave/hooks"
_TRUSTED = Limits(memory_mb=2048, pids=512, file_mb=8192, disk_mb=2048, action_s=300.0)
_numbers = itertools.count(1)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One state directory: whose it is, and what it is called in a snapshot."""

    owner: str  # the resource's name, or that of a directory that the runtime adds
    directory: StateDir

    @property
    def name(self) -> str:
        return f"{self.owner}/{self.directory.name}"


class Plans:
    """Makes the sandbox plans of one environment."""

    def __init__(self, settings: Settings, environment: Environment) -> None:
        self._settings = settings
        self.spec: EnvironmentSpec = environment.spec
        self.resources: tuple[Resource, ...] = tuple(environment.resources)
        self._staged: dict[str, str] = {}
        self.token = secrets.token_hex(6)  # in the names of throw-away sandboxes, so that a sweep knows them as ours
        self.states = (*(State(owner=r.spec.name, directory=d) for r in self.resources for d in r.state_dirs()), *self._added())
        self._refuse_clashes()
        self.peers = peers_of(self.spec.name, self.resources)

    @property
    def added(self) -> tuple[State, ...]:
        """The directories that belong to no resource: the agent's home, and its working directory."""
        names = {r.spec.name for r in self.resources}
        return tuple(s for s in self.states if s.owner not in names)

    def states_of(self, owner: str) -> tuple[State, ...]:
        return tuple(s for s in self.states if s.owner == owner)

    def sealed(self, state: State, dirs: Sequence[SealedDir]) -> SealedDir:
        for found in dirs:
            if found.name == state.name:
                return found
        raise EnvironmentInvalid(
            f"the snapshot of environment {self.spec.name} holds no {state.name}", fix=f"`autoclave env baseline {self.spec.name}`"
        )

    def _added(self) -> list[State]:
        """What an agent writes outside of every resource is state, too: it must be cloned, proven and thrown away like the rest."""
        taken = {r.spec.name for r in self.resources}
        targets = [PurePosixPath(d.target) for r in self.resources for d in r.state_dirs() if d.role is Role.AGENT]
        found = []
        for name, path in (("home", HOME), ("workspace", self.spec.workdir)):
            place = PurePosixPath(path)
            if not any(place == t or place.is_relative_to(t) for t in targets):
                owner = name if name not in taken else f"agent-{name}"
                found.append(State(owner=owner, directory=StateDir(name="files", target=path, role=Role.AGENT)))
                targets.append(place)
        return found

    def _refuse_clashes(self) -> None:
        seen: dict[tuple[str, Role], str] = {}
        problems = []
        for state in self.states:
            key = (state.directory.target, state.directory.role)
            if key in seen and state.directory.role is Role.AGENT:
                problems.append(f"{seen[key]} and {state.name} both lie at {state.directory.target}")
            seen[key] = state.name
        if problems:
            raise EnvironmentInvalid(f"environment {self.spec.name}: two states at one place", problems=tuple(problems))

    def inner_directories(self, state: State) -> tuple[str, ...]:
        """Return the mount points that lie inside a state directory, relative to it: they must be there before it is sealed."""
        top = PurePosixPath(state.directory.target)
        targets = [s.directory.target for s in self.states if s.directory.role is Role.AGENT]
        targets += [m.target for r in self.resources for m in r.agent_binds()]
        targets += [s.mount for s in self.spec.shared]
        inner = {PurePosixPath(t) for t in targets} - {top}
        return tuple(sorted(str(p.relative_to(top)) for p in inner if p.is_relative_to(top)))

    async def reachable(self, mounts: Sequence[Mount], *, remember: bool = True) -> tuple[Mount, ...]:
        """Return the mounts with every directory that the unprivileged ids cannot reach replaced by a staged copy. What lies in the
        store is there already."""
        return tuple([await self._reachable(mount, remember=remember) for mount in mounts])

    async def _reachable(self, mount: Mount, *, remember: bool) -> Mount:
        source = mount.layers[0]
        ours = (self._settings.store, self._settings.scratch, self._settings.run)
        if any(Path(source).is_relative_to(p) for p in ours) or not mount.readonly or len(mount.layers) > 1:
            return mount
        staged = self._staged.get(source)
        if staged is None:
            staged = str(await staging.stage(self._settings, Path(source), Path(source).name))
            if remember:
                self._staged[source] = staged
        return dataclasses.replace(mount, layers=(staged,))

    async def agent(
        self, owner: str, clones: Mapping[str, Clone], sockets: Mapping[str, Path], *, hooks: bool = False
    ) -> SandboxPlan:
        """The sandbox in which the agent's commands run."""
        mounts = self._state_mounts(clones, Role.AGENT)
        mounts += [Mount(target=f"/run/{r}", layers=(str(path),), readonly=True) for r, path in sockets.items()]
        mounts += await self._client_mounts()
        if hooks and (directory := self._hooks_directory()):
            mounts += await self.reachable([Mount(target=HOOKS, layers=(str(directory),), readonly=True)], remember=False)
        return SandboxPlan(
            name=f"{owner}.{'hook' if hooks else 'agent'}",
            owner=owner,
            kept=True,
            role=Role.AGENT,
            mounts=tuple(mounts),
            env=self.agent_env(),
            root=self.spec.root,
            image=self.spec.image,
            container_runtime=self.spec.runtime,
            workdir=self.spec.workdir,
            home=HOME,
            limits=self.spec.limits,
        )

    def agent_env(self) -> dict[str, str]:
        """The environment's variables, those of its resources, and where their programs are."""
        found: dict[str, str] = {}
        paths: list[str] = []
        for resource in self.resources:
            variables = dict(resource.agent_env())
            if path := variables.pop("PATH", ""):
                paths.append(path)
            found.update(variables)
        return {**found, "PATH": ":".join([*dict.fromkeys(paths), DEFAULT_PATH]), **self.spec.env}

    async def server(
        self, owner: str, resource: Resource, clones: Mapping[str, Clone], socket_dir: Path, peers: Mapping[str, Path]
    ) -> SandboxPlan:
        """The sandbox of a resource's server. `peers` are the socket directories that there are (none while it is seeded)."""
        plan = resource.server()
        if plan is None:
            raise EnvironmentInvalid(f"resource {resource.spec.name} has no server")
        mounts = self._own_mounts(resource.spec.name, clones, Role.SERVER)
        mounts.append(Mount(target=plan.socket_dir, layers=(str(socket_dir),)))
        mounts += [Mount(target=f"/run/{p}", layers=(str(peers[p]),), readonly=True) for p in plan.peers if p in peers]
        mounts += await self.reachable(plan.binds)
        return SandboxPlan(
            name=f"{owner}.{resource.spec.name}",
            owner=owner,
            kept=True,
            role=Role.SERVER,
            argv=plan.argv,
            resource=resource.spec.name,
            mounts=tuple(mounts),
            env=plan.env,
            root=self.spec.root,
            image=self.spec.image,
            container_runtime=self.spec.runtime,
            workdir=plan.workdir,
            limits=plan.limits or self.spec.limits,
        )

    async def errand(
        self,
        owner: str,
        clones: Mapping[str, Clone],
        *,
        role: Role,
        binds: Sequence[Mount] = (),
        env: Mapping[str, str] | None = None,
    ) -> SandboxPlan:
        """A throw-away sandbox over one resource's state of that role, for a trusted command."""
        mounts = self._own_mounts(owner, clones, role)
        mounts += await self.reachable(binds)
        return SandboxPlan(
            name=f"{self.spec.name}.{self.token}.errand{next(_numbers)}",
            owner=f"{self.spec.name}.{self.token}",
            role=role,
            mounts=tuple(mounts),
            env=env or NOTHING,
            root=self.spec.root,
            image=self.spec.image,
            container_runtime=self.spec.runtime,
            limits=_TRUSTED,
        )

    async def trusted(
        self, clones: Mapping[str, Clone], *, binds: Sequence[Mount], env: Mapping[str, str] | None, owner: str
    ) -> SandboxPlan:
        """A fresh sandbox over the agent's whole state, read-only."""
        mounts = self._state_mounts(clones, Role.AGENT, readonly=True)
        mounts += await self._client_mounts()
        mounts += await self.reachable(binds, remember=False)
        return SandboxPlan(
            name=f"{owner}.trusted{next(_numbers)}",
            owner=owner,
            kept=True,
            role=Role.AGENT,
            mounts=tuple(mounts),
            env={"PATH": DEFAULT_PATH, **(env or {})},
            root=self.spec.root,
            image=self.spec.image,
            container_runtime=self.spec.runtime,
            workdir=self.spec.workdir,
            limits=dataclasses.replace(self.spec.limits, output_bytes=max(self.spec.limits.output_bytes, 4_000_000)),
        )

    async def _client_mounts(self) -> list[Mount]:
        found: dict[str, Mount] = {}
        for resource in self.resources:
            for mount in await self.reachable(resource.agent_binds()):
                found.setdefault(mount.target, mount)
        shared = [Mount(target=s.mount, layers=(s.path,), readonly=True) for s in self.spec.shared]
        return [*found.values(), *await self.reachable(shared)]

    def _state_mounts(self, clones: Mapping[str, Clone], role: Role, *, readonly: bool = False) -> list[Mount]:
        states = [s for s in self.states if s.directory.role is role]
        return [clones[s.name].mount(s.directory.target, readonly=readonly) for s in states]

    def _own_mounts(self, owner: str, clones: Mapping[str, Clone], role: Role) -> list[Mount]:
        states = [s for s in self.states_of(owner) if s.directory.role is role]
        return [clones[s.name].mount(s.directory.target) for s in states]

    def _hooks_directory(self) -> Path | None:
        """The `hooks` folder beside the environment's description."""
        if not self.spec.source:
            return None
        source = Path(self.spec.source)
        found = (source if source.is_dir() else source.parent) / "hooks"
        return found if found.is_dir() else None
