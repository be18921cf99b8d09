"""The success checks that a task may have: what a task file may write under `success`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

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


class BrowserClaim(_Check):
    """What must lie at a place of the browser's storage, with exactly one of three rules: it is a text of JSON that is `document`;
    it is a list whose items match `records`, each by the keys that are named there, in any order and no others; it is a list
    that holds `items` and no others, in any order."""

    name: Annotated[str, Field(min_length=1)]
    path: Annotated[list[str], Field(min_length=1)]
    document: Any = None
    records: list[dict[str, Any]] | None = None
    items: list[Any] | None = None

    @model_validator(mode="after")
    def _one_rule(self) -> BrowserClaim:
        if sum(rule in self.model_fields_set for rule in ("document", "records", "items")) != 1:
            raise ValueError("needs exactly one of document, records, items")
        return self


class BrowserCheck(_Check):
    """Claims about what the browser keeps for one origin, read in a blank page of that origin: `local_storage` by key,
    `indexed_db` by database and store, `caches` by name (paths of what they hold), `service_workers` (scope and script)."""

    kind: Literal["browser"]
    resource: str
    origin: Annotated[str, Field(pattern=r"^https?://[a-z0-9.-]+(:[0-9]+)?$")]
    claims: Annotated[list[BrowserClaim], Field(min_length=1)]
    limit_s: float = Field(60.0, gt=0)


class AllCheck(_Check):
    """Several checks; success is that of all of them."""

    kind: Literal["all"]
    checks: Annotated[list[Annotated[SqlCheck | BrowserCheck, Field(discriminator="kind")]], Field(min_length=1)]


Check = SqlCheck | CommandCheck | BrowserCheck | AllCheck
AnyCheck = Annotated[Check, Field(discriminator="kind")]
_ADAPTER: TypeAdapter[Check] = TypeAdapter(AnyCheck)
_KINDS: Mapping[str, type[_Check]] = {"sql": SqlCheck, "command": CommandCheck, "browser": BrowserCheck, "all": AllCheck}
# What a validator adds to the place of a fault beside the author's own keys.
INNER_NAMES = frozenset({*_KINDS, "SqlQuery", "str"})


def parse(success: Mapping[str, Any]) -> Check:
    """Return the check that a task describes; raise pydantic.ValidationError."""
    return _ADAPTER.validate_python(dict(success))


def parts(check: Check) -> Sequence[SqlCheck | CommandCheck | BrowserCheck]:
    """Return what a check consists of."""
    return tuple(check.checks) if isinstance(check, AllCheck) else (check,)


def keys(success: Mapping[str, Any]) -> set[str]:
    """Return the keys that a check of this kind may have."""
    return set(_KINDS.get(str(success.get("kind")), CommandCheck).model_fields)
