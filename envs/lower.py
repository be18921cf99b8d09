"""Turns a checked `EnvironmentFile` into the values that the pool works with: paths absolute, scripts as argv, digest made."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envs import digest
from envs.spec import DestructiveTable, EnvironmentFile, StepTable, TaskTable
from envs.tasks import split
from sandbox.model import (
    BrowserAction,
    CheckPolicy,
    Depth,
    DestructiveAction,
    EnvironmentSpec,
    Isolation,
    Limits,
    PageAction,
    PageDo,
    PageStep,
    ProbeSpec,
    ResetMethod,
    ResetPolicy,
    ResourceSpec,
    SharedData,
    TaskSpec,
    VolatileField,
    WindowPolicy,
)

# Options that hold paths, by kind of resource. Of other packages' kinds, any text that begins with "./" is one.
_PATHS = {"postgres": ("seed",), "repo": ("seed",), "files": ("seed",), "service": ("seed", "app")}
_INTERPRETERS = ("sh", "bash", "dash", "python3")
_SCRIPT_BYTES = 100_000  # one argument of a command has at most 128 KiB


def spec(
    file: EnvironmentFile, base: Path, tasks: Sequence[TaskTable], *, files: Mapping[str, str], source: str
) -> EnvironmentSpec:
    """Lower a description that passed every rule. `files` holds the digest of each file that it names."""
    reset, check = file.reset, file.check
    hook = tuple(reset.hook) if reset.hook else script_argv(base / reset.hook_script) if reset.hook_script else ()
    return EnvironmentSpec(
        name=file.name,
        version=file.version,
        digest=digest.of_environment(file.model_dump(mode="json", exclude_defaults=True), files),
        description=file.description,
        root=file.root,
        image=file.image,
        runtime=file.runtime,
        workdir=file.workdir,
        env=dict(file.env),
        network=file.network,
        isolation=Isolation(file.isolation),
        namespaces_per_instance=file.namespaces_per_instance,
        resources=tuple(
            ResourceSpec(name=name, kind=table.kind, options=resolved(table.kind, table.options, base))
            for name, table in file.resources.items()
        ),
        limits=Limits(**file.limits.model_dump()),
        reset=ResetPolicy(
            method=ResetMethod(reset.method),
            hook=hook,
            hook_limit_s=reset.hook_limit_s,
            restore_every=reset.restore_every,
            max_resets=reset.max_resets,
            max_age_s=reset.max_age_s,
        ),
        check=CheckPolicy(
            deep_every=check.deep_every,
            deep_after_s=check.deep_after_s,
            required_depth=Depth(check.required_depth),
            window=WindowPolicy(check.window),
            max_ready_age_s=check.max_ready_age_s,
            probe_limit_s=check.probe_limit_s,
            instance_every=check.instance_every,
            instance_after_s=check.instance_after_s,
            quarantine_limit=check.quarantine_limit,
            quarantine_window=check.quarantine_window,
            instance_drain_s=check.instance_drain_s,
        ),
        probes=tuple(
            ProbeSpec(name=p.name, kind=p.kind, resource=p.resource, depth=Depth(p.depth), options=p.options) for p in file.probes
        ),
        volatile=tuple(VolatileField(pattern=v.pattern, reason=v.reason) for v in file.volatile),
        shared=tuple(SharedData(path=str((base / s.path).resolve()), mount=s.mount.rstrip("/")) for s in file.shared),
        destructive=tuple(action(table) for table in file.destructive),
        source=source,
    )


def tasks(file: EnvironmentFile, base: Path, listed: Sequence[TaskTable]) -> dict[str, TaskSpec]:
    """Lower the tasks, each with its split."""
    splits = split(listed, file.split)
    return {
        task.id: TaskSpec(
            id=task.id,
            family=task.family,
            difficulty=task.difficulty,
            split=splits[task.id],
            prompt=task.prompt,
            start={name: resolved(file.resources[name].kind, options, base) for name, options in task.start.items()},
            success=_success(task, base),
        )
        for task in listed
    }


def _success(task: TaskTable, base: Path) -> dict[str, Any]:
    checks = [str((base / text).resolve()) for text in _check_directories(task)]
    return {**task.success, "checks": checks} if checks else dict(task.success)


def _check_directories(task: TaskTable) -> Sequence[str]:
    return [text for text in task.success.get("checks", ()) if isinstance(text, str)]


def action(table: DestructiveTable) -> DestructiveAction:
    """Lower one destructive action."""
    argv = ("/bin/sh", "-c", table.run) if table.run else tuple(table.argv)
    calls = tuple((call.method, call.params) for call in table.calls)
    steps = tuple(_step(step) for step in table.steps)
    done = BrowserAction(visit=table.visit or "", script=table.script, calls=calls, steps=steps)
    return DestructiveAction(
        name=table.name,
        what=table.what,
        blind=table.blind,
        seen=Depth(table.seen),
        repaired_by=ResetMethod(table.repaired_by),
        resource=table.resource,
        argv=argv,
        sql=tuple(table.sql),
        role=table.role,
        browser=done if table.script or calls or steps else None,
    )


def _step(table: StepTable) -> PageStep:
    (do,) = table.does
    text, data = (table.file, table.text.encode()) if do is PageDo.UPLOAD else (table.text, b"")
    return PageStep(action=PageAction(do=do, at=getattr(table, do), text=text, data=data), may_fail=table.may_fail)


def script_fault(path: Path) -> str | None:
    """Say what keeps a script from being run inside, where only its text arrives; None when nothing does."""
    if not path.is_file():
        return "is not a file"
    if path.stat().st_size > _SCRIPT_BYTES:
        return f"is larger than {_SCRIPT_BYTES} bytes; mount data as [[shared]] and read it from there"
    first = path.read_bytes().split(b"\n", 1)[0].decode("utf-8", "replace")
    if not first.startswith("#!") or _interpreter(first)[0].rsplit("/", 1)[-1] not in _INTERPRETERS:
        return f"must begin with #! and one of {', '.join(_INTERPRETERS)}"
    return None


def script_argv(path: Path) -> tuple[str, ...]:
    """Return a command that runs the script's text, so that nothing of the author's need lie where an agent could edit it."""
    text = path.read_text("utf-8")
    return (*_interpreter(text.split("\n", 1)[0]), "-c", text)


def _interpreter(shebang: str) -> tuple[str, ...]:
    words = shebang[2:].split() or [""]
    return (f"/usr/bin/{words[1]}",) if words[0].endswith("/env") and len(words) > 1 else tuple(words)


def path_options(kind: str, options: Mapping[str, Any]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield the options that are paths of the environment's directory, with their key."""
    if kind == "container":  # { from = PATH, to = PLACE }
        for number, pair in enumerate(options.get("copy", ())):
            if isinstance(pair, Mapping) and isinstance(pair.get("from"), str):
                yield ("copy", number, "from"), pair["from"]
        return
    names = _PATHS.get(kind)
    for name, value in options.items():
        for index, item in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if isinstance(item, str) and (item.startswith(("./", "../")) if names is None else name in names):
                yield ((name,) if index is None else (name, index)), item


