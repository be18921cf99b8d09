"""Options that several commands share, so that they read the same everywhere."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from sandbox import settings
from sandbox.settings import Settings

POSITIVE = Number(gt=0)
NOT_NEGATIVE = Number(gte=0)

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print one JSON object on stdout and nothing else.")]
Home = Annotated[Path | None, Parameter(name="--home", help="Where the ledger and reports lie (default: $AUTOCLAVE_HOME).")]
RuntimeName = Annotated[
    str | None, Parameter(name="--runtime", help="namespaces or docker (default: $AUTOCLAVE_RUNTIME, else namespaces).")
]
Size = Annotated[int, Parameter(name="--size", validator=Number(gte=1), help="Namespaces per environment.")]
By = Annotated[str, Parameter(name="--by", help="Who decides this; written into the ledger.")]
Reason = Annotated[str, Parameter(name="--reason", help="Why; written into the ledger.")]


def load(home: Path | None, runtime: str | None = None) -> Settings:
    """Read the settings, with `--home` and `--runtime` winning over the environment."""
    found = settings.load(home=home)
    return dataclasses.replace(found, runtime=runtime) if runtime else found
