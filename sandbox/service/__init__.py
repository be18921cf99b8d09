"""Serves a pool to other processes of the same user, over a Unix socket."""

from sandbox.service.server import Server

__all__ = ["Server"]
