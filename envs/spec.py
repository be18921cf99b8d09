"""The shape of `environment.toml`: one strict model a table. What they mean together is checked by `envs.rules`, and
`envs.lower` turns them into `sandbox.model.EnvironmentSpec`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sandbox.model import PageDo

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,39}$", description="lower case, digits, `-` and `_`; a letter first")]
Text = Annotated[str, Field(min_length=1)]
Inside = Annotated[str, Field(pattern=r"^/", description="an absolute path as the agent sees it")]
Depths = Literal["quick", "deep"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class _OpenTable(BaseModel):
    """A table whose further keys are options of its kind."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class LimitsTable(_Table):
    """Bounds of one instance: sizes in MiB, times in seconds."""

    memory_mb: int = Field(1024, ge=16)
    cpus: float = Field(1.0, gt=0)
    pids: int = Field(256, ge=4)
    disk_mb: int = Field(2048, ge=1)
    file_mb: int = Field(1024, ge=1)
    descriptors: int = Field(1024, ge=32)
    output_bytes: int = Field(1_000_000, ge=1024)
    action_s: float = Field(60.0, gt=0)


class ResetTable(_Table):
    """How a namespace returns to golden."""

    method: Literal["hook", "clean", "restore", "rebuild"] = "restore"
    hook: list[Text] = Field(default_factory=list, description="argv of the author's own reset, run inside as the agent")
    hook_script: str = Field("", description="instead of `hook`: a script file with a shebang, run inside as the agent")
    hook_limit_s: float = Field(120.0, gt=0)
    restore_every: int = Field(0, ge=0, description="under hook or clean: restore after so many leases; 0 is never")
    max_resets: int = Field(0, ge=0, description="retire a namespace after so many resets; 0 is never")
    max_age_s: float = Field(0.0, ge=0, description="retire a namespace after so many seconds; 0 is never")


class CheckTable(_Table):
    """When to check, and how deep."""

    deep_every: int = Field(20, ge=1)
    deep_after_s: float = Field(600.0, gt=0)
    required_depth: Depths = "quick"
    window: Literal["strict", "exposed-only"] = "strict"
    max_ready_age_s: float = Field(900.0, gt=0)
    probe_limit_s: float = Field(30.0, gt=0)
    instance_every: int = Field(100, ge=1, description="shared instances: read the whole after so many leases on it")
    quarantine_limit: float = Field(
        1.0, ge=0, le=1, description="leasing stops above this share of quarantined ones among the last judged; 1: never"
    )
    quarantine_window: int = Field(20, ge=1, le=10_000, description="how many of the last judged trajectories that looks at")
    instance_after_s: float = Field(600.0, gt=0, description="shared instances: and so long after the first of them")
    instance_drain_s: float = Field(
        600.0, gt=0, description="shared instances: how long leases may end before that, until they are ended"
    )


class ResourceTable(_OpenTable):
    """A typed part of the environment; further keys are options of its kind."""

    kind: Text


class ProbeTable(_OpenTable):
    """A probe beside the default ones; further keys are options of its kind."""

    name: Name
    kind: Text
    resource: str | None = None
    depth: Depths = "quick"


class VolatileTable(_Table):
    """Fields that may differ between fresh instances, and why."""

    pattern: Text = Field(description="`probe/field`, shell-style")
    reason: str = Field(min_length=8)


class SharedTable(_Table):
    """A directory that many namespaces see read-only."""

    path: Text = Field(description="relative to the environment's directory, or absolute")
    mount: Inside


class CallTable(_Table):
    """A call of the DevTools protocol."""

    method: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z]*\.[a-z][A-Za-z]*$")]
    params: dict[str, Any] = Field(default_factory=dict)


