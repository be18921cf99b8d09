"""Looks at the Docker engine for `doctor`: what it is, which of our images it has, and what a container of ours shows."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from sandbox.errors import AutoclaveError
from sandbox.runtimes.docker.boxes import DockerBoxes
from sandbox.runtimes.docker.images import DEFAULT
from sandbox.runtimes.docker.troubles import ImageMissing
from sandbox.settings import Settings


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """`mode` is how state would be replaced; where that could not be tried, `problem` and `fix` say why."""

    engine: str
    mode: str = ""
    problem: str = ""
    fix: str = ""


async def survey(settings: Settings) -> Survey:
    """Ask the engine, then start one container in a home of its own, so that a pool that runs is left alone. Raises
    RuntimeUnavailable where no engine answers."""
    with tempfile.TemporaryDirectory(prefix="autoclave-doctor-", dir="/var/tmp") as place:
        top = Path(place)
        top.chmod(0o755)
        boxes = DockerBoxes(dataclasses.replace(settings, home=top / "home", store=top / "store"))
        try:
            facts = await boxes.engine.facts()
            runtimes = ", ".join(facts.runtimes)
            engine = f"{facts.version} ({facts.storage_driver}, cgroup v{facts.cgroup}, {runtimes}) at {boxes.engine.address.url}"
            try:
                await boxes.identity("host", DEFAULT)
            except ImageMissing:
                return Survey(engine=engine, problem=f"it has no image {DEFAULT}", fix="images/build")
            except AutoclaveError as error:
                return Survey(engine=engine, problem=error.message, fix=error.fix)
            return Survey(engine=engine, mode=str(boxes.in_force["mode"]))
        finally:
            await boxes.close()
