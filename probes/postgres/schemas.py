"""placeholder"""

from __future__ import annotations

from probes.postgres.sharing import Scope
from probes.probe import ProbeContext


async def read_schema(context: ProbeContext, resource: str, scope: Scope) -> tuple[dict[str, str], tuple[str, ...]]:
    raise NotImplementedError


async def read_shared_database(
    context: ProbeContext, resource: str, database: str, scope: Scope
) -> tuple[dict[str, str], tuple[str, ...]]:
    raise NotImplementedError
