"""Makes the tasks: `python -m envs.shop.generate [--seed N] [--out DIRECTORY]`.

Seeds the shop on a throw-away server, lets every family draft its tasks from the golden state, divides them into train and
held-out, and writes `tasks.jsonl` (what the environment offers) and `solutions.jsonl` (a right and a wrong way for each, for
tests only; never mounted anywhere). The same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from envs import drafting
from envs.scratch import server
from envs.shop import scratch
from envs.shop.draft import Claim, Draft, World
from envs.shop.families import COUNTS, FAMILIES

SEED = 20260331
HELD_OUT = 0.2
HERE = Path(__file__).parent
RESOURCE = "db"


def sources_digest() -> str:
    """Digest what the tasks are made from: a change of any of it asks for a new run."""
    names = [*(HERE / "db").glob("*.sql"), HERE / "draft.py", HERE / "generate.py", *(HERE / "families").glob("*.py")]
    return drafting.sources_digest([*sorted(names), Path(drafting.__file__)])


def draft(conninfo: str, seed: int) -> dict[str, list[Draft]]:
    """Let every family draft from the golden state; refuse other counts than COUNTS."""
    with psycopg.connect(
        conninfo, row_factory=dict_row, options="-c timezone=UTC -c datestyle=ISO,YMD -c default_transaction_read_only=on"
    ) as connection:

        def query(sql: str) -> Sequence[Mapping[str, Any]]:
            return connection.execute(sql.encode()).fetchall()

        world = World(query, seed)
        drafts = {family: list(make(world)) for family, make in FAMILIES.items()}
    for family, made in drafts.items():
        counts = {d: sum(x.difficulty == d for x in made) for d in COUNTS}
        if counts != COUNTS:
            raise ValueError(f"{family} made {counts}, not {COUNTS}")
    return drafts


def render(drafts: Mapping[str, Sequence[Draft]], seed: int) -> tuple[str, str]:
    """Return the texts of tasks.jsonl and solutions.jsonl."""
    tasks, solutions = [], []
    for family, made in drafts.items():
        named = {f"{family}-{number:02d}": item for number, item in enumerate(made, start=1)}
        held = drafting.held_out({task: item.difficulty for task, item in named.items()}, seed, HELD_OUT)
        for task, item in named.items():
            tasks.append({
                "id": task,
                "family": family,
                "difficulty": item.difficulty,
                "split": "held-out" if task in held else "train",
                "prompt": item.prompt,
                "success": {"kind": "sql", "resource": RESOURCE, "queries": [_query(c) for c in item.claims]},
            })  # fmt: skip
            solutions.append({"id": task, "solution": item.solution, "wrong": item.wrong})
    head = f"# Made by python -m envs.shop.generate --seed {seed} from {sources_digest()}; do not edit.\n"
    lines = ["".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows) for rows in (tasks, solutions)]
    return head + lines[0], head + lines[1]


def _query(claim: Claim) -> dict[str, str]:
    return {"name": claim.name, "query": claim.sql}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m envs.shop.generate", description="Make the shop's tasks.")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=HERE)
    given = parser.parse_args()
    with server() as conninfo:
        tasks, solutions = render(draft(scratch.seed(conninfo, "shop"), given.seed), given.seed)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "tasks.jsonl").write_text(tasks, "utf-8")
    (given.out / "solutions.jsonl").write_text(solutions, "utf-8")


if __name__ == "__main__":
    main()
