"""The catalogue of planted leaks: state changes that a reset may miss, written as data."""

from probes.leaks.catalogue import Catalogue, catalogue
from probes.leaks.leak import Leak, Needs, ShellLeak, SqlLeak

__all__ = ["Catalogue", "Leak", "Needs", "ShellLeak", "SqlLeak", "catalogue"]
