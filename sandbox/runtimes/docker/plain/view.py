"""A container of any image as probes and scorers see it: through the engine, and through the host's /proc where it is on this
machine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sandbox.aio import in_thread, run_shielded
from sandbox.errors import EnvironmentInvalid, InstanceLost, LimitReached
from sandbox.model import EnvironmentSpec, ExecResult, IdentityProof, NamespaceId, ProcessInfo, Role
from sandbox.ports import Listener, Mount, Tree
from sandbox.ports.container import SHARED, ContainerState
from sandbox.runtimes import observe
from sandbox.runtimes.docker import containers
from sandbox.runtimes.docker.labels import Mark
from sandbox.runtimes.docker.plain import archive, commands, files, layer, memory
from sandbox.runtimes.docker.plain.lineage import FILL_S, Lineage
from sandbox.storage.tree import PlainTree

if TYPE_CHECKING:
    from sandbox.runtimes.docker.plain.instance import PlainInstance

UNSEEN = "not seen: the engine is on another machine"
_KINDS = {0: "changed", 1: "added", 2: "removed"}
_MOST_FILES = 5000
_LOG_MIB = 48  # of what a trusted program says, as the engine keeps it
_MOUNTED = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
_SETTINGS = ("User", "WorkingDir", "Hostname", "Entrypoint", "Cmd", "StopSignal")
_HOST = (
    "NetworkMode",
    "Privileged",
    "ReadonlyRootfs",
    "CapAdd",
    "CapDrop",
    "SecurityOpt",
    "PidMode",
    "IpcMode",
    "Devices",
    "Tmpfs",
)


class PlainSubject:
    """Implements `sandbox.ports.Subject` and `HasContainers`."""

    def __init__(self, instance: PlainInstance) -> None:
        self._instance = instance

    @property
    def _lineage(self) -> Lineage:
        return self._instance.lineage

    @property
    def environment(self) -> EnvironmentSpec:
        return self._instance.definition.spec

    @property
    def namespace(self) -> NamespaceId:
        return self._instance.namespace

    @property
    def in_place(self) -> bool:
        return self._instance.in_place

    @property
    def proof(self) -> IdentityProof | None:
        return None if self._instance.in_place else self._lineage.proof

    @property
    def in_force(self) -> Mapping[str, Any]:
        return self._instance.in_force

    def container(self, resource: str) -> PlainView:
        if resource != self._instance.definition.resource:
            raise KeyError(resource)
        return PlainView(self._lineage)

    def tree(self, resource: str, state: str | None = None) -> Tree:
        """Return the host's view of a volume: `state` is where it is mounted (its only one by default)."""
        volumes = self._lineage.volume_names
        if resource != self._instance.definition.resource or (state is None and len(volumes) != 1):
            raise InstanceLost(f"environment {self.environment.name} has no state {resource}{f'/{state}' if state else ''}")
        target = state or next(iter(volumes))
        if target not in volumes:
            raise InstanceLost(f"resource {resource} has no volume at {target} (there are: {', '.join(volumes) or 'none'})")
        root = self._instance.data_root
        if root is None:
            raise InstanceLost(f"the volumes of resource {resource} lie on another machine", fix="use the probe kind `container`")
        return PlainTree(root / "volumes" / volumes[target] / "_data")

    def endpoint(self, resource: str) -> str:
        return self._instance.trusted_endpoint(resource)

    async def processes(self) -> Sequence[ProcessInfo]:
        reach, name = self._lineage.running, self._instance.definition.resource
        if reach.pid:
            return await in_thread(observe.processes, reach.pid, Role.SERVER, name)

        def work(client: Any) -> list[list[str]]:
            return list(client.top(reach.container, ps_args="-eo pid,ppid,args")["Processes"] or ())

        rows = await self._lineage.engine.call(work, doing="listing a container's processes")
        order = {int(row[0]): number for number, row in enumerate(rows, start=1)}  # its own numbers are not known from here
        return [
            ProcessInfo(
                pid=order[int(row[0])],
                parent=order.get(int(row[1]), 0),
                role=Role.SERVER,
                argv=tuple(row[2].split()),
                resource=name,
            )
            for row in rows
        ]

    async def listeners(self) -> Sequence[Listener]:
        reach, name = self._lineage.running, self._instance.definition.resource
        if not reach.pid:
            return [Listener(role=Role.SERVER, resource=name, kind="all", state="listen", address=UNSEEN)]
        # The author's own commands inside (probes, hooks, `ready`) leave some behind.
        return await in_thread(observe.listeners, reach.pid, Role.SERVER, name, orphans=False)

    async def mounts(self, role: Role) -> Sequence[str]:
        if role is not Role.SERVER:
            return ()
        reach = self._lineage.running
        if not reach.pid:
            return (UNSEEN,)
        return await in_thread(observe.mounts, reach.pid)

    async def trusted_run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, binds: Sequence[Mount] = (), limit_s: float = 60.0
    ) -> ExecResult:
        """Run a program of the saved image in a container of its own, over the volumes read-only: what the agent changed in the
        image's own files is not seen there, and cannot mislead it."""
        if binds and self._instance.data_root is None:
            raise EnvironmentInvalid(f"environment {self.environment.name}: its checks' files cannot be mounted on another machine")
        lineage = self._lineage
        mark = Mark(home=lineage.mark.home, environment=self.environment.name, owner=lineage.mark.owner, part="errand")
        config = lineage.definition.config(lineage.image, mark, network="none", fresh=False)
        config |= {"Entrypoint": [argv[0]], "Cmd": list(argv[1:]), "User": "0"}
        config["Env"] += [f"{name}={text}" for name, text in (env or {}).items()]
        config["HostConfig"] |= {
            "Mounts": [{"Type": "bind", "Source": m.layers[0], "Target": m.target, "ReadOnly": True} for m in binds],
            "VolumesFrom": [f"{lineage.container}:ro"],
            "PortBindings": {},
            "LogConfig": {"Type": "json-file", "Config": {"max-size": f"{_LOG_MIB}m", "max-file": "2"}},
        }
        return await _errand(lineage, config, mark, limit_s)


