"""The `browser` kind: Chromium in a sandbox of its own, driven over the DevTools protocol."""

from sandbox.resources.browser.resource import create

__all__ = ["create"]
