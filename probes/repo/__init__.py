"""The kind `repo`: a git repository and its working tree, read from the host without running git."""

from probes.repo.probe import RepoOptions, RepoProbe, create

__all__ = ["RepoOptions", "RepoProbe", "create"]
