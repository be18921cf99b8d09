"""Reports: values become text. Nothing here reads or writes anything but its own templates."""

from sandbox.report.as_json import audit as as_json
from sandbox.report.contents import (
    AuditReport,
    CheckEntry,
    CheckPage,
    EnvironmentEntry,
    GuardEntry,
    LeakEntry,
    LeaseEntry,
    ProbeEntry,
    QuarantineEntry,
    ScoreEntry,
    SealEntry,
    StepEntry,
)

__all__ = [
    "AuditReport",
    "CheckEntry",
    "CheckPage",
    "EnvironmentEntry",
    "GuardEntry",
    "LeakEntry",
    "LeaseEntry",
    "ProbeEntry",
    "QuarantineEntry",
    "ScoreEntry",
    "SealEntry",
    "StepEntry",
    "as_json",
]
