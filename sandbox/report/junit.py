"""The audit as JUnit XML (xunit2): a namespace is a testsuite, a probe of a check a testcase, its differences the failure."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from sandbox.model import Mismatch
from sandbox.report.contents import AuditReport, CheckEntry
from sandbox.report.text import amount, visible


def render(report: AuditReport) -> str:
    """Return the XML text. Values are whole; characters that XML cannot carry are written out."""
    root = ET.Element("testsuites", name="autoclave audit", time=f"{report.seconds:.3f}")
    grouped: dict[tuple[str, str], list[CheckEntry]] = {}
    for check in report.checks:
        grouped.setdefault((check.environment, check.namespace), []).append(check)
    suites = [_suite(root, report, environment, namespace, checks) for (environment, namespace), checks in grouped.items()]
    if report.seals:
        suites.append(_seals(root, report))
    if report.problems or not report.checks:
        suites.append(_undone(root, report))
    for name in ("tests", "failures", "errors"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(root: ET.Element, report: AuditReport, environment: str, namespace: str, checks: Sequence[CheckEntry]) -> ET.Element:
    suite = ET.SubElement(root, "testsuite", name=visible(f"{environment}/{namespace}"), timestamp=_stamp(report))
    for check in checks:
        for name in _probes(check):
            _case(suite, check, name)
    return _counted(suite)


def _probes(check: CheckEntry) -> list[str]:
    named = [p.probe for p in check.probes] + [m.probe for m in check.mismatches] + [p.probe for p in check.problems]
    return list(dict.fromkeys(named)) or ["all probes"]


def _case(suite: ET.Element, check: CheckEntry, probe: str) -> None:
    seconds = sum(p.seconds for p in check.probes if p.probe == probe)
    case = ET.SubElement(
        suite,
        "testcase",
        classname=visible(f"{check.environment}.{check.namespace}"),
        name=visible(f"{probe} ({check.depth.value} check {check.id})"),
        time=f"{seconds:.3f}",
    )
    differing = [m for m in check.mismatches if m.probe == probe]
    if differing:
        failure = ET.SubElement(
            case, "failure", type="mismatch", message=f"{amount(len(differing), 'field')} of {visible(probe)} differ"
        )
        failure.text = "\n".join(map(_text, differing))
    if unanswered := [p for p in check.problems if p.probe == probe]:
        error = ET.SubElement(case, "error", type="inconclusive", message=visible(unanswered[0].reason).split("\n", 1)[0])
        error.text = "\n".join(visible(p.reason) for p in unanswered)
    elif not differing and not check.probes and check.status.value != "clean":
        ET.SubElement(case, "error", type=check.status.value, message="the check was not clean and kept no evidence")


def _text(mismatch: Mismatch) -> str:
    sides = (("expected", mismatch.expected), ("actual", mismatch.actual))
    lines = [f"{visible(mismatch.field)} ({mismatch.depth.value})"]
    lines += [f"  {name}: {'absent' if value is None else repr_of(value)}" for name, value in sides]
    return "\n".join(lines)


def repr_of(value: str) -> str:
    """Return a value on lines of its own where it has several."""
    text = visible(value)
    return "\n    " + text.replace("\n", "\n    ") if "\n" in text else text


def _seals(root: ET.Element, report: AuditReport) -> ET.Element:
    suite = ET.SubElement(root, "testsuite", name="golden snapshots", timestamp=_stamp(report))
    for seal in report.seals:
        case = ET.SubElement(
            suite, "testcase", classname=visible(seal.environment), name=visible(f"seal of {seal.snapshot}"), time="0.000"
        )
        if not seal.holds:
            ET.SubElement(case, "failure", type="seal", message="the seal is broken").text = visible(seal.detail)
    return _counted(suite)


def _undone(root: ET.Element, report: AuditReport) -> ET.Element:
    """Nothing checked, or something that could not be: an error, so that an empty audit cannot pass for a clean one."""
    suite = ET.SubElement(root, "testsuite", name="audit", timestamp=_stamp(report))
    for text in report.problems or ("no check was made",):
        case = ET.SubElement(suite, "testcase", classname="audit", name="the audit itself", time="0.000")
        ET.SubElement(case, "error", type="inconclusive", message=visible(text))
    return _counted(suite)


def _counted(suite: ET.Element) -> ET.Element:
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", str(len(suite.findall("testcase/error"))))
    suite.set("skipped", "0")
    suite.set("time", f"{sum(float(case.get('time', '0')) for case in suite.findall('testcase')):.3f}")
    return suite


def _stamp(report: AuditReport) -> str:
    return report.started.strftime("%Y-%m-%dT%H:%M:%S")
