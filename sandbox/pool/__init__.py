"""Keeps namespaces that are proven clean, and lends them."""

from sandbox.pool.limits import PoolLimits
from sandbox.pool.pool import Pool
from sandbox.pool.preparation import Preparer, baseline_key
from sandbox.pool.session import Session

__all__ = ["Pool", "PoolLimits", "Preparer", "Session", "baseline_key"]
