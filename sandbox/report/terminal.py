"""The same for a terminal: rich tables that read at 80 columns and use 200. Text of unknown origin never goes through markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from sandbox.model import Mismatch, Recall
from sandbox.report.contents import AuditReport, CheckEntry
from sandbox.report.difference import WIDE, Differences
from sandbox.report.tables import Fitted, labelled, plain, table, word
from sandbox.report.text import amount, visible


def audit(report: AuditReport) -> RenderableType:
    """The result of an audit, the verdict last."""
    parts: list[RenderableType] = []
    parts.append(_checks(report.checks) if report.checks else Text("No check was made: nothing is clean.", style="yellow"))
    for c in report.checks:
        if c.mismatches or c.problems:
            parts.append(
                Text(f"\n{visible(c.environment)} {visible(c.namespace)}, {c.depth.value} check {visible(c.id)}", style="bold")
            )
            parts += [Text(f"  {visible(p.probe)} gave no answer: {visible(p.reason)}", style="yellow") for p in c.problems]
            parts.append(Differences(c.mismatches))
    if report.quarantines:
        rows = [
            {
                "id": q.id, "environment_name": q.environment, "namespace": q.namespace, "reason": q.reason.value,
                "depth": q.depth.value if q.depth else None, "from": q.first, "to": q.last, "trajectories": len(q.trajectories),
                "held_back": len(q.trajectories), "at": q.at.isoformat(), "policy": q.policy.value,
            }
            for q in report.quarantines
        ]  # fmt: skip
        parts += [Text(""), quarantines(rows)]
    parts += [part for found in report.recalls for part in (Text(""), recall(found))]
    parts += [
        Text(f"seal broken: {visible(s.environment)} {visible(s.snapshot)} {visible(s.detail)}", style="red")
        for s in report.broken_seals
    ]
    parts += [Text(f"leak not seen: {visible(leak.name)}", style="red") for leak in report.leaks if not leak.caught]
    parts += [Text(f"not done: {visible(text)}", style="yellow") for text in report.problems]
    parts.append(_summary(report))
    parts += [labelled([(name, path) for name, path in (("HTML", report.html), ("JUnit", report.junit)) if path])]
    return Group(*parts)


def _checks(checks: Sequence[CheckEntry]) -> RenderableType:
    """One row a namespace, depth and verdict, since an audit of many clean checks is read for the others."""
    grouped: dict[tuple[str, str, str, str], list[CheckEntry]] = {}
    for c in checks:
        grouped.setdefault((c.environment, c.namespace, c.depth.value, c.status.value), []).append(c)
    return Fitted(lambda width: _check_rows(grouped, wide=width >= WIDE))


def _check_rows(grouped: Mapping[tuple[str, str, str, str], Sequence[CheckEntry]], *, wide: bool) -> RenderableType:
    columns = ("namespace", "depth", "verdict", ">checks", ">fields", ">differ", ">seconds")
    shown = table(*(["environment"] if wide else []), *columns, title="Checks")
    for (environment, namespace, depth, status), same in grouped.items():
        differing = sum(len(c.mismatches) for c in same)
        shown.add_row(
            *([plain(environment)] if wide else []), plain(namespace), plain(depth), word(status), plain(f"{len(same):,}"),
            plain(f"{sum(c.fields for c in same):,}"), plain(f"{differing:,}" if differing else ""),
            plain(f"{sum(c.seconds for c in same):.2f}"),
        )  # fmt: skip
    return shown


def _summary(report: AuditReport) -> Text:
    held = len(report.seals) - len(report.broken_seals)
    said = (
        amount(len(report.checks), "check"),
        f"{amount(len(report.mismatches), 'field')} differing",
        f"{amount(len(report.quarantined), 'trajectory')} quarantined",
        f"{amount(len(report.recalled_updates), 'update')} recalled",
        f"{held} of {amount(len(report.seals), 'seal')} intact",
        f"{report.seconds:.1f} s",
    )
    return Text.assemble("\n", ", ".join(said), "\nverdict: ", word(report.verdict.value))


def demo(result: Mapping[str, Any]) -> RenderableType:
    """The demo's end: what each agent left and what showed it, then the keys of `autoclave demo --json`."""
    planted, caught = result["leaks_planted"], result["leaks_caught"]
    left = table("environment", "left behind by an agent", "after the reset by hand, this still differed", title="\nWhat was found")
    for leak in result.get("leaks", ()):
        fields = leak["fields"]
        seen = (
            plain(f"{fields[0]}{f' and {len(fields) - 1} more' if len(fields) > 1 else ''}")
            if fields
            else Text("missed", "bold red")
        )
        left.add_row(plain(leak["environment"]), plain(leak["name"]), seen)
    alone = [f"{name}: {amount(len(fields), 'field')}" for name, fields in result.get("by_hand_alone", {}).items() if fields]
    rows: list[tuple[str, RenderableType]] = [
        ("environment", plain(_joined(result["environment"]))),
        ("runtime, storage", plain(f"{result['runtime']}, {result['storage']}")),
        ("sessions", plain(result["sessions"])),
        ("planted leaks caught", Text(f"{caught} of {planted}", style="green" if caught == planted else "bold red")),
        ("false alarms under restore", Text(str(result["false_alarms"]), style="red" if result["false_alarms"] else "green")),
        ("left by the reset itself", plain(_joined(alone) if alone else "nothing")),
        ("trajectories quarantined", plain(_count_and_ids(result["quarantined"]))),
        ("trajectories cleared", plain(_count_and_ids(result["cleared"]))),
    ]
    times = (
        ("reset_by_hand_ms", "reset by hand"),
        ("reset_ms", "restore"),
        ("check_ms", "quick check"),
        ("acquire_ms", "acquire a session"),
    )
    for key, name in times:
        if key in result:
            rows.append((f"{name}, p50 / p99", plain(_percentiles(result[key]))))
    rows.append(("report", plain(result["report"])))
    if result["quarantined"] and "home" in result:
        rows.append(("ask why", plain(f"autoclave why {result['quarantined'][0]} --home {result['home']}")))
    return Group(left, labelled(rows))


