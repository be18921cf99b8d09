"""Deep verification on a schedule, and its report."""

from sandbox.audit.examine import examine
from sandbox.audit.gather import gather
from sandbox.audit.publish import publish

__all__ = ["examine", "gather", "publish"]
