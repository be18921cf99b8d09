"""Probe scores in the ledger: one for each baseline, method and extent, the newest of each."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sandbox.model import ResetMethod, StoredScore

WHOLE = StoredScore(
    baseline="key-1",
    environment="shop",
    method=ResetMethod.RESTORE,
    catalogue="c1",
    body={"planted": 9, "caught": 8, "missed": ["db/x"]},
    at=datetime(2026, 11, 30, 4, tzinfo=UTC),
)


async def test_what_was_saved_is_read_back(ledger: Any) -> None:
    await ledger.save_score(WHOLE)

    assert list(await ledger.scores()) == [WHOLE]
    assert list(await ledger.scores("shop")) == [WHOLE]
    assert list(await ledger.scores("repo")) == []


async def test_a_newer_one_takes_the_place_of_the_same_and_of_no_other(ledger: Any) -> None:
    later = replace(WHOLE, at=datetime(2026, 11, 30, 5, tzinfo=UTC), body={"planted": 9, "caught": 9})
    sample = replace(WHOLE, sampled=True, at=datetime(2026, 11, 30, 6, tzinfo=UTC))
    hook = replace(WHOLE, method=ResetMethod.HOOK, at=datetime(2026, 11, 30, 3, tzinfo=UTC))
    for score in (WHOLE, hook, later, sample):
        await ledger.save_score(score)

    assert list(await ledger.scores("shop")) == [sample, later, hook]


async def test_the_ledger_dates_what_has_no_date(ledger: Any) -> None:
    await ledger.save_score(replace(WHOLE, at=None))

    assert (await ledger.scores())[0].at is not None
