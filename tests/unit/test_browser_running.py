"""Which processes of a browser say something of the state, and which are its own parts."""

from __future__ import annotations

import pytest

from probes.browser.running import without_parts
from sandbox.model import ProcessInfo, Role

CHROMIUM = "/usr/lib/chromium/chromium"
BROWSER = [CHROMIUM, "--headless", "--remote-debugging-pipe"]


def process(pid: int, parent: int, *argv: str, role: Role = Role.SERVER, resource: str | None = "web") -> ProcessInfo:
    return ProcessInfo(pid=pid, parent=parent, argv=argv, role=role, resource=resource)


@pytest.mark.parametrize("program", [CHROMIUM, "/proc/self/exe"])
def test_a_part_counts_for_nothing_however_far_its_start_has_come(program: str) -> None:
    """Chromium starts its network service as /proc/self/exe: a check that read it before it had its name gave an alarm."""
    processes = [
        process(7, 1, *BROWSER),
        process(8, 7, program, "--type=utility", "--utility-sub-type=network.mojom.NetworkService"),
        process(9, 7, CHROMIUM, "--type=zygote"),
        process(10, 9, program, "--type=renderer"),
    ]
    assert [p.pid for p in without_parts(processes, frozenset({"web"}))] == [7]


@pytest.mark.parametrize(
    "stranger",
    [
        process(8, 7, "/tmp/mine", "--type=utility"),
        process(8, 7, "/proc/self/exe", "left"),
        process(8, 1, "/proc/self/exe", "--type=utility"),
        process(8, 7, "/proc/self/exe", "--type=utility", role=Role.AGENT),
        process(8, 7, "/proc/self/exe", "--type=utility", resource="other"),
    ],
)
def test_what_only_looks_like_a_part_counts(stranger: ProcessInfo) -> None:
    assert stranger in without_parts([process(7, 1, *BROWSER), stranger], frozenset({"web"}))