def resolved(kind: str, options: Mapping[str, Any], base: Path) -> dict[str, Any]:
    """Return the options with those paths absolute."""
    out: dict[str, Any] = copy.deepcopy(dict(options))
    for key, text in path_options(kind, options):
        place: Any = out
        for part in key[:-1]:
            place = place[part]
        place[key[-1]] = str((base / text).resolve())
    return out


def named(file: EnvironmentFile, listed: Sequence[TaskTable]) -> set[str]:
    """Every path that the description names."""
    found = {text for table in file.resources.values() for _, text in path_options(table.kind, table.options)}
    found |= used_later(file, listed)
    if file.reset.hook_script:
        found.add(file.reset.hook_script)
    if isinstance(file.tasks, str):
        found.add(file.tasks)
    return found


def used_later(file: EnvironmentFile, listed: Sequence[TaskTable]) -> set[str]:
    """Those that are not copied when golden is built: mounted, run, or read when a task first wants its own start state."""
    found = {item.path for item in file.shared}
    found |= {text for task in listed for text in _check_directories(task)}
    found |= {text for task in listed for name, o in task.start.items() for _, text in path_options(file.resources[name].kind, o)}
    for table in file.resources.values():
        found |= {text for key, text in path_options(table.kind, table.options) if not _copied(table.kind, str(key[0]))}
    return found


def _copied(kind: str, option: str) -> bool:
    return option == "seed" if kind in _PATHS else kind == "container"
