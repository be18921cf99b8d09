"""Which tools an environment's agent is offered."""

from __future__ import annotations

from rollout.tools.browser import Click, Fill, Goto, Look, Select, Upload
from rollout.tools.files import EditFile, ReadFile, WriteFile
from rollout.tools.shell import Shell, Sql
from rollout.tools.tool import Tool
from sandbox.model import EnvironmentSpec

_FILES = ("repo", "files")


def tools_for(spec: EnvironmentSpec) -> tuple[Tool, ...]:
    """SQL where there is a database, files where there are some, the browser's actions where there is one, and always a shell."""
    kinds = {resource.kind for resource in spec.resources}
    tools: list[Tool] = []
    if "postgres" in kinds:
        tools.append(Sql(limit_s=spec.limits.action_s))
    if kinds.intersection(_FILES):
        tools += [ReadFile(), WriteFile(), EditFile()]
    if "browser" in kinds:
        tools += [Goto(), Look(), Click(), Fill(), Select(), Upload()]
    return (*tools, Shell(limit_s=spec.limits.action_s))
