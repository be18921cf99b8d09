"""The success checks that a task may have: what a task file may write under `success`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

CHECKS_MOUNT = "/checks"


class _Check(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SqlQuery(_Check):
    """One query. Without `expect` it must return one row with one column that is true; with it, exactly these rows as text."""

    query: Annotated[str, Field(min_length=1)]
    expect: list[list[str | None]] | None = None
    name: str = ""


class SqlCheck(_Check):
    """Queries against the end state, run from outside in one read-only transaction; all must hold."""

    kind: Literal["sql"]
    resource: str
    queries: Annotated[list[str | SqlQuery], Field(min_length=1)]
    search_path: str = "pg_catalog"
    limit_s: float = Field(30.0, gt=0)

    def normalized(self) -> list[SqlQuery]:
        return [SqlQuery(query=q) if isinstance(q, str) else q for q in self.queries]


class CommandCheck(_Check):
    """A trusted command in a fresh sandbox over the end state, read-only. Exit code 0 is success; 126 and above, or a timeout,
    is a failed check (reward None). `checks` are directories of the environment, seen read-only at /checks/<their name>."""

    kind: Literal["command"]
    argv: Annotated[list[str], Field(min_length=1)]
    checks: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    limit_s: float = Field(60.0, gt=0)


AnyCheck = Annotated[SqlCheck | CommandCheck, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[SqlCheck | CommandCheck] = TypeAdapter(AnyCheck)


def parse(success: Mapping[str, Any]) -> SqlCheck | CommandCheck:
    """Return the check that a task describes; raise pydantic.ValidationError."""
    return _ADAPTER.validate_python(dict(success))


def keys(success: Mapping[str, Any]) -> set[str]:
    """Return the keys that a check of this kind may have."""
    return set((SqlCheck if success.get("kind") == "sql" else CommandCheck).model_fields)