async def _errand(lineage: Lineage, config: Mapping[str, Any], mark: Mark, limit_s: float) -> ExecResult:
    engine = lineage.engine
    container = await containers.create(engine, config, mark)
    try:
        await containers.start(engine, container)
        timed_out = not await containers.wait_ended(engine, container, timeout=limit_s)
        state = (await containers.inspect(engine, container))["State"]

        def logs(client: Any) -> tuple[bytes, bytes]:
            return client.logs(container, stderr=False), client.logs(container, stdout=False)

        out, err = await engine.call(logs, doing="reading what a command said")
        limit = max(lineage.definition.spec.limits.output_bytes, 4_000_000)
        code = 137 if timed_out else int(state["ExitCode"])
        cut = len(out) > limit or len(err) > limit or may_lack_its_start(out, err)
        return ExecResult(exit_code=code, stdout=out[:limit], stderr=err[:limit], truncated=cut, timed_out=timed_out)
    finally:
        await run_shielded(containers.remove(engine, container))


def kept_lines(text: str, hostname: str) -> str:
    """The lines of one of the engine's own files, but those that name `hostname` (and its first part) alone."""
    own = ([hostname], [hostname, hostname.partition(".")[0]]) if hostname else ()
    return "; ".join(line for line in text.splitlines() if line.split()[1:] not in own)


def may_lack_its_start(*outputs: bytes) -> bool:
    """True where the engine's log of these may have been full once: it lets the oldest lines go without a word. Each byte takes six
    in it at most, and each line, or piece of a long one, a hundred more."""
    return sum(7 * len(output) + 100 * output.count(b"\n") for output in outputs) >= _LOG_MIB << 20