class StepTable(_Table):
    """One thing that is done on a page: exactly one of `goto` (an address), `click`, `fill`, `select`, `upload` (Playwright
    selectors)."""

    goto: str = ""
    click: str = ""
    fill: str = ""
    select: str = ""
    upload: str = ""
    text: str = Field("", description="what is typed, the option that is chosen, or the content of the file that is uploaded")
    file: str = Field("", description="the name of the file that is uploaded")
    may_fail: bool = Field(False, description="the next step follows also where the page refuses this one")

    @property
    def does(self) -> list[PageDo]:
        """What of it is given; one, where it is valid."""
        return [do for do in PageDo if getattr(self, do, "")]


class DestructiveTable(_Table):
    """A destructive thing that `env check` does: `run` (shell text), `argv`, `sql`, in a browser `script` (the body of an async
    function, run where `visit` leads) and `calls`, or `steps` on its page. It is a leak of the environment's own catalogue, too."""

    name: Name
    what: str = Field("", description="what it leaves behind, for people")
    seen: Depths = Field("deep", description="the least depth at which a check that follows no reset must see it")
    repaired_by: Literal["clean", "restore", "rebuild"] = Field("restore", description="the weakest reset that must undo it")
    blind: str = Field("", description="why no probe can see it; the probe score then leaves it out, with this reason")
    run: str = ""
    argv: list[Text] = Field(default_factory=list)
    sql: list[Text] = Field(default_factory=list)
    resource: str | None = None
    role: str = ""
    visit: Annotated[str, Field(pattern=r"^(https?|data|about):")] | None = None
    script: str = ""
    calls: list[CallTable] = Field(default_factory=list)
    steps: list[StepTable] = Field(default_factory=list)


class TaskTable(_Table):
    """One task; also one line of a JSON Lines file of tasks."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,79}$")]
    family: Text = "general"
    difficulty: Literal["easy", "medium", "hard"] = "medium"
    split: Literal["train", "held-out"] | None = Field(None, description="absent: decided by [split]")
    prompt: Text
    start: dict[str, dict[str, Any]] = Field(default_factory=dict, description="options of a start state, by resource")
    success: dict[str, Any] = Field(description="the check: kind = sql or command, and its keys")


class SplitTable(_Table):
    """How tasks without a `split` are divided: the same seed gives the same split, on every machine."""

    seed: int = 0
    held_out: float = Field(0.2, ge=0, lt=1)


class EnvironmentFile(_Table):
    """`environment.toml`."""

    name: Name
    version: Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+){0,2}([-+.][0-9A-Za-z.-]+)?$")]
    description: str = ""
    root: str = Field("host", description="the `namespaces` runtime's: `host`, `image`, or the absolute path of an unpacked image")
    image: str = Field("", description="the `docker` runtime's, and of `root = image`; empty: autoclave/base")
    runtime: str = Field("", description="the container runtime of the Docker engine, e.g. `runsc`; empty: its default")
    workdir: Inside = "/workspace"
    network: Literal["none"] = "none"
    isolation: Literal["instance", "database", "schema", "directory", "context"] = Field(
        "instance", description="what a namespace has to itself: a whole instance, or a part of one that several share"
    )
    namespaces_per_instance: int = Field(8, ge=1, le=100, description="where they share one")
    env: dict[str, str] = Field(default_factory=dict)
    limits: LimitsTable = Field(default_factory=lambda: LimitsTable.model_validate({}))
    reset: ResetTable = Field(default_factory=lambda: ResetTable.model_validate({}))
    check: CheckTable = Field(default_factory=lambda: CheckTable.model_validate({}))
    resources: dict[Name, ResourceTable] = Field(default_factory=dict)
    probes: list[ProbeTable] = Field(default_factory=list)
    volatile: list[VolatileTable] = Field(default_factory=list)
    shared: list[SharedTable] = Field(default_factory=list)
    destructive: list[DestructiveTable] = Field(default_factory=list)
    tasks: str | list[TaskTable] = Field(default_factory=list, description="a file (.jsonl or .toml), or [[tasks]]")
    split: SplitTable = Field(default_factory=lambda: SplitTable.model_validate({}))


def json_schema() -> dict[str, Any]:
    """The JSON Schema of `environment.toml`, for editors."""
    schema = EnvironmentFile.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
