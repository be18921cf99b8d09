"""What the tables of an environment must mean together: paths, references, combinations. Each rule adds problems, none raises."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from envs import lower, success
from envs.places import Path as Key
from envs.problems import Problems, suggestion
from envs.spec import DestructiveTable, EnvironmentFile, TaskTable
from sandbox import plugins
from sandbox.errors import EnvironmentInvalid
from sandbox.model import EnvironmentSpec, PageDo
from sandbox.plugins import Group

_RESERVED = ("/usr", "/etc", "/proc", "/dev", "/sys", "/bin", "/lib", "/sbin", "/run", "/checks")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check(file: EnvironmentFile, base: Path, problems: Problems) -> None:
    """Everything but tasks and plug-ins."""
    _whole(file, problems)
    _reset(file, base, problems)
    _resources(file, base, problems)
    _probes(file, problems)
    _shared(file, base, problems)
    _destructive(file, problems)


def inside(base: Path, text: str, key: Key, problems: Problems, *, absolute: bool = False) -> Path | None:
    """Resolve a path of the description; refuse one that is not there or leaves the environment's directory."""
    if Path(text).is_absolute() and not absolute:
        problems.add(key, f'"{text}" is absolute; paths start at the directory of the file')
        return None
    path = base / text
    if not Path(text).is_absolute() and not path.resolve().is_relative_to(base.resolve()):
        problems.add(key, f'"{text}" leaves the environment\'s directory {base}')
        return None
    if not path.exists():
        problems.add(key, f'"{text}" does not exist in {base}{_near(path)}')
        return None
    return path


def _near(path: Path) -> str:
    if not path.parent.is_dir():
        return ""
    text = suggestion(path.name, (p.name for p in path.parent.iterdir()))
    return text if "did you mean" in text else ""


def _duplicates(names: Iterable[str]) -> set[str]:
    return {name for name, count in Counter(names).items() if count > 1}


def _whole(file: EnvironmentFile, problems: Problems) -> None:
    if not file.resources:
        problems.add((), "no [resources.NAME]: an environment without a resource has nothing to reset")
    if file.root not in ("host", "image") and not (Path(file.root).is_absolute() and Path(file.root).is_dir()):
        problems.add(("root",), f'"{file.root}" is none of "host", "image" and the absolute path of an unpacked image')
    if file.limits.file_mb > file.limits.disk_mb:
        problems.add(("limits", "file_mb"), f"{file.limits.file_mb} is more than disk_mb = {file.limits.disk_mb}")
    for name in file.env:
        if not _VARIABLE.fullmatch(name):
            problems.add(("env", name), "is not the name of an environment variable")
    for index, item in enumerate(file.volatile):
        probe, slash, field = item.pattern.partition("/")
        if not slash or not probe or not field:
            problems.add(("volatile", index, "pattern"), f'"{item.pattern}" must be probe/field')
        elif set(probe + field) <= {"*", "?"}:
            problems.add(("volatile", index, "pattern"), f'"{item.pattern}" would exempt every field from every check')
    for name in sorted(_duplicates(item.pattern for item in file.volatile)):
        problems.add(("volatile",), f'pattern "{name}" is given twice')


def _reset(file: EnvironmentFile, base: Path, problems: Problems) -> None:
    reset = file.reset
    if reset.hook and reset.hook_script:
        problems.add(("reset", "hook_script"), "give `hook` or `hook_script`, not both")
    if reset.method == "hook" and not (reset.hook or reset.hook_script):
        problems.add(("reset", "method"), '"hook" needs `hook` (an argv) or `hook_script` (a file)')
    if reset.restore_every and reset.method in ("restore", "rebuild"):
        problems.add(
            ("reset", "restore_every"), f'means nothing under method "{reset.method}", which replaces the state every time'
        )
    if reset.hook_script:
        path = inside(base, reset.hook_script, ("reset", "hook_script"), problems)
        fault = lower.script_fault(path) if path else None
        if fault:
            problems.add(("reset", "hook_script"), f'"{reset.hook_script}" {fault}')


