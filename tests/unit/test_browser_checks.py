"""Success checks of what a browser keeps: each rule holds where it should and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from envs import browser, success

STATE: Mapping[str, Any] = {
    "local_storage": {"display": '{"theme":"dark","columns":["a","b"]}', "broken": "{"},
    "indexed_db": {"portal": {"drafts": [{"id": 1, "title": "one", "amount": "2"}, {"id": 2, "title": "two", "amount": "2"}]}},
    "caches": {"guides": ["/b", "/a"]},
}


def faults(path: list[str], **rule: Any) -> list[str]:
    claim = {"name": "it", "path": path, **rule}
    check = success.parse({"kind": "browser", "resource": "b", "origin": "http://portal.test", "claims": [claim]})
    assert isinstance(check, success.BrowserCheck)
    return browser.failures(check, STATE)


@pytest.mark.parametrize(
    ("path", "rule", "holds"),
    [
        (["local_storage", "display"], {"document": {"columns": ["a", "b"], "theme": "dark"}}, True),
        (["local_storage", "display"], {"document": {"theme": "dark"}}, False),
        (["local_storage", "broken"], {"document": {}}, False),
        (["local_storage", "absent"], {"document": {}}, False),
        (["local_storage", "absent"], {"document": None}, False),
        (["indexed_db", "portal", "drafts"], {"records": [{"title": "two"}, {"title": "one", "amount": "2"}]}, True),
        (["indexed_db", "portal", "drafts"], {"records": [{"title": "two"}]}, False),
        (["indexed_db", "portal", "drafts"], {"records": [{"title": "two"}, {"title": "two"}]}, False),
        (["indexed_db", "portal", "drafts"], {"records": [{"title": "two"}, {"title": "three"}]}, False),
        (["indexed_db", "other", "drafts"], {"records": []}, False),
        (["caches", "guides"], {"items": ["/a", "/b"]}, True),
        (["caches", "guides"], {"items": ["/a"]}, False),
        (["caches", "guides", "deeper"], {"items": []}, False),
    ],
)
def test_a_rule_tells_right_from_wrong(path: list[str], rule: dict[str, Any], holds: bool) -> None:
    assert (faults(path, **rule) == []) is holds


@pytest.mark.parametrize("rule", [{}, {"items": [], "records": []}])
def test_a_claim_has_exactly_one_rule(rule: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="exactly one of document, records, items"):
        faults(["caches"], **rule)


def test_checks_can_be_put_together_but_not_without_end() -> None:
    sql = {"kind": "sql", "resource": "db", "queries": ["select true"]}
    both = success.parse({"kind": "all", "checks": [sql, sql]})
    assert len(success.parts(both)) == 2
    with pytest.raises(ValidationError):
        success.parse({"kind": "all", "checks": [{"kind": "all", "checks": [sql]}]})
    with pytest.raises(ValidationError):
        success.parse({"kind": "all", "checks": []})
