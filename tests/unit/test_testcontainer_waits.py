"""What testcontainers would wait for is waited for, or named as what cannot be."""

from __future__ import annotations

import re
from typing import Any

import pytest
from testcontainers.core.wait_strategies import (
    CompositeWaitStrategy,
    ExecWaitStrategy,
    HttpWaitStrategy,
    LogMessageWaitStrategy,
    PortWaitStrategy,
)

from envs.testcontainer import ports_of, ready_of
from sandbox.resources.container import ReadyOptions


def ready(*strategies: Any) -> ReadyOptions:
    problems: list[str] = []
    found = ReadyOptions.model_validate(ready_of(CompositeWaitStrategy(*strategies), problems))
    assert not problems
    return found


def test_one_condition_of_each_kind_is_carried_over_with_the_longest_limit() -> None:
    found = ready(
        LogMessageWaitStrategy("up^").with_startup_timeout(5),
        PortWaitStrategy(80).with_startup_timeout(90),
        HttpWaitStrategy(80, "/health").with_startup_timeout(7),
        ExecWaitStrategy(["true"]).with_startup_timeout(6),
    )
    assert (found.log, found.port, found.http, found.command, found.limit_s) == ("up^", 80, "/health", ["true"], 90)


@pytest.mark.parametrize("pattern", [re.compile("(?i)up"), re.compile("up"), re.compile("^up$", re.MULTILINE)])
def test_a_pattern_that_means_the_same_here_is_taken(pattern: re.Pattern[str]) -> None:
    assert ready(LogMessageWaitStrategy(pattern)).log == pattern.pattern


@pytest.mark.parametrize(
    ("strategies", "named"),
    [
        ([LogMessageWaitStrategy("one"), LogMessageWaitStrategy("two")], "'one' and 'two'"),
        ([HttpWaitStrategy(80), PortWaitStrategy(81)], "80 and 81"),
        ([HttpWaitStrategy(80, "/a"), HttpWaitStrategy(80, "/b")], "'/a' and '/b'"),
        ([CompositeWaitStrategy(PortWaitStrategy(80)), PortWaitStrategy(81)], "80 and 81"),
        ([LogMessageWaitStrategy(re.compile("up", re.IGNORECASE))], "flags"),
        ([LogMessageWaitStrategy(re.compile("^up"))], "MULTILINE"),
        ([LogMessageWaitStrategy("up", predicate_streams_and=True)], "together"),
    ],
)
def test_a_condition_that_would_be_lost_is_named(strategies: list[Any], named: str) -> None:
    problems: list[str] = []
    ready_of(CompositeWaitStrategy(*strategies), problems)
    assert any(named in problem for problem in problems), problems


def test_a_port_of_the_host_is_named_as_what_cannot_be() -> None:
    problems: list[str] = []
    assert list(ports_of({80: None, "443/tcp": None, 6379: 16379}, problems)) == [80, 443, 6379]
    assert ["with_bind_ports(6379, 16379)" in problem for problem in problems] == [True]