def _resources(file: EnvironmentFile, base: Path, problems: Problems) -> None:
    known = plugins.offered(Group.RESOURCES)
    targets: dict[str, str] = {}
    for name, table in file.resources.items():
        if table.kind not in known:
            problems.add(("resources", name, "kind"), f'no resource kind "{table.kind}"{suggestion(table.kind, known)}')
        for key, text in lower.path_options(table.kind, table.options):
            inside(base, text, ("resources", name, *key), problems)
        target = table.options.get("target")
        if isinstance(target, str):
            if target in targets:
                problems.add(("resources", name, "target"), f'"{target}" is also the target of "{targets[target]}"')
            targets[target] = name


def _reference(file: EnvironmentFile, name: str, key: Key, problems: Problems) -> bool:
    if name in file.resources:
        return True
    problems.add(key, f'there is no resource "{name}"{suggestion(name, file.resources)}')
    return False


def _probes(file: EnvironmentFile, problems: Problems) -> None:
    known = plugins.offered(Group.PROBES)
    for index, probe in enumerate(file.probes):
        if probe.kind not in known:
            problems.add(("probes", index, "kind"), f'no probe kind "{probe.kind}"{suggestion(probe.kind, known)}')
        if probe.resource is not None:
            _reference(file, probe.resource, ("probes", index, "resource"), problems)
    for name in sorted(_duplicates(probe.name for probe in file.probes)):
        index = max(i for i, probe in enumerate(file.probes) if probe.name == name)
        problems.add(("probes", index, "name"), f'a second probe is called "{name}"')


def _shared(file: EnvironmentFile, base: Path, problems: Problems) -> None:
    for index, item in enumerate(file.shared):
        path = inside(base, item.path, ("shared", index, "path"), problems, absolute=True)
        if path and not path.is_dir():
            problems.add(("shared", index, "path"), f'"{item.path}" is not a directory')
        mount = item.mount.rstrip("/")
        if mount in ("", file.workdir.rstrip("/")) or any(mount == top or mount.startswith(f"{top}/") for top in _RESERVED):
            problems.add(("shared", index, "mount"), f'"{item.mount}" is taken by the system or by workdir')
    for name in sorted(_duplicates(item.mount.rstrip("/") for item in file.shared)):
        problems.add(("shared",), f'two directories are mounted at "{name}"')


def _destructive(file: EnvironmentFile, problems: Problems) -> None:
    for index, action in enumerate(file.destructive):
        key = ("destructive", index)
        given = [name for name in ("run", "argv", "sql") if getattr(action, name)]
        browser = [name for name in ("visit", "script", "calls", "steps") if getattr(action, name)]
        if len(given) + bool(browser) != 1 or browser == ["visit"] or (action.steps and browser != ["steps"]):
            has = ", ".join(given + browser) or "none"
            problems.add(key, f'"{action.name}" must have exactly one of run, argv, sql, script, steps (has {has})')
        _steps(action, key, problems)
        for name, texts in (("run", [action.run]), ("argv", action.argv), ("sql", action.sql)):
            if any("\0" in text for text in texts):
                problems.add((*key, name), f'"{action.name}" holds a NUL character, which no command can')
        if browser and action.resource is None:
            problems.add((*key, browser[0]), "needs `resource`")
        if action.sql and action.resource is None:
            problems.add((*key, "sql"), "needs `resource`")
        if action.role and not action.sql:
            problems.add((*key, "role"), "goes with `sql` only")
        if action.resource is not None and _reference(file, action.resource, (*key, "resource"), problems):
            kind = file.resources[action.resource].kind
            for what, wanted in ((given, "postgres"), (browser, "browser")):
                if what and what != ["run"] and what != ["argv"] and kind != wanted:
                    problems.add((*key, "resource"), f'`{what[0]}` needs a {wanted} resource, "{action.resource}" is {kind}')
    for name in sorted(_duplicates(action.name for action in file.destructive)):
        problems.add(("destructive",), f'two actions are called "{name}"')


