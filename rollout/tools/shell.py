"""Shell and SQL: a command in the sandbox, a statement through the client that lies there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollout.policies.policy import ToolSpec
from rollout.tools.tool import Acting, Observation, described, text_schema


class Shell:
    """Runs a shell command as the agent."""

    def __init__(self, *, limit_s: float = 60.0) -> None:
        self.limit_s = limit_s
        self.spec = ToolSpec(
            name="shell", description="Run a shell command and see what it prints.", parameters=text_schema(command="for /bin/sh")
        )

    async def act(self, session: Acting, arguments: Mapping[str, Any]) -> Observation:
        return described(await session.run(["/bin/sh", "-c", arguments["command"]], limit_s=self.limit_s))


class Sql:
    """Sends statements to the environment's database as the agent; several run in one transaction."""

    def __init__(self, *, limit_s: float = 30.0) -> None:
        self.limit_s = limit_s
        self.spec = ToolSpec(
            name="sql",
            description="Run SQL on the database and see the rows.",
            parameters=text_schema(query="one or more statements"),
        )

    async def act(self, session: Acting, arguments: Mapping[str, Any]) -> Observation:
        argv = ["psql", "-qX", "-v", "ON_ERROR_STOP=1", "-1", "-P", "pager=off", "-f", "-"]
        return described(await session.run(argv, stdin=arguments["query"].encode(), limit_s=self.limit_s))
