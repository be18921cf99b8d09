"""Whether state is replaced under live containers, or containers with it: found out by trying, never by guessing."""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from sandbox.aio import in_thread
from sandbox.errors import AutoclaveError, RuntimeUnavailable
from sandbox.runtimes.docker import mounting
from sandbox.runtimes.docker.container import Container
from sandbox.settings import Settings

log = logging.getLogger(__name__)
PLACE = "/autoclave-trial"


class Mode(StrEnum):
    IN_PLACE = "in place"
    RECREATE = "recreate"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What is in force, and why."""

    mode: Mode
    why: str

    def __str__(self) -> str:
        return f"{self.mode}: {self.why}"


def room_of(settings: Settings) -> Path:
    """The directory whose mounts containers see."""
    return settings.store / "containers"


async def choose(settings: Settings, local: bool, trial: Callable[[], Awaitable[Container]]) -> Choice:
    """Decide by the setting, by who we are, and by what a container sees of a mount that is made under it (`trial` starts one whose
    only slot is PLACE). A mode that a setting forces is tried, too: its failure is an error."""
    wanted = settings.docker_mode
    if wanted not in ("auto", "in-place", "recreate"):
        raise RuntimeUnavailable(f"there is no mode {wanted!r}", fix="set AUTOCLAVE_DOCKER_MODE to auto, in-place or recreate")
    if wanted == "recreate":
        return Choice(mode=Mode.RECREATE, why="forced by a setting")
    why = "the engine is not behind a socket of this machine" if not local else "the manager is not root" if os.geteuid() else ""
    if not why:
        why = await _tried(settings, trial)
    if not why:
        return Choice(mode=Mode.IN_PLACE, why="mounts of this manager appear in running containers")
    if wanted == "in-place":
        raise RuntimeUnavailable(f"state cannot be replaced in place: {why}", fix="set AUTOCLAVE_DOCKER_MODE to auto or recreate")
    return Choice(mode=Mode.RECREATE, why=why)


async def _tried(settings: Settings, trial: Callable[[], Awaitable[Container]]) -> str:
    """Return why it does not work, "" where it does."""
    try:
        await in_thread(mounting.make_room, room_of(settings))
    except OSError as error:
        return f"the manager may not mount ({error.strerror})"
    container = await trial()
    slots = container.order.slots
    assert slots is not None
    try:
        await in_thread(slots.fill, (), {PLACE: 1})
        shown = (await container.mount_table()).get(PLACE, "")
        await in_thread(slots.empty)
        gone = (await container.mount_table()).get(PLACE, "")
    except (AutoclaveError, OSError) as error:
        log.info("no state in place", extra={"reason": str(error)})
        return f"a mount under a running container failed ({error})"
    finally:
        await container.remove()
    if " tmpfs " not in shown or " tmpfs " in gone:
        return "a mount that was made under a running container did not appear there, or did not go again"
    return ""
