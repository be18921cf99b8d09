"""Writes tasks.jsonl: every list with every thing and amount, in an order that is mixed once, 64 of them held out.

Run it as `python -m rollout.recipes.errands.generate`; the file is checked in.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LISTS = ("kitchen", "garden", "office")
THINGS = (
    *("apples", "bread", "candles", "eggs", "forks", "gloves", "jars", "lamps"),
    *("milk", "nails", "onions", "paper", "rope", "salt", "tea", "wire"),
)
AMOUNTS = tuple(range(2, 8))
HELD_OUT = 64


def tasks() -> Iterator[dict[str, Any]]:
    """Yield the tasks as the file has them."""
    every = [(where, thing, amount) for where in LISTS for thing in THINGS for amount in AMOUNTS]
    random.Random("errands").shuffle(every)
    for number, (where, thing, amount) in enumerate(every):
        yield {
            "id": f"{where}-{thing}-{amount}",
            "family": "add",
            "difficulty": "easy",
            "split": "held-out" if number < HELD_OUT else "train",
            "prompt": f"Add {amount} {thing} to the {where} list.",
            "success": {
                "kind": "command",
                "argv": ["/bin/sh", "/checks/checks/list.sh", where, f"{amount} {thing}"],
                "checks": ["checks", "seed"],
            },
        }


def main() -> None:
    text = "".join(json.dumps(task, separators=(",", ":")) + "\n" for task in tasks())
    Path(__file__).with_name("tasks.jsonl").write_text(text, "utf-8")


if __name__ == "__main__":
    main()