class PlainView:
    """Implements `sandbox.ports.container.ContainerView`."""

    def __init__(self, lineage: Lineage) -> None:
        self._lineage = lineage

    async def state(self) -> ContainerState:
        found = await self._lineage.describe()
        state, config, host = found["State"], found["Config"], found["HostConfig"]
        settings = {"image": "as saved" if found["Image"] == self._lineage.image else str(found["Image"])}
        settings |= {name: json.dumps(config.get(name), sort_keys=True) for name in _SETTINGS}
        settings |= {name: json.dumps(host.get(name), sort_keys=True) for name in _HOST}
        for pair in config.get("Env") or ():
            name, _, text = pair.partition("=")
            settings[f"env/{name}"] = text
        alone = host.get("NetworkMode") == "none"
        settings |= await self._made_by_engine("" if alone else str(config.get("Hostname") or ""))
        again = int(state["StartedAt"] != self._lineage.started_at)
        return ContainerState(
            status=str(state["Status"]),
            exit_code=int(state["ExitCode"]),
            out_of_memory=bool(state.get("OOMKilled")),
            restarts=int(found.get("RestartCount", 0)) + again,
            settings=settings,
            mounts=tuple(sorted(f"{m['Destination']} {m['Type']} {'rw' if m.get('RW') else 'ro'}" for m in found["Mounts"])),
        )

    async def _made_by_engine(self, hostname: str) -> Mapping[str, str]:
        """Files that the engine mounts into the container, one by one, so that its list of changed files lacks them. Where a
        network gives the container an address, which is new each time, the line with it is left out."""

        def work(client: Any) -> dict[str, str]:
            return {path: files.text(client, self._lineage.container, path) for path in _MOUNTED}

        texts = await self._lineage.engine.call(work, doing="reading the engine's own files in a container")
        return {f"file{path}": kept_lines(text, hostname) for path, text in texts.items()}

    async def changes(self, *, contents: bool) -> Mapping[str, str]:
        container = self._lineage.container

        def work(client: Any) -> dict[str, str]:
            listed = client.diff(container) or ()
            found = {item["Path"]: _KINDS.get(item["Kind"], "changed") for item in listed}
            upper = self._lineage.upper
            if upper is not None:
                found |= dict.fromkeys(set(layer.copied_up(upper, self._lineage.lower)) - found.keys(), "changed")
            if not contents:
                return found
            there = [path for path, kind in found.items() if kind != "removed"]
            if len(there) > _MOST_FILES and upper is None:
                raise LimitReached(f"{len(there)} files changed, more than {_MOST_FILES} that can be read through an engine")
            for path in there:
                line = layer.on_disk(upper, path) if upper is not None else layer.through_engine(client, container, path)
                found[path] = f"{found[path]} {line}"
            return found

        return await self._lineage.engine.call(work, doing="reading what changed in a container", limit_s=FILL_S)

    async def run(self, argv: Sequence[str], *, limit_s: float) -> ExecResult:
        return await commands.run(self._lineage.engine, self._lineage.running, argv, limit_s=limit_s)

    async def memory(self) -> Mapping[str, Mapping[str, str]]:
        reach = self._lineage.running
        if not reach.pid:
            return {}  # and no hook is run here
        found = await in_thread(memory.contents, reach.pid)
        shared = await in_thread(memory.objects, reach.pid, reach.container)
        return {**found, SHARED: {line: str(number) for line, number in Counter(shared).items()}}

    async def volumes(self) -> Mapping[str, Mapping[str, str]]:
        container, targets = self._lineage.container, list(self._lineage.volume_names)

        def work(client: Any) -> dict[str, dict[str, str]]:
            return {target: archive.lines_at(client, container, target) for target in targets}

        return await self._lineage.engine.call(work, doing="reading a container's volumes", limit_s=FILL_S)
