"""Records for analysis: Parquet files of a run, and SQL over them or over the journal. Needs the extra `rollout` (DuckDB)."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from rollout.journal import Contents, read
from rollout.terms import State
from sandbox.errors import EnvironmentInvalid, RuntimeUnavailable

_NESTED = ("turns", "actions", "timings", "extra")


def rows(contents: Contents) -> list[dict[str, Any]]:
    """One flat row a trajectory, joined with where it ended. One without an outcome is `open`."""
    out = []
    for record in contents.trajectories.values():
        row = {name: value for name, value in asdict(record).items() if name not in _NESTED}
        row |= {f"env_{name}": value for name, value in asdict(record.timings).items()}
        row |= {"tool_calls": len(record.own_actions), "generated": record.generated, "oldest_version": record.oldest_version}
        outcome = contents.outcomes.get(record.id)
        row |= {"state": State.OPEN.value, "reason": "", "advantage": None, "weight": None, "gap": None, "batch": ""}
        if outcome is not None:
            ended = asdict(outcome)
            row["env_reset_s"] = ended.pop("reset_s")
            del ended["trajectory"]
            row |= ended
        out.append(row)
    return out


def actions(contents: Contents) -> list[dict[str, Any]]:
    """One row an action, those of a shared prefix once."""
    return [
        {"trajectory": record.id, "task": record.task, **asdict(action), "arguments": json.dumps(dict(action.arguments))}
        for record in contents.trajectories.values()
        for action in record.own_actions
    ]


def to_parquet(journal: Path, folder: Path) -> dict[str, Path]:
    """Write `trajectories.parquet` and `actions.parquet`; return their paths."""
    contents = read(journal)
    if not contents.trajectories:
        raise EnvironmentInvalid(f"{journal} holds no trajectory yet")
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    with _database() as database:
        for name, table in (("trajectories", rows(contents)), ("actions", actions(contents))):
            if not table:
                continue
            _load(database, name, table)
            written[name] = folder / f"{name}.parquet"
            database.sql(f"select * from {name}").write_parquet(str(written[name]), compression="zstd")
    return written


def query(journal: Path, sql: str) -> tuple[Sequence[str], Sequence[Sequence[Any]]]:
    """Run one query over the tables `trajectories` and `actions` of a run; return the columns and rows."""
    contents = read(journal)
    duckdb = _duckdb()
    with _database() as database:
        for name, table in (("trajectories", rows(contents)), ("actions", actions(contents))):
            if table:
                _load(database, name, table)
        try:
            found = database.execute(sql)
            return [column[0] for column in found.description], found.fetchall()
        except duckdb.Error as error:
            raise EnvironmentInvalid(f"the query failed: {error}") from error


def _load(database: Any, name: str, table: Sequence[Mapping[str, Any]]) -> None:
    """Let DuckDB find the types from newline-delimited JSON, over every row."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", prefix="autoclave-", encoding="utf-8") as file:
        for row in table:
            file.write(json.dumps(row, default=str) + "\n")
        file.flush()
        most = max(16_777_216, 2 * max(len(json.dumps(row, default=str)) for row in table))
        database.execute(
            f"create table {name} as select * from read_json(?, format = 'newline_delimited', sample_size = -1,"
            " maximum_object_size = ?)",
            [file.name, most],
        )


def _database() -> Any:
    return _duckdb().connect(":memory:")


def _duckdb() -> Any:
    try:
        return import_module("duckdb")
    except ImportError as error:
        raise RuntimeUnavailable("DuckDB is not installed", fix="pip install 'autoclave[rollout]'") from error
