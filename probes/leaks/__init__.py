"""The catalogue of planted leaks: state changes that a reset may miss, written as data."""

from probes.leaks.leak import Leak, Needs, ShellLeak, SqlLeak

__all__ = ["Leak", "Needs", "ShellLeak", "SqlLeak"]
