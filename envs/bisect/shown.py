"""What a bisection found, for a person."""

from __future__ import annotations

from rich.markup import escape
from rich.syntax import Syntax

from envs.bisect.report import BisectReport
from envs.bisect.search import Found, Once
from sandbox.model import VerdictStatus

_SHOWN = 5
Lines = list[str | Syntax]


def report(found: BisectReport) -> Lines:
    """The answer first, then what it rests on."""
    history, account = found.history, found.account
    out: Lines = [
        f"{history.quarantine} of {escape(history.environment)}: {_count(history.suspects, 'suspect')} on {history.namespace},"
        f" reset by {found.method.value}{_others(found)}",
        f"looked for: {escape(_listed(found.sought))}",
    ]
    out += _answer(found)
    if found.by_itself:
        out.append(f"The reset changes by itself, whoever used the state before: {escape(_listed(sorted(found.by_itself)))}")
    if isinstance(found.found, Found) and found.unexplained:
        out.append(f"Not explained by it: {escape(_listed(found.unexplained))} (look for those with --field)")
    out += _doubts(found)
    replayed = f"{account.actions} actions and {account.resets} resets in {account.namespaces} fresh namespaces"
    out.append(f"replayed {replayed}, {found.seconds:.1f} s")
    return out


def _others(found: BisectReport) -> str:
    """The other methods of its resets: not every trajectory was followed by the one that failed."""
    others = sorted({method.value for methods in found.resets.values() for method in methods} - {found.method.value})
    return f", and before that by {', '.join(others)}" if others else ""


def _answer(found: BisectReport) -> Lines:
    if (culprit := found.culprit) is None:
        return [f"[bold]{_nothing(found)}[/]"]
    assert isinstance(found.found, Found)
    trajectory, action = culprit
    which = f"{'first action' if found.found.first else 'action'} {action.number}"
    out: Lines = [
        f"[bold red]The reset does not hold after trajectory {escape(trajectory)}, {which}:[/] {escape(action.text)}",
        f"differs afterwards: {escape(_listed(sorted(found.found.fields)))}",
    ]
    every = [(segment.trajectory, each) for segment in found.found.plan for each in segment.actions][:-1]
    if every:
        out.append(f"It takes {_count(len(every), 'other')} before it{'' if found.found.minimal else ', not all of them perhaps'}:")
        out += [f"  {escape(name)}, action {each.number}: {escape(each.text)}" for name, each in every]
    if found.entry is None:
        out.append("Its reproduction is too long for one action of environment.toml, or no text, or takes commands and a page.")
        return out
    out.append(Syntax(found.entry.toml.rstrip(), "toml", background_color="default", word_wrap=True))
    if found.fails_alone:
        where = f"written to {found.written}" if found.written else "--write FILE puts it into environment.toml"
        where = f"not written: {found.unwritten}" if found.unwritten else where
        out.append(f"Alone, it leaves the same ({escape(where)}).")
    else:
        why = f" ({found.entry_refused})" if found.entry_refused else ": it takes a reset in between, or time"
        leaves = "the same, and does not come to its end" if found.entry_leaves else "nothing"
        out.append(f"As one act it leaves {leaves}{escape(why)}; nothing was written.")
    return out


def _nothing(found: BisectReport) -> str:
    if isinstance(found.found, Once):
        name = found.history.segments[found.found.segment].trajectory
        return (
            f"It was left once, by trajectory {escape(name)}, and not again when that was replayed: it depends on time or chance."
        )
    if found.by_itself and not found.unexplained:
        return "No trajectory is to blame: the reset itself changes this."
    if found.verdict is VerdictStatus.CLEAN:
        return "It does not reproduce: everything was done again, and the reset held."
    return "It does not reproduce, and not everything could be done again as it was."


def _doubts(found: BisectReport) -> Lines:
    """What keeps a replay from being the history."""
    out: Lines = []
    for trajectory, gaps in found.gaps.items():
        out += [f"not replayed, {escape(trajectory)}: {escape(gap)}" for gap in gaps[:_SHOWN]]
    for (trajectory, number), how in list(found.account.diverged.items())[:_SHOWN]:
        out.append(f"went otherwise, {escape(trajectory)}, action {number}: {escape(how)}")
    out += [f"a reset failed {escape(text)}" for text in found.account.failed_resets[:_SHOWN]]
    return out


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