def _steps(action: DestructiveTable, key: tuple[str | int, ...], problems: Problems) -> None:
    for number, step in enumerate(action.steps):
        if len(does := step.does) != 1:
            has = ", ".join(does) or "none"
            problems.add((*key, "steps", number), f"must have exactly one of goto, click, fill, select, upload (has {has})")
        elif step.text and does[0] in (PageDo.GOTO, PageDo.CLICK):
            problems.add((*key, "steps", number, "text"), "goes with `fill`, `select` and `upload` only")
        elif bool(step.file) != (does[0] is PageDo.UPLOAD):
            fault = "needs `file`, the name of what is uploaded" if does[0] is PageDo.UPLOAD else "`file` goes with `upload` only"
            problems.add((*key, "steps", number), fault)


def check_tasks(file: EnvironmentFile, base: Path, rows: Sequence[tuple[str, int, TaskTable]], problems: Problems) -> None:
    """Ids, start states and success checks of the tasks."""
    seen: dict[str, str] = {}
    for name, line, task in rows:
        if task.id in seen:
            problems.at(name, line, f"task {task.id}: id", f"is also the id of the task at {seen[task.id]}")
        seen.setdefault(task.id, f"{name}:{line}")
        for resource in task.start:
            if resource not in file.resources:
                problems.at(name, line, f"task {task.id}: start", f'no resource "{resource}"{suggestion(resource, file.resources)}')
        for message in _success_faults(file, base, task):
            problems.at(name, line, f"task {task.id}: success", message)


def _success_faults(file: EnvironmentFile, base: Path, task: TaskTable) -> Iterable[str]:
    try:
        parsed = success.parse(task.success)
    except ValidationError as error:
        for item in error.errors(include_url=False):
            loc = [str(part) for part in item["loc"] if part not in success.INNER_NAMES]
            hint = suggestion(loc[-1], success.keys(task.success)) if item["type"] == "extra_forbidden" and loc else ""
            yield f"{'.'.join(loc) + ': ' if loc else ''}{item['msg'][0].lower()}{item['msg'][1:]}{hint}"
        return
    for part in success.parts(parsed):
        if isinstance(part, success.CommandCheck):
            yield from _directory_faults(base, part)
        elif part.resource not in file.resources:
            yield f'no resource "{part.resource}"{suggestion(part.resource, file.resources)}'


def _directory_faults(base: Path, check: success.CommandCheck) -> Iterable[str]:
    for text in check.checks:
        path = (base / text).resolve()
        if not path.is_relative_to(base.resolve()) or not path.is_dir():
            yield f'checks: "{text}" is not a directory of the environment'
    for name in sorted(_duplicates(Path(text).name for text in check.checks)):
        yield f'checks: two directories are called "{name}"'


def check_kinds(spec: EnvironmentSpec, problems: Problems) -> None:
    """Let the factories of resources and probes judge their options."""
    for resource in spec.resources:
        try:
            plugins.load(Group.RESOURCES, resource.kind)(resource)
        except EnvironmentInvalid as error:
            _blame(("resources", resource.name), f"resources.{resource.name}", error, problems)
    for index, probe in enumerate(spec.probes):
        try:
            plugins.load(Group.PROBES, probe.kind)(probe, spec)
        except EnvironmentInvalid as error:
            _blame(("probes", index), f"probe {probe.name}", error, problems)


def _blame(key: Key, prefix: str, error: EnvironmentInvalid, problems: Problems) -> None:
    """Give a factory's problems, which begin with `prefix` and perhaps an option's name, their place in the file."""
    for message in error.problems or (error.message,):
        rest = message.removeprefix(prefix)
        option = re.match(r"(?:\.|: )([\w.]+): ", rest) if rest != message else None
        if option:
            problems.add((*key, *option[1].split(".")), rest[option.end() :])
        else:
            problems.add(key, rest.removeprefix(": "))
