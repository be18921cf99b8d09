"""What several of the commands take, and how they find an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

if TYPE_CHECKING:
    from sandbox.ports import Environment
    from sandbox.settings import Settings

FINDING = 1
Instances = Annotated[int, Parameter(validator=Number(gte=2), help="How many fresh instances to look at.")]


def opened(name: str, settings: Settings) -> Environment:
    from envs.registry import Registry

    return Registry(settings).open(name)
