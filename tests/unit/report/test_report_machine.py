"""What machines read: the audit's JSON, JUnit XML and OpenEnv's check results."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest
from junitparser import Error, Failure, JUnitXml

from sandbox.model import Mismatch, VerdictStatus
from sandbox.report import AuditReport, as_json
from sandbox.report.junit import render
from sandbox.report.openenv import EVIDENCE, results


def test_the_json_has_the_promised_keys(found: AuditReport) -> None:
    data = json.loads(json.dumps(as_json(found)))
    promised = {"started", "environments", "checks", "mismatches", "quarantined", "recalled_updates", "seals", "verdict", "reports"}
    assert promised | {"in_force", "checks_openenv"} <= set(data)
    assert data["checks"] == 50
    assert data["seals"] == {"verified": 1, "broken": ["s-2"]}
    assert data["verdict"] == "mismatch"
    assert data["recalled_updates"] == ["update-12"]
    assert len(data["quarantined"]) == 13
    assert data["reports"] == {"html": "/var/autoclave/reports/2026-11-29.html", "junit": "/var/autoclave/reports/2026-11-29.xml"}
    assert data["in_force"]["limits"] == {"memory_mb": 1024, "by": "cgroup v2"}
    assert set(data["mismatches"][0]) >= {"environment", "namespace", "probe", "field", "expected", "actual", "depth"}
    assert data["mismatches"][1]["expected"] is None


def test_only_clean_is_clean(clean: AuditReport) -> None:
    assert clean.verdict is VerdictStatus.CLEAN
    unsure = dataclasses.replace(clean.checks[0], status=VerdictStatus.INCONCLUSIVE)
    broken = dataclasses.replace(clean.seals[0], holds=False)
    assert dataclasses.replace(clean, checks=()).verdict is VerdictStatus.INCONCLUSIVE
    assert dataclasses.replace(clean, checks=(*clean.checks, unsure)).verdict is VerdictStatus.INCONCLUSIVE
    assert dataclasses.replace(clean, problems=("the ledger is locked",)).verdict is VerdictStatus.INCONCLUSIVE
    assert dataclasses.replace(clean, seals=(broken,)).verdict is VerdictStatus.MISMATCH


def test_a_trajectory_in_two_quarantines_is_listed_once(found: AuditReport) -> None:
    twice = dataclasses.replace(found, quarantines=(*found.quarantines, found.quarantines[0]))
    assert twice.quarantined == found.quarantined


def test_junit_counts_what_the_audit_found(found: AuditReport) -> None:
    xml = JUnitXml.fromstring(render(found).encode())
    suites = {suite.name: suite for suite in xml}
    assert set(suites) == {"shop/shop-3f9a", "repo/repo-77c1", "golden snapshots"}
    shop = suites["shop/shop-3f9a"]
    assert (shop.tests, shop.failures, shop.errors) == (40, 2, 0)
    failed = [case for case in shop if case.result]
    assert [type(case.result[0]) for case in failed] == [Failure, Failure]
    assert failed[0].classname == "shop.shop-3f9a"
    assert failed[0].name == "postgres (deep check c-20)"
    text = failed[0].result[0].text
    assert "roles/agent" in text
    assert "expected: absent" in text
    assert "settings (deep)" in text
    (unanswered,) = [case for case in suites["repo/repo-77c1"] if case.result]
    assert isinstance(unanswered.result[0], Error)
    assert unanswered.result[0].message == "timed out after 30 s"
    assert (suites["golden snapshots"].tests, suites["golden snapshots"].failures) == (2, 1)
    assert xml.failures == sum(suite.failures for suite in xml)
    assert xml.tests == sum(suite.tests for suite in xml)


def test_junit_carries_hostile_and_huge_values(clean: AuditReport) -> None:
    evil = "".join(map(chr, range(0x20))) + "\x7f\ud800\ufffe<b>]]>&" + "x" * 1_000_000
    check = dataclasses.replace(
        clean.checks[0],
        status=VerdictStatus.MISMATCH,
        mismatches=(Mismatch(probe=evil[:40], field=evil[:40], expected=evil, actual=None),),
    )
    text = render(dataclasses.replace(clean, checks=(check,)))
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe]", text)
    xml = JUnitXml.fromstring(text.encode())
    assert "x" * 1_000_000 in next(case.result[0].text for suite in xml for case in suite if case.result)


def test_an_empty_audit_is_an_error_in_junit(clean: AuditReport) -> None:
    xml = JUnitXml.fromstring(render(dataclasses.replace(clean, checks=(), seals=())).encode())
    assert (xml.tests, xml.errors) == (1, 1)


def test_a_check_that_was_not_clean_never_passes_in_junit(clean: AuditReport) -> None:
    bare = dataclasses.replace(clean.checks[0], status=VerdictStatus.INCONCLUSIVE, probes=())
    xml = JUnitXml.fromstring(render(dataclasses.replace(clean, checks=(bare,))).encode())
    assert xml.errors == 1


def test_openenv_results_have_the_fields_and_values_of_report_v2(found: AuditReport) -> None:
    for result in results(found):
        assert set(result) == {"check_id", "status", "measured", "evidence", "remediation", "duration_s"}
        assert re.fullmatch(r"[a-z_]+\.[a-z_]+", result["check_id"])
        assert result["status"] in ("pass", "fail", "skip", "error")
        assert (result["remediation"] is None) == (result["status"] in ("pass", "skip"))
        assert all(isinstance(line, str) and "\n" not in line for line in result["evidence"])
        assert result["duration_s"] >= 0


@pytest.mark.parametrize(
    ("name", "in_found", "in_clean"),
    [
        ("runtime.episode_isolation", "fail", "pass"),
        ("runtime.episode_determinism", "pass", "pass"),
        ("runtime.host_containment", "pass", "skip"),
        ("runtime.network_policy", "skip", "skip"),
        ("autoclave.golden_seal", "fail", "pass"),
        ("autoclave.probe_score", "fail", "skip"),
    ],
)
def test_openenv_status(name: str, in_found: str, in_clean: str, found: AuditReport, clean: AuditReport) -> None:
    statuses = [{r["check_id"]: r["status"] for r in results(report)}[name] for report in (found, clean)]
    assert statuses == [in_found, in_clean]


def test_openenv_says_error_where_isolation_could_not_be_read(clean: AuditReport) -> None:
    unsure = dataclasses.replace(clean.checks[0], status=VerdictStatus.INCONCLUSIVE)
    assert results(dataclasses.replace(clean, checks=(unsure,)))[0]["status"] == "error"
    assert results(dataclasses.replace(clean, checks=()))[0]["status"] == "skip"


def test_openenv_determinism_needs_two_instances(clean: AuditReport) -> None:
    alone = dataclasses.replace(clean.environments[0], instances=1)
    assert results(dataclasses.replace(clean, environments=(alone,)))[1]["status"] == "fail"


def test_openenv_evidence_names_fields_and_shows_no_value(clean: AuditReport) -> None:
    secrets = [
        Mismatch(probe="postgres", field=f"roles/r{n}", expected="SCRAM-SHA-256$old", actual="SCRAM-SHA-256$new") for n in range(99)
    ]
    check = dataclasses.replace(clean.checks[0], status=VerdictStatus.MISMATCH, mismatches=tuple(secrets))
    result = results(dataclasses.replace(clean, checks=(check,)))[0]
    assert "roles/r0" in result["evidence"][0]
    assert "SCRAM" not in json.dumps(result)
    assert len(result["evidence"]) == EVIDENCE
    assert result["evidence"][-1] == "and 50 more"
