"""The probe score of the shipped environments, as an author measures it: all that applies is seen without a reset and gone after
`restore`, without a false alarm; and what the hand-written hooks leave.

With AUTOCLAVE_WRITE_DOCS=1 each run rewrites its own section of docs/probe-scores.md. `::TEST[namespaces-repo]` chooses one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from envs.registry import Registry
from probes.defaults import default_probes
from sandbox.settings import load

pytestmark = [pytest.mark.acceptance, pytest.mark.namespaces, pytest.mark.postgres, pytest.mark.slow, pytest.mark.timeout(7200)]
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "probe-scores.md"
HEAD = """# Probe scores of the shipped environments

Every leak of the catalogue that applies is planted alone on a fresh state ([the procedure](probe-score.md)): at which depth do the
probes see it in place, and what is left of it after a reset, by `restore` and by the hook that most authors would write?

Made by `AUTOCLAVE_WRITE_DOCS=1 python -m pytest tests/acceptance/test_probe_scores.py -m acceptance`, a section at a time. Do not
edit.
"""
# Probes that have nothing of their own here: a resource lies where they would read, or only the author's service writes there.
ELSEWHERE = {"shop": set(), "repo": {"workspace", "home (default)"}, "portal": {"workspace", "web"}}


def scored(name: str, runtime: str, home: Path, *more: str) -> Mapping[str, Any]:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("AUTOCLAVE_")}
    environ["AUTOCLAVE_HOME"] = str(home)
    argv = (sys.executable, "-m", "sandbox.cli.main", "env", "check", name, "--score", "--runtime", runtime, "--json", *more)
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=6000, check=False)
    assert done.returncode in (0, 1), done.stderr[-2000:]
    found: Mapping[str, Any] = json.loads(done.stdout)["score"]
    return found


@pytest.mark.parametrize("name", ["shop", "repo", pytest.param("portal", marks=pytest.mark.browser)])
@pytest.mark.parametrize("runtime", ["namespaces", pytest.param("docker", marks=pytest.mark.docker)])
def test_every_applicable_leak_is_caught_and_gone_after_restore(name: str, runtime: str, passable_dir: Path, tally: Any) -> None:
    restore = scored(name, runtime, passable_dir / "home")
    hook = scored(name, runtime, passable_dir / "home", "--method", "hook")
    tally("leaks", restore["planted"])
    if os.environ.get("AUTOCLAVE_WRITE_DOCS") == "1":
        write(f"{name}, {runtime}", {"hook": hook, "restore": restore})

    assert [restore[key] for key in ("missed", "late", "left", "false_alarms")] == [[], [], [], []]
    assert restore["planted"] >= 70
    assert hook["missed"] == []
    assert len(hook["left"]) >= 20, "a hook that leaves so little is not what most authors write"
    spec = Registry(load(home=passable_dir / "home")).open(name).spec
    idle = {p.name for p in default_probes(spec)} - {probe for probe, leaks in restore["only_seen_by"].items() if leaks}
    assert idle <= ELSEWHERE[name], f"without {', '.join(sorted(idle))} nothing would be missed"


def write(title: str, scores: Mapping[str, Mapping[str, Any]]) -> None:
    """Put the section of that title in its place; the others stay as they are."""
    text = PAGE.read_text("utf-8") if PAGE.exists() else HEAD
    sections = {part.partition("\n")[0]: part for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]}
    sections[title] = section(title, scores)
    PAGE.write_text(HEAD + "".join(f"\n## {sections[name].rstrip()}\n" for name in sorted(sections)), "utf-8")


def section(title: str, scores: Mapping[str, Mapping[str, Any]]) -> str:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    leaks = {method: {leak["name"]: leak for leak in score["leaks"]} for method, score in scores.items()}
    lines = [title, "", f"On {datetime.now(UTC):%Y-%m-%d} at {commit.strip()}.", ""]
    lines += [
        "| reset by | planted | seen quick | seen deep only | not seen | gone after it | left | false alarms |",
        "|---|" + "---|" * 7,
    ]
    for method, score in scores.items():
        visible = [leak for leak in score["leaks"] if not leak["blind"]]
        at = Counter(leak["seen"] for leak in visible)
        cells = (
            score["planted"],
            at["quick"],
            at["deep"],
            at[None],
            score["repaired"],
            len(score["left"]),
            len(score["false_alarms"]),
        )
        lines.append(f"| {method} | {' | '.join(map(str, cells))} |")
    alone = scores["restore"]["only_seen_by"]
    lines += ["", f"Leaks that one probe alone saw: {', '.join(f'{probe} {count}' for probe, count in alone.items())}.", ""]
    if alarms := [f"{method} `{field}`" for method, score in scores.items() for field in score["false_alarms"]]:
        lines += [f"What a reset changes by itself: {', '.join(alarms)}.", ""]
    lines += [
        f"| leak | what it leaves | seen | {' | '.join(f'after {m}' for m in scores)} |",
        "|---|---|---|" + "---|" * len(scores),
    ]
    for name in dict.fromkeys(name for of_method in leaks.values() for name in of_method):
        found = [of_method.get(name) for of_method in leaks.values()]
        first = next(leak for leak in reversed(found) if leak is not None)
        seen = first["seen"] or (f"cannot be: {first['blind']}" if first["blind"] else "**not seen**")
        lines.append(f"| {name} | {first['what']} | {seen} | {' | '.join(map(cell, found))} |")
    unplanted = Counter(why for part in ("refused", "inapplicable") for why in scores["restore"][part].values())
    if unplanted:
        lines += ["", f"Not planted: {'; '.join(f'{count}: {why}' for why, count in unplanted.most_common())}."]
    return "\n".join(lines) + "\n"


def cell(leak: Mapping[str, Any] | None) -> str:
    if leak is None:
        return "not planted"
    if not leak["left"]:
        return "gone"
    return f"**left**, seen {leak['left_at']}" if leak["left_at"] else "**the reset fails**"
