"""Kinds of state, found by entry point: `postgres`, `repo`, `files`, `service`."""
