"""Environments from testcontainers definitions: the container's description is read, and it is never started.

    container = (
        DockerContainer("nginx:1.27")
        .with_exposed_ports(80)
        .with_volume_mapping("./site", "/usr/share/nginx/html")
        .waiting_for(HttpWaitStrategy(80))
    )
    environment = envs.from_testcontainer(container, name="web")

What cannot be carried over is refused by name, never left out: a host's directory is copied in when the golden state is built, and
is not shared with the host afterwards.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from envs.environment import LoadedEnvironment, define
from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable

INSTALL = 'pip install "autoclave[testcontainers]"'
_IGNORED = frozenset({"platform", "name", "labels", "remove", "auto_remove", "detach", "pull_policy"})
_RENAMED = {
    "user": "user",
    "working_dir": "workdir",
    "hostname": "hostname",
    "cap_add": "capabilities",
    "read_only": "read_only",
    "stop_signal": "stop_signal",
    "runtime": "runtime",
}


def from_testcontainer(
    container: Any, *, name: str, version: str = "1", options: Mapping[str, Any] | None = None, **tables: Any
) -> LoadedEnvironment:
    """Turn a testcontainers `DockerContainer` (or one of its modules') into an environment with one resource, called `name`.

    `options` adds to or overrides the resource's options (`setup`, `capabilities`, `ready`, ...); `tables` are the other tables
    of environment.toml (`probes`, `volatile`, `destructive`, `limits`, ...). Raises EnvironmentInvalid naming everything that
    cannot be carried over.
    """
    problems: list[str] = []
    resource = {"kind": "container", **_read(_checked(container), problems), **(options or {})}
    if problems:
        raise EnvironmentInvalid(
            f"the testcontainers definition of {name!r} cannot be carried over",
            problems=tuple(problems),
            fix="give `options` instead",
        )
    return define({"name": name, "version": version, "resources": {name: resource}, **tables}, Path("/"))


def _checked(container: Any) -> Any:
    try:
        from testcontainers.core.container import DockerContainer
    except ImportError as error:
        raise RuntimeUnavailable(f"testcontainers is not installed ({error})", fix=INSTALL) from None
    if not isinstance(container, DockerContainer):
        raise EnvironmentInvalid(
            f"{type(container).__name__} is no testcontainers DockerContainer", fix="pass the container object"
        )
    if container._container is not None:
        raise EnvironmentInvalid("that container was started", fix="pass a definition that was not: an environment starts its own")
    container._configure()  # what a module sets at the beginning of its own `start`
    return container


def _read(container: Any, problems: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"image": container.image, "env": {k: str(v) for k, v in container.env.items()}}
    command = container._command
    if command is not None:
        found["command"] = shlex.split(command) if isinstance(command, str) else [str(word) for word in command]
    found["ports"] = list(ports_of(container.ports, problems))
    found |= _volumes(container.volumes, problems)
    found["copy"] = [*found["copy"], *_copies(container, problems)]
    if container.tmpfs:
        found["tmpfs"] = sorted(container.tmpfs)
    if container._network is not None:
        problems.append("with_network: an instance has a network of its own; make one environment of each container")
    found |= _kwargs(container._kwargs, problems)
    ready = ready_of(container._wait_strategy, problems)
    if ready:
        found["ready"] = ready
    return {name: value for name, value in found.items() if value or value is False}


def ports_of(ports: Mapping[Any, Any], problems: list[str]) -> Iterator[int]:
    """Yield the TCP ports inside of a definition's ports; what cannot be carried over is added to `problems`."""
    for text, host in ports.items():
        number, _, protocol = str(text).partition("/")
        if host is not None:
            problems.append(f"with_bind_ports({text}, {host}): an endpoint's port is another in each generation; expose it")
        if protocol not in ("", "tcp") or not number.isdigit():
            problems.append(f"port {text}: only TCP ports are reached")
        else:
            yield int(number)


def _volumes(volumes: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """A host's directory that may be written to becomes a volume that begins with its contents; one that may not, a copy."""
    places, copies = [], []
    for host, mount in volumes.items():
        target, mode = str(mount["bind"]), str(mount["mode"])
        path = Path(host).expanduser()
        is_path = path.is_absolute() or host.startswith(("./", "../", "~"))
        if path.name == "docker.sock":
            problems.append(f"with_volume_mapping({host!r}): the engine's socket would give the agent this machine")
        elif is_path and not path.exists():
            problems.append(f"with_volume_mapping({host!r}): there is no such file or directory")
        else:
            if is_path:
                copies.append({"from": _below_root(path), "to": target})
            if not is_path or ("rw" in mode.split(",") and path.is_dir()):
                places.append(target)
    return {"volumes": places, "copy": copies}


def _copies(container: Any, problems: list[str]) -> Iterator[dict[str, str]]:
    for source, target, *_ in container._transferable_specs:
        if isinstance(source, Path):
            place = f"{target.rstrip('/')}/{source.name}" if source.is_dir() else target
            yield {"from": _below_root(source), "to": place}
        else:
            problems.append(f"with_copy_into_container(bytes, {target!r}): write them to a file, and copy that")


def _below_root(path: Path) -> str:
    return str(path.resolve()).lstrip("/")


def _kwargs(kwargs: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in kwargs.items():
        if key == "entrypoint":
            found["entrypoint"] = shlex.split(value) if isinstance(value, str) else list(value)
        elif key in _RENAMED:
            found[_RENAMED[key]] = value
        elif key not in _IGNORED:
            problems.append(f"with_kwargs({key}=...): has no counterpart here")
    return found


def ready_of(strategy: Any, problems: list[str]) -> dict[str, Any]:
    """Return the option `ready` for a wait strategy and all its parts: one condition of each kind, within the longest of their
    limits. What cannot be waited for is added to `problems`."""
    found: dict[str, Any] = {}
    for key, value in _ready(strategy, problems):
        if key == "limit_s":
            found[key] = max(value, found.get(key, value))
        elif found.setdefault(key, value) != value:
            problems.append(f"waiting_for: of {key} only one is waited for, not both {found[key]!r} and {value!r}; see `ready`")
    return found


def _ready(strategy: Any, problems: list[str]) -> Iterator[tuple[str, Any]]:
    if strategy is None:
        return
    kind = type(strategy).__name__
    reader = _STRATEGIES.get(kind)
    if reader is None:
        problems.append(f"waiting_for({kind}): has no counterpart here; see `ready`")
        return
    if kind == "CompositeWaitStrategy":
        for part in strategy._strategies:
            yield from _ready(part, problems)
        return
    fault = yield from reader(strategy)
    if fault:
        problems.append(f"waiting_for({kind}): {fault}")
    yield "limit_s", float(strategy._startup_timeout)


def _log(strategy: Any) -> Any:
    said = strategy._message
    yield "log", said.pattern
    if said.flags & ~re.MULTILINE != re.compile(said.pattern).flags & ~re.MULTILINE:
        return "the flags of its regular expression are lost: write them into it, as in (?i)"
    if not said.flags & re.MULTILINE and re.search(r"[\^$]", said.pattern):
        return "^ and $ are the ends of lines here: give re.MULTILINE, or use neither"
    if strategy._predicate_streams_and:
        return "stdout and stderr are searched together"
    return "only one occurrence is waited for" if strategy._times != 1 else ""


def _http(strategy: Any) -> Any:
    yield "port", int(strategy._port)
    yield "http", strategy._path
    special = (
        strategy._status_code_predicate,
        strategy._response_predicate,
        strategy._headers,
        strategy._basic_auth,
        strategy._body,
    )
    if strategy._tls or strategy._method != "GET" or any(special) or max(strategy._status_codes) >= 400:
        return "only a plain GET that is answered below 400 can be waited for"
    return ""


def _port(strategy: Any) -> Any:
    yield "port", int(strategy._port)
    return ""


def _exec(strategy: Any) -> Any:
    command = strategy._command
    yield "command", shlex.split(command) if isinstance(command, str) else list(command)
    return "" if strategy._expected_exit_code == 0 else "only exit code 0 can be waited for"


def _status(strategy: Any) -> Any:
    yield from ()
    return ""


_STRATEGIES: Mapping[str, Callable[[Any], Any]] = {
    "LogMessageWaitStrategy": _log,
    "HttpWaitStrategy": _http,
    "PortWaitStrategy": _port,
    "ExecWaitStrategy": _exec,
    "ContainerStatusWaitStrategy": _status,
    "CompositeWaitStrategy": _status,
}
