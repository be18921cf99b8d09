"""Which environments there are: other packages' and ours by entry point, directories that the user registered or named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

from envs.environment import LoadedEnvironment, load
from envs.problems import suggestion
from envs.reader import FILE_NAME
from sandbox import plugins
from sandbox.errors import AutoclaveError, EnvironmentInvalid
from sandbox.plugins import Group
from sandbox.ports import Environment
from sandbox.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One registered environment, not read yet. `origin` says where it comes from."""

    name: str
    origin: str
    open: Callable[[], Environment]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A registered environment that cannot be used, and why."""

    name: str
    origin: str
    error: AutoclaveError


class Registry:
    """Looks environments up by name or path; a broken one never hides the others."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def entries(self) -> list[Entry]:
        """Return all that are registered, sorted by name. A name may appear twice: `open` then refuses it."""
        found = [
            Entry(name=name, origin=_package(point), open=_from_package(name))
            for name, points in plugins.offered(Group.ENVIRONMENTS).items()
            for point in points
        ]
        registered = sorted(p for p in self.home.iterdir() if p.is_dir() or p.is_symlink()) if self.home.is_dir() else []
        for path in (*registered, *self._settings.extra_environments):
            found.append(Entry(name=_name(path), origin=str(path), open=_from_directory(path)))
        return sorted(found, key=lambda e: (e.name, e.origin))

    @property
    def home(self) -> Path:
        """Where `env add` registers directories."""
        return self._settings.home / "environments"

    def open(self, name: str) -> Environment:
        """Return the environment of that name, or the one in the directory or file that `name` is a path of."""
        if (path := plugins.path_of(name)) is not None:
            return load(path)
        entries = self.entries()
        found = [entry for entry in entries if entry.name == name]
        if not found:
            raise EnvironmentInvalid(
                f"no environment {name!r}{suggestion(name, {e.name for e in entries})}",
                fix="autoclave env list shows them; a path to a directory works too",
            )
        if len(found) > 1:
            raise EnvironmentInvalid(
                f"{len(found)} environments are called {name!r}",
                problems=tuple(f"from {entry.origin}" for entry in found),
                fix="rename one, or name it by its path",
            )
        return found[0].open()

    def survey(self) -> list[Entry | Broken]:
        """Open every one; those that cannot be used come back as Broken."""
        out: list[Entry | Broken] = []
        for entry in self.entries():
            try:
                self.open(entry.name)
            except AutoclaveError as error:
                out.append(Broken(name=entry.name, origin=entry.origin, error=error))
            else:
                out.append(entry)
        return out

    def add(self, path: Path) -> tuple[LoadedEnvironment, Path]:
        """Check the directory and register it under its own name. The files stay where they are."""
        environment = load(path)
        name = environment.spec.name
        link = self.home / name
        taken = [entry for entry in self.entries() if entry.name == name and entry.origin != str(link)]
        if taken:
            raise EnvironmentInvalid(
                f"the name {name!r} is taken by {taken[0].origin}", fix="change `name` in its environment.toml"
            )
        if Path(environment.spec.source).name != FILE_NAME:
            raise EnvironmentInvalid(f"{environment.spec.source} must be called {FILE_NAME} to be registered")
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        if link.is_symlink():
            link.unlink()
        elif link.exists():
            raise EnvironmentInvalid(f"{link} is in the way", fix="move it elsewhere")
        link.symlink_to(environment.base.resolve(), target_is_directory=True)
        return environment, link

    def remove(self, name: str) -> Path:
        """Take a registered directory out of the registry, also one that is broken or gone; return where it lay. Its files stay."""
        links = sorted(p for p in self.home.iterdir() if p.is_symlink()) if self.home.is_dir() else []
        found = [link for link in links if link.name == name]
        if not found:
            names = {link.name for link in links}
            known = f"`env add` registered: {', '.join(sorted(names)) or 'none'}"
            raise EnvironmentInvalid(f"no registered directory is called {name!r}{suggestion(name, names)}", fix=known)
        place = found[0].readlink()
        found[0].unlink()
        return place


def _package(point: EntryPoint) -> str:
    return f"{point.dist.name} ({point.value})" if point.dist else point.value


def _name(path: Path) -> str:
    """Return the name that the directory's file gives itself; the directory's own where it cannot be read."""
    import tomllib

    file = path / FILE_NAME if path.is_dir() else path
    try:
        name = tomllib.loads(file.read_text("utf-8")).get("name")
    except (OSError, ValueError):
        name = None
    return name if isinstance(name, str) else path.name


def _from_directory(path: Path) -> Callable[[], Environment]:
    return lambda: load(path)


def _from_package(name: str) -> Callable[[], Environment]:
    def opened() -> Environment:
        environment = plugins.load(Group.ENVIRONMENTS, name)()
        if environment.spec.name != name:
            raise EnvironmentInvalid(f"the plug-in {name!r} gives an environment that calls itself {environment.spec.name!r}")
        result: Environment = environment
        return result

    return opened
