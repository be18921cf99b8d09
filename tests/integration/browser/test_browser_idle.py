"""The default probe of a browser is not idle, and neither are those beside it: each sees a leak that no other sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs import LoadedEnvironment
from envs.check import baseline
from envs.planting import candidates, survey
from envs.trial import Trial
from sandbox.settings import Settings
from sandbox.wiring import machinery

pytestmark = [pytest.mark.browser, pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(900)]
SOLE = {"web": "web/http-only-cookie", "home": "home/shell-profile", "instance": "network/abstract-socket"}


async def test_each_probe_of_a_browsers_environment_sees_what_no_other_sees(
    browsing: LoadedEnvironment, settings: Settings, tmp_path: Path, nothing_left: None
) -> None:
    async with machinery(settings) as (runtime, ledger):
        start = await baseline(browsing, runtime, ledger)
        async with Trial.open(browsing, runtime, start) as trial:
            found, missing = await candidates(browsing, trial.instance)
            wanted = [c for c in found if c.name in SOLE.values()]
            score = await survey(trial, wanted, inapplicable=missing)

    assert (score.missed, score.left, score.false_alarms) == ((), (), ())
    assert {name: score.alone(name) for name in SOLE} == {name: (leak,) for name, leak in SOLE.items()}
