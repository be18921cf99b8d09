"""The kind `browser`: everything that an agent can leave behind in one, read over its protocol and from its profile."""

from probes.browser.probe import create

__all__ = ["create"]
