"""Tries the runtime's guards from inside a session: what the agent could reach, measured and not assumed.

The answers come from inside, so that they are evidence about an honest agent's reach only; the runtime itself checks each
sandbox's profile from outside at every start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandbox.errors import AutoclaveError
from sandbox.report import GuardEntry

WAIT_S = 60.0
_CONTAINED = {"CapEff": "0000000000000000", "CapBnd": "0000000000000000", "NoNewPrivs": "1", "Seccomp": "2"}
_READS = ("/etc/shadow", "/root", "/var/lib/autoclave", "/var/log")
_LOOK = (
    'cat /proc/self/status; echo --; for f in {}; do if ls "$f" >/dev/null 2>&1; then echo "$f"; fi; done; echo --;'
    " tail -n +3 /proc/net/dev"
).format(" ".join(_READS))


async def guards(pool: Any, environments: Sequence[str], problems: list[str]) -> tuple[GuardEntry, ...]:
    """Return what one session of each environment could reach."""
    found: list[GuardEntry] = []
    for name in environments:
        try:
            async with pool.session(name, wait=WAIT_S, ttl=WAIT_S) as session:
                result = await session.run(["/bin/sh", "-c", _LOOK], limit_s=20)
        except AutoclaveError as error:
            problems.append(f"environment {name}: its guards were not tried: {error}")
            continue
        found += _judge(name, result.text)
    return tuple(found)


def _judge(environment: str, text: str) -> list[GuardEntry]:
    status, reached, interfaces = (part.strip() for part in [*text.split("--\n", 2), "", "", ""][:3])
    held = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    measured = {name: held.get(name, "absent").strip() for name in _CONTAINED}
    open_paths = reached.split()
    names = sorted(line.split(":")[0].strip() for line in interfaces.splitlines() if ":" in line)
    return [
        GuardEntry(
            name="host_containment",
            holds=measured == _CONTAINED and not open_paths,
            measured={"environment": environment, **measured, "host_paths": open_paths},
            evidence=tuple(f"{k}: {v}" for k, v in measured.items() if v != _CONTAINED[k]),
        ),
        GuardEntry(
            name="network_policy",
            holds=names in ([], ["lo"]),
            measured={"environment": environment, "interfaces": names},
        ),
    ]