def why(found: Mapping[str, Any]) -> RenderableType:
    """Everything that the ledger knows about one trajectory."""
    lease, window, clearance = found["lease"], found.get("window"), found["clearance"]
    heading = Text.assemble(("trajectory ", "bold"), (visible(str(found["trajectory"])), "bold"), ": ", word(clearance["state"]))
    if clearance.get("text") and clearance["text"] != clearance["state"]:
        heading.append(f"  ({visible(clearance['text'])})", style="dim")
    lineage = found["lineage"]
    began = lineage["opened_by"]["method"] if lineage.get("opened_by") else "the build"
    held = (
        f"{lease['granted']} to {lease['ended'] or 'now'} by {lease['holder'] or 'nobody named'}, {lease['outcome'] or 'running'}"
    )
    extent = f"{lineage['id']}: leases {lineage['leases']['from']} to {lineage['leases']['to']}, begun by {began}"
    rows: list[tuple[str, RenderableType]] = [
        ("environment", plain(f"{found['environment']}{', task ' + str(found['task']) if found.get('task') else ''}")),
        ("namespace", plain(f"{found['namespace']}, lease {lease['sequence']}, generation {lease['generation']}")),
        ("held", plain(held)),
        ("start check", _check(found.get("start_check"))),
        ("end check", _check(found.get("end_check"))),
        ("lineage", plain(extent)),
        ("cleared by", _check(clearance["cleared_by"]) if clearance.get("cleared_by") else plain("")),
        ("decision", plain(f"{clearance['by']}: {clearance['note']}" if clearance.get("by") else "")),
        ("fork of", plain(found.get("parent") or "")),
        ("forks", plain(_joined(found["forks"]))),
        ("siblings", plain(_joined(found["siblings"]))),
        ("batches", plain(_joined(f"{b['batch']} as {b['shipped_as']}, policy {b['policy_version']}" for b in found["batches"]))),
        ("updates", plain(_joined(found["updates"]))),
        ("checkpoints", plain(_joined(found["checkpoints"]))),
    ]
    parts: list[RenderableType] = [heading, labelled(rows)]
    if window:
        parts += [Text(f"\nquarantine {visible(str(window['quarantine']))}: {_window(window)}", style="bold"), *_evidence(window)]
    return Group(*parts)


