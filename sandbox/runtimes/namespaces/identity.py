"""How a sandbox knows itself and its neighbours: the generated files of /etc that do not depend on its root."""

from __future__ import annotations

NSSWITCH = "passwd: files\ngroup: files\nshadow: files\nhosts: files\nservices: files\nprotocols: files\n"


def names(hostname: str) -> dict[str, str]:
    """Its host names."""
    return {"hosts": f"127.0.0.1 localhost {hostname}\n::1 localhost\n", "hostname": f"{hostname}\n"}
