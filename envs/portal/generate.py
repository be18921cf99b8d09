"""Makes the tasks: `python -m envs.portal.generate [--seed N] [--out DIRECTORY]`.

Seeds the portal's database on a throw-away server, lets every family draft its tasks from the golden state, divides them into train
and held-out, and writes `tasks.jsonl` (what the environment offers), `documents/` (what the agent may upload) and `solutions.jsonl`
(a right and a wrong way for each, as steps of `envs.portal.driver`, for tests only; never mounted anywhere). The same seed gives
the same bytes.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from envs import drafting
from envs.portal import scratch
from envs.portal.draft import ORIGIN, Draft, World
from envs.portal.families import COUNTS, FAMILIES
from envs.portal.families.office import documents
from envs.scratch import server

SEED = 20261129
HELD_OUT = 0.34
HERE = Path(__file__).parent


def sources_digest() -> str:
    """Digest what the tasks are made from: a change of any of it asks for a new run."""
    names = [
        *(HERE / "db").glob("*.sql"),
        HERE / "draft.py",
        HERE / "generate.py",
        HERE / "people.py",
        *(HERE / "families").glob("*.py"),
    ]
    return drafting.sources_digest([*sorted(names), Path(drafting.__file__)])


def draft(conninfo: str, seed: int) -> tuple[dict[str, list[Draft]], dict[str, str]]:
    """Let every family draft from the golden state; return drafts and the agent's documents. Refuses other counts than COUNTS."""
    options = "-c timezone=UTC -c datestyle=ISO,YMD -c default_transaction_read_only=on"
    with psycopg.connect(conninfo, row_factory=dict_row, options=options) as connection:

        def query(sql: str) -> Sequence[Mapping[str, Any]]:
            return connection.execute(sql.encode()).fetchall()

        world = World(query, seed)
        drafts = {family: list(make(world)) for family, make in FAMILIES.items()}
        files = documents(world)
    for family, made in drafts.items():
        counts = {d: sum(x.difficulty == d for x in made) for d in COUNTS}
        if counts != COUNTS:
            raise ValueError(f"{family} made {counts}, not {COUNTS}")
    return drafts, files


def render(drafts: Mapping[str, Sequence[Draft]], seed: int) -> tuple[str, str]:
    """Return the texts of tasks.jsonl and solutions.jsonl."""
    tasks, solutions = [], []
    for family, made in drafts.items():
        named = {f"{family}-{number:02d}": item for number, item in enumerate(made, start=1)}
        held = drafting.held_out({task: item.difficulty for task, item in named.items()}, seed, HELD_OUT)
        for task, item in named.items():
            tasks.append(
                {
                    "id": task,
                    "family": family,
                    "difficulty": item.difficulty,
                    "split": "held-out" if task in held else "train",
                    "prompt": item.prompt,
                    "success": _success(item),
                }
            )
            solutions.append({"id": task, "solution": item.solution, "wrong": item.wrong})
    head = f"# Made by python -m envs.portal.generate --seed {seed} from {sources_digest()}; do not edit.\n"
    lines = ["".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows) for rows in (tasks, solutions)]
    return head + lines[0], head + lines[1]


def _success(item: Draft) -> dict[str, Any]:
    """What the server knows is asked of the database, what only the browser knows of the browser."""
    checks: list[dict[str, Any]] = [
        {"kind": "sql", "resource": "db", "queries": [{"name": claim.name, "query": claim.sql} for claim in item.claims]}
    ]
    if item.device:
        claims = [{"name": claim.name, "path": list(claim.path), **claim.rule} for claim in item.device]
        checks.append({"kind": "browser", "resource": "browser", "origin": ORIGIN, "claims": claims})
    return {"kind": "all", "checks": checks}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m envs.portal.generate", description="Make the portal's tasks.")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    with server() as conninfo:
        drafts, files = draft(scratch.seed(conninfo), given.seed)
    tasks, solutions = render(drafts, given.seed)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "tasks.jsonl").write_text(tasks, "utf-8")
    (given.out / "solutions.jsonl").write_text(solutions, "utf-8")
    shutil.rmtree(given.out / "documents", ignore_errors=True)
    for name, text in files.items():
        path = given.out / "documents" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
