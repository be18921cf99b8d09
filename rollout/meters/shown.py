"""The meters as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Table:
    """One table; numbers with at most four digits behind the point, None as nothing. Cells are text and no markup: what a check or
    a tool said may hold brackets."""
    from rich.table import Table
    from rich.text import Text

    found = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        found.add_column(column, justify="right" if rows and isinstance(rows[0][index], int | float) else "left")
    for row in rows:
        found.add_row(*(Text(text(value)) for value in row))
    return found


def text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4f}".rstrip("0").rstrip(".")
    return str(value)


def _digits(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3g}"


def meter_tables(found: Mapping[str, Any]) -> list[RenderableType]:
    """The cycle, the tail, the cost, the environments and the lines."""
    cycle, cost = found["cycles"], found["cost_per_accepted"]
    names = ("elapsed_s", "share_of_path", "service_s", "queue_s", "share_of_service", "resource_s")
    stages = [(stage, *(row[n] for n in names)) for stage, row in cycle["stages"].items()]
    seconds = cycle["seconds"]["mean"]
    tail = [(name, row["p50"], row["p90"], row["p99"]) for name, row in found["percentiles"].items()]
    families = [
        (name, row["trajectories"], row["accepted"], row["per_accepted"], row["spent_on_rejected"], row["coverage"])
        for name, row in [*cost["families"].items(), ("together", cost)]
    ]
    timings = found["environments"]
    environment = [
        (name, timings[name]["count"], timings[name]["p50"], timings[name]["p99"], timings[name]["sum_s"])
        for name in ("creation", "reset", "action", "observation", "teardown")
    ]
    lines = [
        (r["line"], r["stage"], r["slope_per_s"], r["waiting_mean"], r["demand"], r["grows"]) for r in found["capacity"]["lines"]
    ]
    memory = [(name, value) for name, value in found["memory"]["categories_mb"].items()]
    return [
        table(f"{found['run']}: {cycle['cycles']} cycles of {text(seconds)} s on average", ("stage", *names), stages),
        table("what a trajectory took", ("", "p50", "p90", "p99"), tail),
        table(
            f"cost per accepted trajectory ({cost['unit']})",
            ("family", "trajectories", "accepted", "each", "on rejected", "coverage"),
            families,
        ),
        table("environments", ("timing", "count", "p50 s", "p99 s", "sum s"), environment),
        table("lines", ("line", "stage", "slope", "mean", "demand", "grows"), lines),
        table("peak memory, MiB", ("category", "peak"), memory),
        f"generation: {text(found['generation']['tokens_per_s'])} tokens a second of the run, "
        f"{text(found['generation']['tokens_per_busy_s'])} while anything was generated",
        f"capacity: {found['capacity']['add_capacity_to'] or 'add none'}: {found['capacity']['why']}",
        f"energy: {_digits(found['energy']['kwh'])} kWh ({found['energy']['how']})",
    ]


def map_tables(found: Mapping[str, Any]) -> list[RenderableType]:
    """A trajectory's spans, and the four answers."""
    from rich.text import Text

    rows = [(s["at_s"], s["seconds"], s["kind"], s["what"], s["dependency"], s["owner"], s["limit"] or "") for s in found["spans"]]
    held, beside = found["answers"]["held_while_waiting"], found["answers"]["ran_beside_it"]
    ended, needed = found["answers"]["what_ended_it"], found["answers"]["needed_by_an_update"]
    waits = "; ".join(
        f"{what} {text(row['seconds'])} s: {', '.join(row['held']) or 'nothing'}" for what, row in held["waits"].items()
    )
    ran = ", ".join(f"{kind} {text(s)} s" for kind, s in beside["seconds"].items())
    artifacts = ", ".join(f"{name}: {'there' if there else 'MISSING'}" for name, there in needed["artifacts"].items())
    lines = [
        f"held while it waited: {waits}",
        f"a model slot while a tool worked: {text(held['model_slot_held_while_a_tool_worked_s'])} s",
        f"ran beside it, of {beside['trajectories']} others: {ran or 'nothing'}",
        f"ended by {ended['reason']} ({ended['class']}) {ended['detail']}",
        f"an update needs: {artifacts}; clearance: {needed['clearance']}; {needed['batch'] or 'in no batch'} {needed['reason']}",
    ]
    title = f"{found['trajectory']} ({found['task']}): {found['state']}"
    return [
        table(title, ("at s", "takes s", "kind", "what", "dependency", "owner", "limit"), rows),
        *(Text(line) for line in lines),
    ]


def triage_table(found: Mapping[str, Any]) -> list[RenderableType]:
    """Three numbers and the verdict."""
    shares = ", ".join(f"{name} {share:.0%}" for name, share in found["stage_shares"].items() if share is not None)
    rows = [
        ("time by stage", shares),
        ("prompts with reward variance", found["prompts_with_reward_variance"]),
        ("peak memory of a trajectory, MiB", found["peak_memory_per_trajectory_mb"]),
    ]
    if found["gpu_time"]["share"] is not None:
        rows.insert(1, ("GPU time in use by stage", ", ".join(f"{n} {s:.0%}" for n, s in found["gpu_time"]["share"].items())))
    waste = [(name, value) for name, value in found["waste"].items()]
    return [
        table(found["run"], ("", ""), rows),
        table("wasted, as a share", ("", ""), waste),
        f"binds: {found['binds']}\n{found['cure']}",
    ]
