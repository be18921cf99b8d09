"""`autoclave bisect`: from a field that differed to the action that left it, by replaying what was recorded."""

from envs.bisect.history import History, history
from envs.bisect.procedure import bisect
from envs.bisect.report import BisectReport
from envs.bisect.search import Budget, Found, Once, Search, Segment, Sought, Worn

__all__ = ["BisectReport", "Budget", "Found", "History", "Once", "Search", "Segment", "Sought", "Worn", "bisect", "history"]
