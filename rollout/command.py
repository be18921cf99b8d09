"""`autoclave rollout`: runs trajectories over a pool and says what may be trained on; and reprints why a task was chosen."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.validators import Number

from rollout.folders import folder_of
from sandbox.cli import output
from sandbox.cli.options import Home, Json, load
from sandbox.cli.running import run as run_to_end

if TYPE_CHECKING:
    from rollout.setup import Options
    from sandbox.settings import Settings

app = App(name="rollout", help="Run trajectories over a pool, and train on none that is not cleared.")

app.command("rollout.advice.calc_command:app", name="calc")
app.command("rollout.recipes.command:learn", name="learn")
app.command("rollout.recipes.command:contamination", name="contamination")
app.command("rollout.pilot.command:app", name="pilot")
app.command("rollout.study.command:app", name="study")
app.command("rollout.references.command:references", name="references")
app.command("rollout.meters.command:trajectory_map", name="map")
app.command("rollout.meters.command:measure", name="measure")
app.command("rollout.meters.command:triage", name="triage")

COUNT = Number(gte=1)
SHARE = Number(gte=0, lte=1)


@app.command
def run(
    *,
    environment: Annotated[str, Parameter(help="The environment's name or path.")],
    engine: Annotated[str, Parameter(help="scripted, http or vllm.")] = "scripted",
    model: Annotated[str, Parameter(help="A model's directory (vllm, and http for its tokenizer).")] = "",
    url: Annotated[str, Parameter(help="Where `vllm serve` listens (http).")] = "",
    trajectories: Annotated[int, Parameter(validator=COUNT, help="How many; rounded up to whole groups.")] = 16,
    group_size: Annotated[int, Parameter(validator=COUNT, help="Trajectories of one task.")] = 4,
    batch_groups: Annotated[int, Parameter(validator=COUNT, help="Groups that a batch wants.")] = 2,
    max_gap: Annotated[int, Parameter(validator=Number(gte=0), help="Policy versions that a trajectory may be old.")] = 4,
    completeness: Annotated[float, Parameter(validator=Number(gt=0, lte=1), help="Share of a batch's groups that suffices.")] = 1.0,
    late: Annotated[Literal["next", "keep_off_policy", "discard"], Parameter(help="What becomes of late trajectories.")] = "next",
    weight: Annotated[Literal["full", "by-gap"], Parameter(help="What an older trajectory counts: all, or 1/(1+gap).")] = "full",
    mode: Annotated[Literal["gated", "optimistic"], Parameter(help="Ship after clearance, or before it and recall.")] = "gated",
    learner: Annotated[
        Literal["none", "stepping", "grpo"], Parameter(help="What makes updates: nothing, a version without new weights, or GRPO.")
    ] = "none",
    learning_rate: Annotated[float, Parameter(validator=Number(gt=0), help="Of grpo.")] = 1e-5,
    kl_weight: Annotated[float, Parameter(validator=Number(gte=0), help="Of grpo's divergence from the first model.")] = 0.0,
    reward: Annotated[Literal["task", "shaped"], Parameter(help="The task's own, or with a tenth for readable actions.")] = "task",
    keep_flat: Annotated[bool, Parameter(negative="", help="Ship groups in which all rewards are equal, too.")] = False,
    contaminate: Annotated[float, Parameter(validator=SHARE, help="Share of trajectories whose leak the reset misses.")] = 0.0,
    alarm: Annotated[float, Parameter(validator=SHARE, help="Share of quarantined trajectories that stops the run.")] = 0.5,
    select: Annotated[bool, Parameter(negative="", help="Scout tasks; whole groups only for those in the middle band.")] = False,
    scouts: Annotated[int, Parameter(validator=COUNT, help="Trajectories that estimate a task's success.")] = 3,
    band: Annotated[tuple[float, float], Parameter(help="Success rates worth training on.")] = (0.2, 0.8),
    revisit: Annotated[
        int, Parameter(validator=Number(gte=0), help="Decisions between looks at a task beyond the band; 0: never.")
    ] = 10,
    judge_again: Annotated[float, Parameter(validator=SHARE, help="Share of trajectories that are judged twice.")] = 0.0,
    meters: Annotated[bool, Parameter(help="Measure lines, power and memory while it runs.")] = True,
    branch_turn: Annotated[int, Parameter(validator=Number(gte=0), help="Fork a group's members after this many turns.")] = 0,
    split: Annotated[Literal["train", "held-out"], Parameter(help="Which tasks.")] = "train",
    task: Annotated[tuple[str, ...], Parameter(help="Only these tasks; may be repeated.", negative="")] = (),
    family: Annotated[tuple[str, ...], Parameter(help="Only tasks of these families; may be repeated.", negative="")] = (),
    style: Annotated[Literal["json", "xml"], Parameter(help="How the prompt asks for tool calls; both are read.")] = "json",
    size: Annotated[int, Parameter(validator=COUNT, help="Namespaces.")] = 4,
    slots: Annotated[int, Parameter(validator=COUNT, help="Requests that the model serves at once.")] = 8,
    tool_limit: Annotated[int, Parameter(validator=Number(gte=0), help="Acts of one tool at once; 0: as many as namespaces.")] = 0,
    serve: Annotated[
        Literal["begun", "longest"],
        Parameter(help="Who goes first at the model: whose later turn it is, or who will take longest."),
    ] = "begun",
    turns: Annotated[int, Parameter(validator=COUNT, help="Answers of one trajectory at most.")] = 12,
    answer_tokens: Annotated[int, Parameter(validator=Number(gte=0), help="Tokens of one answer at most; 0: by the engine.")] = 0,
    total_tokens: Annotated[int, Parameter(validator=Number(gte=0), help="Tokens of a trajectory at most; 0: by the engine.")] = 0,
    temperature: Annotated[float, Parameter(validator=Number(gt=0), help="Of sampling.")] = 1.0,
    seed: Annotated[int, Parameter(help="Of tasks' members, sampling and contamination.")] = 0,
    connect: Annotated[bool, Parameter(negative="", help="Use the pool that `autoclave pool up` keeps in this home.")] = False,
    home: Home = None,
    json: Json = False,
) -> int:
    """Run trajectories and ship batches of those that are cleared.

    Every admitted trajectory ends in exactly one state; the counts add up. Exit code 1 when the run was stopped early
    (contamination alarm, nothing moved) or when a batch holds a trajectory that was quarantined after it shipped.

    Example: autoclave rollout run --environment shop --engine scripted --trajectories 16 --group-size 4 --json
    """
    from rollout.admission.remaining import Serve
    from rollout.setup import Options
    from rollout.terms import Late

    options = Options(
        environment=environment,
        engine=engine,
        model=model,
        url=url,
        trajectories=trajectories,
        group_size=group_size,
        batch_groups=batch_groups,
        max_gap=max_gap,
        completeness=completeness,
        late=Late(late),
        mode=mode,
        weight=weight,
        learner=learner,
        learning_rate=learning_rate,
        kl_weight=kl_weight,
        reward=reward,
        keep_flat=keep_flat,
        contaminate=contaminate,
        alarm=alarm,
        select=select,
        scouts=scouts,
        band=band,
        revisit=revisit,
        judge_again=judge_again,
        meters=meters,
        branch_turn=branch_turn,
        split=split,
        tasks=task,
        families=family,
        style=style,
        size=size,
        slots=slots,
        tool_limit=tool_limit,
        serve=Serve(serve),
        temperature=temperature,
        seed=seed,
        turns=turns,
        answer_tokens=answer_tokens,
        total_tokens=total_tokens,
    )
    summary = run_to_end(_run(options, load(home), connect=connect))
    if json:
        output.print_json(summary)
    else:
        from rollout.report import terminal

        output.show(*terminal(summary))
    return 1 if summary["stopped"] or summary["quarantined_in_batches"] else 0


@app.command
def why(
    task: str,
    /,
    *,
    run: Annotated[str, Parameter(help="A run's id; the latest run by default.")] = "",
    home: Home = None,
    json: Json = False,
) -> int:
    """Say why a task was chosen: each term of its score at each decision, and who came next.

    Example: autoclave rollout why refund-01
    """
    from rollout.admission.planner import decisions
    from rollout.report import decisions_table

    folder = folder_of(load(home).home, run)
    found = decisions(folder / "decisions.jsonl", task)
    if json:
        output.print_json({"run": folder.name, "task": task, "decisions": found})
    else:
        output.show(decisions_table(folder.name, found))
    return 0


@app.command
def export(
    folder: Path,
    /,
    *,
    run: Annotated[str, Parameter(help="A run's id; the latest run by default.")] = "",
    home: Home = None,
    json: Json = False,
) -> int:
    """Write a run's trajectories and actions as Parquet files.

    Example: autoclave rollout export ./records
    """
    from rollout.export import to_parquet

    written = to_parquet(folder_of(load(home).home, run) / "trajectories.jsonl", folder)
    if json:
        output.print_json(written)
    else:
        output.show(*(str(path) for path in written.values()))
    return 0


@app.command
def query(
    sql: str,
    /,
    *,
    run: Annotated[str, Parameter(help="A run's id; the latest run by default.")] = "",
    home: Home = None,
    json: Json = False,
) -> int:
    """Query a run's tables `trajectories` and `actions` with DuckDB's SQL.

    Example: autoclave rollout query "select family, state, count(*) from trajectories group by all"
    """
    from rollout.export import query as ask
    from rollout.report import rows_table

    columns, rows = ask(folder_of(load(home).home, run) / "trajectories.jsonl", sql)
    if json:
        output.print_json({"columns": columns, "rows": rows})
    else:
        output.show(rows_table(columns, rows))
    return 0


async def _run(options: Options, settings: Settings, *, connect: bool) -> dict[str, Any]:
    from rollout.contaminate import Contaminator, open_leaky_pool
    from rollout.report import write
    from rollout.run import play, prepare
    from sandbox.clock import SystemClock
    from sandbox.errors import EnvironmentInvalid
    from sandbox.wiring import Pool, environment, open_pool

    if connect and options.contaminate:
        raise EnvironmentInvalid("--contaminate needs a pool of its own", fix="leave --connect out")
    progress = output.Progress()
    opened: Any = environment(options.environment, settings)
    name = opened.spec.name
    named = replace(options, environment=name)
    prepared = prepare(named, environment=opened, home=settings.home, clock=SystemClock())
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(prepared.engine)  # a model that does not load is said before a pool is built for it
        if not connect:
            progress.say(f"opening a pool of {options.size} namespaces of {name} (built and baselined the first time)")
        leave: Contaminator | None = None
        pool: Any
        if connect:
            pool = await stack.enter_async_context(Pool.connect(settings))
        elif options.contaminate:
            leave = Contaminator(name, share=options.contaminate, seed=options.seed)
            leaky = open_leaky_pool(opened, leave, size=options.size, settings=settings)
            pool, opened = await stack.enter_async_context(leaky)
        else:
            pool = await stack.enter_async_context(open_pool([opened], size=options.size, settings=settings))
        summary = await play(prepared, pool=pool, environment=opened, say=progress.say, leave=leave, check=not connect)
    return write(summary, settings.reports)
