"""The kind `container`: a container of any image, as its engine lists it and as it reads from outside."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pydantic import Field, model_validator

from probes.canonical import listing, name_of
from probes.command import output_fields
from probes.kinds import Options, digest_of_kind, read_options, resource_of
from probes.probe import Findings, ProbeContext
from sandbox.actions import is_secret
from sandbox.errors import EnvironmentInvalid
from sandbox.model import Depth, EnvironmentSpec, ProbeSpec
from sandbox.ports.container import SHARED, ContainerState, ContainerView, HasContainers

PATHS = "changed paths/"
FILES = "changed files/"
_VOLUME = "volume "
_MEMORY = "memory "
_VARIABLE = "env/"
_CANNOT_RUN = (126, 127)


class ContainerOptions(Options):
    """What of a container is read."""

    exclude: tuple[str, ...] = Field(default=(), description="shell-style patterns of absolute paths that are not read")
    inside: dict[str, tuple[str, ...]] = Field(
        default_factory=dict,
        description="commands whose output is read, by name: for what a server holds in memory. They run inside, so that they are "
        "worth what the container's files are, which this probe reads too",
    )
    pairs: tuple[str, ...] = Field(
        default=(), description="which of `inside` print lines `name=value`, so that each becomes a field of its own"
    )

    @model_validator(mode="after")
    def _known(self) -> ContainerOptions:
        if unknown := sorted(set(self.pairs) - set(self.inside)):
            raise ValueError(f"pairs: there is no command {', '.join(unknown)} in `inside`")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerProbe:
    """Reads the engine's list of changed files (their contents too, when deep), volumes, settings, mounts, restarts, exit codes;
    and memory, in an environment with a hook."""

    name: str
    resource: str
    options: ContainerOptions
    digest: str
    hooked: bool = False  # its container can live on through resets, and what it holds in memory with it

    @property
    def depth(self) -> Depth:
        return Depth.QUICK

    @property
    def alone(self) -> bool:
        return False

    def depth_of(self, field: str, *, in_place: bool) -> Depth | None:
        return Depth.DEEP if not in_place and (field == FILES or field.startswith(_VOLUME)) else Depth.QUICK

    async def read(self, context: ProbeContext) -> Findings:
        subject = context.subject
        if not isinstance(subject, HasContainers):
            raise EnvironmentInvalid(
                f"resource {self.resource} is no container in this runtime",
                fix="the probe kind `container` needs the docker runtime",
            )
        view = subject.container(self.resource)
        fields = state_fields(await view.state())
        problems: list[str] = []
        for name, argv in self.options.inside.items():  # before the files are read, for what it may write
            found, problem = await self._inside(view, name, argv, context.limit_s)
            fields |= found
            problems += [problem] if problem else []
        changes = await view.changes(contents=context.thorough)
        fields[PATHS] = self._listing({path: text.partition(" ")[0] for path, text in changes.items()})
        if self.hooked:
            for target, lines in (await view.memory()).items():
                top = "" if target == SHARED else target
                fields[f"{_MEMORY}{name_of(target)}/"] = self._listing(lines, top=top)
        if context.thorough:
            fields[FILES] = self._listing(changes)
            for target, lines in (await view.volumes()).items():
                fields[f"{_VOLUME}{name_of(target)}/"] = self._listing(lines, top=target)
        return Findings(fields=fields, problems=tuple(problems))

    async def _inside(self, view: ContainerView, name: str, argv: tuple[str, ...], limit_s: float) -> tuple[dict[str, str], str]:
        """Return what it says, and why that proves nothing, where it does not."""
        result = await view.run(argv, limit_s=limit_s / 2)
        if result.timed_out or result.truncated:
            why = f"ran longer than {limit_s / 2:g} s" if result.timed_out else "printed more than the output limit"
            return {}, f"the command inside {name} {why}"
        if result.exit_code in _CANNOT_RUN:
            return {}, f"the command inside {name} cannot be run: {argv[0]} (exit code {result.exit_code})"
        how = "pairs" if name in self.options.pairs else "text"
        found = {"exit code": str(result.exit_code), **output_fields(result.stdout, how)}
        return {f"inside/{name_of(name)}/{field}": text for field, text in found.items()}, ""

    def _listing(self, lines: Mapping[str, str], *, top: str = "") -> str:
        kept = {path: text for path, text in lines.items() if not self._skip(path if not top else f"{top}/{path}")}
        return listing({name_of(path.lstrip("/") or "."): name_of(text) for path, text in kept.items()})

    def _skip(self, path: str) -> bool:
        names = path.split("/")
        return any(fnmatchcase("/".join(names[:n]), p) for p in self.options.exclude for n in range(2, len(names) + 1))


def state_fields(state: ContainerState) -> dict[str, str]:
    """One field for each setting and each mount; and how the container stands."""
    fields = {f"setting/{name_of(name)}": name_of(_shown(name, text)) for name, text in state.settings.items()}
    return fields | {
        "status": state.status,
        "exit code": str(state.exit_code),
        "out of memory": str(state.out_of_memory),
        "restarts": str(state.restarts),
        "mounts": "\n".join(map(name_of, state.mounts)),
    }


def _shown(setting: str, text: str) -> str:
    """A variable that is called like a secret is told apart by a few bits of its digest: reports show what is read."""
    variable = setting.removeprefix(_VARIABLE)
    if variable == setting or not is_secret(variable):
        return text
    return f"withheld, digest {hashlib.blake2b(text.encode('utf-8', 'surrogateescape'), digest_size=4).hexdigest()}"


def create(spec: ProbeSpec, environment: EnvironmentSpec) -> ContainerProbe:
    """Make the probe of a container."""
    options = read_options(spec, ContainerOptions, environment)
    return ContainerProbe(
        name=spec.name,
        resource=resource_of(spec, environment),
        options=options,
        digest=digest_of_kind(spec, options) + (" with memory" if environment.reset.hook else ""),
        hooked=bool(environment.reset.hook),
    )
