"""Plants the catalogue's leaks in an environment, and measures what its probes see of them and what its reset leaves of them."""

from envs.planting.candidates import Candidate, candidates
from envs.planting.score import Outcome, ProbeScore, survey

__all__ = ["Candidate", "Outcome", "ProbeScore", "candidates", "survey"]