def quarantines(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """A list of quarantines."""
    if not rows:
        return Text("No quarantine: nothing was held back.", style="green")
    return Fitted(lambda width: _quarantines(rows, wide=width >= WIDE))


def _quarantines(rows: Sequence[Mapping[str, Any]], *, wide: bool) -> RenderableType:
    extra = (">held back", "environment", "policy") if wide else ()  # what a narrow terminal has no room for: see `show`
    shown = table("quarantine", "namespace", "reason", "window", "since", *extra, title="Quarantines")
    for row in rows:
        window = f"{row['depth'] + ' ' if row.get('depth') else ''}{row['from']}-{row['to']}"
        since = str(row["at"]).replace("T", " ")[: 19 if wide else 16]
        cells = [plain(row["id"]), plain(row["namespace"]), word(row["reason"]), plain(window)]
        cells.append(plain(since if wide else since[5:]))
        if wide:
            held = f"{row['held_back']} of {row['trajectories']}"
            cells += [plain(held), plain(row["environment_name"]), plain(row.get("policy") or "")]
        shown.add_row(*cells)
    return shown


def quarantine(found: Mapping[str, Any]) -> RenderableType:
    """One quarantine: its window, the trajectories it names, what it reached, and every field that differed."""
    heading = Text.assemble(
        ("quarantine ", "bold"), (visible(str(found["id"])), "bold"), ": ", word(found["reason"]), f", {_window(found)}"
    )
    members = table("trajectory", ">lease", "task", "effect", "stands", title="Trajectories")
    for m in found["members"]:
        said = f"{m['clearance']}{': ' + m['note'] if m.get('note') else ''}"
        members.add_row(plain(m["trajectory"]), plain(m["sequence"]), plain(m.get("task") or ""), plain(m["effect"]), plain(said))
    reached = found.get("recall") or {}
    rows = [(name, plain(_joined(reached.get(name, ())))) for name in ("batches", "updates", "checkpoints", "siblings")]
    return Group(
        heading,
        labelled([("at", plain(found["at"])), ("note", plain(found.get("note") or "")), *rows]),
        Text(""),
        members,
        *_evidence(found),
    )


def recall(found: Recall) -> RenderableType:
    """What quarantined trajectories had already reached."""
    name = f"quarantine {visible(found.quarantine)}" if found.quarantine else "all quarantines"
    if not found.trajectories:
        return Text(f"{name}: no trajectory is quarantined.", style="green")
    reached = (
        ("batches", found.batches),
        ("updates", found.updates),
        ("checkpoints", found.checkpoints),
        ("siblings", found.siblings),
    )
    rows = [("trajectories", plain(_joined(found.trajectories)))]
    rows += [(label, plain(_joined(ids) or "none")) for label, ids in reached]
    style = "bold red" if found.updates else "bold"
    return Group(Text(f"{name} reached {amount(len(found.updates), 'update')}", style=style), labelled(rows))


def pool_status(found: Mapping[str, Any]) -> RenderableType:
    """What a running pool holds."""
    pools = table("environment", ">size", ">ready", ">leased", ">creating", ">waiting", "states", "trouble", title="Pool")
    for name, e in found["environments"].items():
        trouble = e.get("broken") or e.get("halted") or e.get("breaker") or ""
        former = "".join(f", {f['live']} of {f['version']}" for f in e["former"])
        states = ", ".join(f"{state} {count}" for state, count in e["states"].items())
        pools.add_row(
            plain(f"{name} {e['version']}"), *(plain(e[key]) for key in ("size", "ready", "leased", "creating", "waiting")),
            plain(states + former),
            Text(visible(str(trouble)), style="red"),
        )  # fmt: skip
    ledger = found["ledger"]
    rows: list[tuple[str, RenderableType]] = [
        (name, plain(", ".join(f"{key} {count}" for key, count in ledger[name].items())))
        for name in ("leases", "checks", "clearances")
    ]
    rows += [(name, plain(ledger[name])) for name in ("quarantines", "batches")]
    rows += [
        (f"quarantined, {name}", plain("{quarantined} of the last {judged} judged".format_map(e["quarantine_rate"])))
        for name, e in found["environments"].items()
    ]
    rows += [
        (f"{key.removesuffix('_ms')}, p50 / p99", plain(_percentiles(ledger[key])))
        for key in ("reset_ms", "check_ms", "acquire_ms")
    ]
    rows += [
        (f"trouble: {visible(str(duty))}", Text(visible(str(text)), style="red"))
        for duty, text in found.get("troubles", {}).items()
    ]
    rows.append(("in force", plain(", ".join(f"{k} {v}" for k, v in found["in_force"].items() if not isinstance(v, Mapping)))))
    draining = [Text("draining: nobody is admitted", style="yellow")] if found.get("draining") else []
    return Group(*draining, pools, Text(""), labelled(rows))


def differences(mismatches: Sequence[Mismatch]) -> RenderableType:
    """The difference view alone."""
    return Differences(mismatches)


def _check(found: Mapping[str, Any] | None) -> Text:
    if found is None:
        return Text("none yet", style="dim")
    proof = " by identity" if found.get("identity") else ""
    depth = f"{found.get('vouched_for') or found['depth']}{proof}"
    said = f" {visible(str(found['id']))}, {visible(str(found['purpose']))}, {depth}, {found['fields']:,} fields, {found['when']}"
    return Text.assemble(word(found["verdict"]), said)


def _window(found: Mapping[str, Any]) -> str:
    depth = f"{found['depth']} " if found.get("depth") else ""
    return f"{depth}window of leases {found['from']} to {found['to']} on {visible(str(found['namespace']))} ({found['policy']})"


def _evidence(found: Mapping[str, Any]) -> list[RenderableType]:
    parts: list[RenderableType] = [
        Text(f"{visible(p['probe'])} gave no answer: {visible(p['reason'])}", style="yellow") for p in found.get("problems", ())
    ]
    mismatches = [
        Mismatch(**{key: m[key] for key in ("probe", "field", "expected", "actual")}) for m in found.get("mismatches", ())
    ]
    return [*parts, Differences(mismatches)] if mismatches else parts


def _percentiles(found: Mapping[str, float | None]) -> str:
    shown = [f"{found[key]:,.1f}" if found.get(key) is not None else "-" for key in ("p50", "p99")]
    return " / ".join(shown) + " ms"


def _count_and_ids(ids: Sequence[object]) -> str:
    few = ", ".join(map(str, ids[:4])) + (", ..." if len(ids) > 4 else "")
    return f"{len(ids)} ({few})" if ids else "0"


def _joined(values: object) -> str:
    return values if isinstance(values, str) else ", ".join(map(str, values)) if isinstance(values, Iterable) else str(values)
