"""How environments and their checks are shown to a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from sandbox.model import Baseline, Depth, EnvironmentSpec, Mismatch, TaskSpec

if TYPE_CHECKING:
    from envs.check import CheckReport
    from envs.planting.score import ProbeScore

_COLOURS = {"clean": "green", "mismatch": "red", "inconclusive": "yellow"}
_ROWS = 40
_FEW = 5


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def environments(rows: Iterable[Mapping[str, Any]]) -> list[str | Table]:
    faults: list[str | Table] = []
    table = _table("Environments", "name", "version", "resources", "tasks", "reset", "probe score", "from")
    for row in rows:
        if row["error"]:
            table.add_row(row["name"], "-", "[red]cannot be used[/red]", "", "", "", escape(_from(row["origin"])))
            faults.append(f"[red]{row['name']}[/red]: {escape(row['error'])}")
        else:
            kinds = ", ".join(row["resources"])
            score = "-" if row["score"] is None else _share(row["score"])
            table.add_row(row["name"], row["version"], kinds, str(row["tasks"]), row["reset"], score, escape(_from(row["origin"])))
    return [table, *faults]


def _share(score: Mapping[str, Any]) -> str:
    """A stored score in a few characters; what is no longer true of it is said by `env show`."""
    marks = [word for word, holds in (("sample", score["sample"]), ("stale", score["stale"])) if holds]
    said = f" ({', '.join(marks)})" if marks else ""
    return f"{score['caught']}/{score['planted']}{said}"


def _from(origin: str) -> str:
    """A directory, or a package without the name of its entry point (`--json` has it): whole words fit at 80 columns."""
    return origin if origin.startswith("/") else origin.partition(" (")[0]


def environment(spec: EnvironmentSpec, tasks: Sequence[TaskSpec], scores: Sequence[Mapping[str, Any]] = ()) -> list[str | Table]:
    """Show the parts of an environment."""
    facts = _table(f"{spec.name} {spec.version}", "", "")
    limits = spec.limits
    facts.add_row("description", escape(spec.description) or "-")
    facts.add_row("digest", spec.digest[:16])
    facts.add_row("workdir", spec.workdir)
    if spec.isolation.shares:
        shared = f"{spec.isolation.value}: {spec.namespaces_per_instance} namespaces share an instance"
        facts.add_row("isolation", f"{shared}, read as a whole every {spec.check.instance_every} leases")
    facts.add_row("reset", f"{spec.reset.method.value}{' (a hook is there too)' if spec.reset.hook else ''}")
    facts.add_row("check", f"deep every {spec.check.deep_every} resets; training needs {spec.check.required_depth.value}")
    facts.add_row("limits", f"{limits.memory_mb} MiB memory, {limits.cpus:g} cpus, {limits.pids} pids, {limits.disk_mb} MiB disk")
    facts.add_row("volatile", ", ".join(escape(v.pattern) for v in spec.volatile) or "nothing")
    facts.add_row("destructive", f"{len(spec.destructive)} actions")
    facts.add_row("probe score", "\n".join(map(_scored, scores)) or f"not measured: autoclave env check {spec.name} --score")
    facts.add_row("source", escape(spec.source))
    resources = _table("Resources", "name", "kind", "options")
    for resource in spec.resources:
        resources.add_row(resource.name, resource.kind, escape(", ".join(f"{k} = {v}" for k, v in resource.options.items())))
    out: list[str | Table] = [facts, resources]
    if spec.probes:
        probes = _table("Probes beside the default ones", "name", "kind", "resource", "depth")
        for probe in spec.probes:
            probes.add_row(probe.name, probe.kind, probe.resource or "-", probe.depth.value)
        out.append(probes)
    if tasks:
        counts = Counter((t.family, t.difficulty) for t in tasks)
        held = Counter(t.family for t in tasks if t.split == "held-out")
        table = _table(f"{len(tasks)} tasks", "family", "easy", "medium", "hard", "held out")
        for family in sorted({t.family for t in tasks}):
            table.add_row(family, *(str(counts[family, d]) for d in ("easy", "medium", "hard")), str(held[family]))
        out.append(table)
    return out


def _scored(score: Mapping[str, Any]) -> str:
    """One stored score, with its date, what it missed, and why it may not hold any more."""
    drawn = f", of a sample (seed {score['sample']['seed']})" if score["sample"] else ""
    state = "" if score["state"] == "golden" else f" task {score['state']}"
    text = f"{score['caught']} of {score['planted']} planted leaks seen, {score['repaired']} gone after {score['method']}{state}"
    text += f"{' under ' + score['runtime'] if score['runtime'] else ''}{drawn}, {score['at'][:10]}"
    if score["stale"]:
        text += f"; stale, another {' and '.join(score['stale'])} since"
    if score["missed"]:
        text += f"; not seen: {', '.join(score['missed'][:_FEW])}{' ...' if len(score['missed']) > _FEW else ''}"
    return escape(text)


def task(spec: TaskSpec) -> list[str | Table]:
    facts = _table(spec.id, "", "")
    facts.add_row("family", f"{spec.family}, {spec.difficulty}, {spec.split}")
    facts.add_row("prompt", escape(spec.prompt))
    facts.add_row("start", ", ".join(spec.start) or "golden")
    facts.add_row("success", escape(", ".join(f"{k} = {v}" for k, v in spec.success.items())))
    return [facts]


def baseline(name: str, recorded: Baseline) -> list[str | Table]:
    lines: list[str | Table] = [
        f"Baseline of {name}: {recorded.fields} fields, {recorded.instances} fresh instances agree (digest {recorded.digest[:16]})"
    ]
    if recorded.drift:
        lines.append(_differences("Build drift: fields that differ only in a second build", recorded.drift))
    return [*lines, *_review(recorded)]


def _review(recorded: Baseline) -> list[str | Table]:
    """What is new against the baseline before it, for a person to look at."""
    lines: list[str | Table] = [f"[red]suspicious[/red]: {escape(text)}" for text in recorded.suspicions]
    if recorded.former:
        because = ", ".join(recorded.changed)
        lines.append(f"It took the place of {recorded.former[:16]}, since this is not as it was: {escape(because)}")
        if recorded.changes:
            lines.append(_differences("For review: fields that differ from the baseline before it", recorded.changes))
        else:
            lines.append("It reads the same, field by field.")
    return lines


def report(found: CheckReport) -> list[str | Table]:
    """Show what `env check` found, the verdict last."""
    steps = _table(f"{found.environment}: reset by {found.method.value}", "step", "", "seconds", "")
    for step in found.steps:
        mark = "[green]ok[/green]" if step.ok else "[red]no[/red]"
        steps.add_row(step.name, mark, f"{step.seconds:.2f}", escape(step.detail))
    out: list[str | Table] = [steps, *_review(found.baseline)]
    if found.differences:
        out.append(_differences("Fields that differ from the baseline after the reset", found.differences))
    out += [f"problem: {escape(text)}" for text in found.problems]
    if found.score is not None:
        out += _score(found.score)
    verdict = found.verdict.value
    out.append(f"verdict: [bold {_COLOURS[verdict]}]{verdict}[/]")
    return out


def _score(found: ProbeScore) -> list[str | Table]:
    """The probe score by kind, then what was missed and what the reset left, by name."""
    table = _table("Planted leaks", "kind", "planted", "seen quick", "seen deep", "gone after the reset")
    for kind in dict.fromkeys(o.kind for o in found.outcomes):
        these = [o for o in found.outcomes if o.kind == kind and not o.refused and not o.blind]
        counts = (len(these), *(sum(o.seen is d for o in these) for d in (Depth.QUICK, Depth.DEEP)), sum(not o.left for o in these))
        table.add_row(kind, *map(str, counts))
    drawn = f" (a sample of {len(found.outcomes)} of {found.of}, seed {found.seed})" if found.seed is not None else ""
    said = f"probe score: {found.caught} of {found.planted} seen without a reset, {found.repaired} gone after it{drawn}"
    lines = {
        "not seen": found.missed,
        "left by the reset": found.left,
        "left although this reset must undo it": found.broken,
        "seen by deep only, though quick should": found.late,
        "false alarms (fields that the reset changes by itself)": found.false_alarms,
        "could not be planted": tuple(f"{o.name} ({o.refused})" for o in found.outcomes if o.refused),
    }
    alone = {name: found.alone(name) for name in sorted({p for o in found.outcomes for p in o.probes})}
    if alone:
        lines["seen by this probe alone"] = tuple(f"{name} {len(leaks)}" for name, leaks in alone.items())
    told = [escape(f"{what}: {', '.join(names)}") for what, names in lines.items() if names]
    return [table, said, *told]


def _differences(title: str, mismatches: Sequence[Mismatch]) -> Table:
    table = _table(title, "probe", "field", "expected", "actual")
    for item in mismatches[:_ROWS]:
        table.add_row(item.probe, escape(item.field), _cell(item.expected), _cell(item.actual))
    if len(mismatches) > _ROWS:
        table.caption = f"and {len(mismatches) - _ROWS} more (--json shows all)"
    return table


def _cell(value: str | None) -> str:
    if value is None:
        return "[dim]absent[/dim]"
    return escape(value if len(value) <= 120 else f"{value[:117]}...")
