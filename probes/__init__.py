"""Readers that tell whether an instance is as it was when it was fresh. See docs/probes.md."""

from probes.compare import compare
from probes.defaults import create_verifier, default_probes
from probes.examine import examine
from probes.probe import Findings, Probe, ProbeContext, probe
from probes.verifier import ProbeVerifier

__all__ = ["Findings", "Probe", "ProbeContext", "ProbeVerifier", "compare", "create_verifier", "default_probes", "examine", "probe"]
