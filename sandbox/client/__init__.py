"""The pool of another process, with the same names: what `Pool.connect()` returns, and the wire between the two."""

from sandbox.client.pool import RemotePool, RemoteSession, connect

__all__ = ["RemotePool", "RemoteSession", "connect"]
