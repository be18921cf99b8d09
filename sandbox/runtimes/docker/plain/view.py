"""A container of any image as probes and scorers see it: through the engine, and through the host's /proc where it is on this
machine."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandbox.aio import in_thread, run_shielded
from sandbox.errors import EnvironmentInvalid, InstanceLost, LimitReached
from sandbox.model import EnvironmentSpec, ExecResult, IdentityProof, NamespaceId, ProcessInfo, Role
from sandbox.ports import Listener, Mount, Tree
from sandbox.ports.container import ContainerState
from sandbox.runtimes import observe
from sandbox.runtimes.docker import containers
from sandbox.runtimes.docker.labels import Mark
from sandbox.runtimes.docker.plain import archive, commands
from sandbox.runtimes.docker.plain.lineage import FILL_S, Lineage
from sandbox.storage.tree import PlainTree

if TYPE_CHECKING:
    from sandbox.runtimes.docker.plain.instance import PlainInstance

UNSEEN = "not seen: the engine is on another machine"
_KINDS = {0: "changed", 1: "added", 2: "removed"}
_MOST_FILES = 5000
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
        return await in_thread(observe.listeners, reach.pid, Role.SERVER, name)

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
        cut = len(out) > limit or len(err) > limit
        return ExecResult(exit_code=code, stdout=out[:limit], stderr=err[:limit], truncated=cut, timed_out=timed_out)
    finally:
        await run_shielded(containers.remove(engine, container))


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
        again = int(state["StartedAt"] != self._lineage.started_at)
        return ContainerState(
            status=str(state["Status"]),
            exit_code=int(state["ExitCode"]),
            out_of_memory=bool(state.get("OOMKilled")),
            restarts=int(found.get("RestartCount", 0)) + again,
            settings=settings,
            mounts=tuple(sorted(f"{m['Destination']} {m['Type']} {'rw' if m.get('RW') else 'ro'}" for m in found["Mounts"])),
        )

    async def changes(self, *, contents: bool) -> Mapping[str, str]:
        container = self._lineage.container

        def work(client: Any) -> dict[str, str]:
            listed = client.diff(container) or ()
            found = {item["Path"]: _KINDS.get(item["Kind"], "changed") for item in listed}
            if not contents:
                return found
            upper = _upper(client.inspect_container(container)) if self._lineage.engine.beside else None
            there = [path for path, kind in found.items() if kind != "removed"]
            if len(there) > _MOST_FILES and upper is None:
                raise LimitReached(f"{len(there)} files changed, more than {_MOST_FILES} that can be read through an engine")
            for path in there:
                line = _on_disk(upper, path) if upper is not None else _through_engine(client, container, path)
                found[path] = f"{found[path]} {line}"
            return found

        return await self._lineage.engine.call(work, doing="reading what changed in a container", limit_s=FILL_S)

    async def run(self, argv: Sequence[str], *, limit_s: float) -> ExecResult:
        return await commands.run(self._lineage.engine, self._lineage.running, argv, limit_s=limit_s)

    async def volumes(self) -> Mapping[str, Mapping[str, str]]:
        container, targets = self._lineage.container, list(self._lineage.volume_names)

        def work(client: Any) -> dict[str, dict[str, str]]:
            return {target: archive.lines_at(client, container, target) for target in targets}

        return await self._lineage.engine.call(work, doing="reading a container's volumes", limit_s=FILL_S)


def _upper(found: Mapping[str, Any]) -> Path | None:
    """The container's writable layer on the disk, where the engine says so."""
    place = ((found.get("GraphDriver") or {}).get("Data") or {}).get("UpperDir")
    return Path(place) if place and Path(place).is_dir() else None


def _on_disk(upper: Path, path: str) -> str:
    tree = PlainTree(upper)
    entry = tree.entry(path.strip("/"))
    if entry is None:
        return "gone meanwhile"
    words = [entry.kind, f"{entry.mode:04o}", f"{entry.uid}:{entry.gid}"]
    if entry.kind == "file":
        words += [str(entry.size), archive.content_digest(tree.read(entry.path))]
    elif entry.kind == "link":
        words.append(entry.target or "")
    elif entry.kind in ("char", "block"):
        device = os.lstat(tree.real(entry.path)).st_rdev
        words.append(f"{os.major(device)}:{os.minor(device)}")
    named = sorted(n for n in tree.xattrs(entry.path) if not n.startswith("trusted.overlay."))
    if named:
        words.append("xattrs " + " ".join(f"{n}={tree.xattrs(entry.path)[n].hex()}" for n in named))
    return " ".join(words)


def _through_engine(client: Any, container: str, path: str) -> str:
    from docker import errors

    try:
        stream, told = client.get_archive(container, path)
        if told["mode"] >> 31 & 1:  # Go's mark of a directory: its own line alone, for what changed below is listed itself
            stream.close()
            return f"dir {told['mode'] & 0o777:04o}"
        return archive.lines_of(archive.Pieces(stream)).get(".", "gone meanwhile")
    except errors.NotFound:
        return "gone meanwhile"
