"""The catalogue's part for what runs: processes that outlive their command."""

from __future__ import annotations

from probes.leaks.catalogue import Catalogue
from probes.leaks.leak import ShellLeak

LEAKS: tuple[ShellLeak, ...] = (
    ShellLeak(
        name="background-process",
        what="a process that goes on",
        programs=("setsid",),
        shell="setsid sleep 600 >/dev/null 2>&1 </dev/null &",
    ),
    ShellLeak(
        name="rewriter",
        what="a process that keeps writing a file",
        programs=("setsid",),
        shell="setsid sh -c 'while :; do date > planted; sleep 1; done' >/dev/null 2>&1 </dev/null &",
    ),
    ShellLeak(
        name="deaf-process",
        what="a process that ignores SIGTERM",
        programs=("setsid",),
        shell="setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' >/dev/null 2>&1 </dev/null &",
    ),
    ShellLeak(
        name="renamed-process",
        what="a process that calls itself by another name",
        programs=("setsid", "bash"),
        shell="setsid bash -c 'exec -a autoclave-init sleep 600' >/dev/null 2>&1 </dev/null &",
    ),
)
CATALOGUE = Catalogue(kind="process", leaks=LEAKS)
