"""The directories on the host under which one container sees its mounts, filled and emptied while it runs. Blocking; root only."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath

from sandbox.ports import Mount
from sandbox.runtimes.docker import mounting


class Slots:
    """One directory for each outermost target. A target inside another one's has no directory of its own: it is mounted within what
    the outer one shows, and so it is seen there inside, too."""

    def __init__(self, room: Path, name: str, targets: Sequence[str], files: Collection[str] = ()) -> None:
        """`files` are the targets at which a file is seen."""
        self._room = room
        self._files = files
        self._top = room / name
        self._places: dict[str, Path] = {}
        self.outer: dict[str, Path] = {}  # what the container binds, by target
        for target in sorted(targets, key=depth):
            inside = next((outer for outer in self.outer if PurePosixPath(target).is_relative_to(outer)), None)
            if inside is None:
                self._places[target] = self.outer[target] = self._top / f"{name}.{len(self.outer)}"
            else:
                self._places[target] = self.outer[inside] / PurePosixPath(target).relative_to(inside)

    def make(self) -> None:
        """Make the empty directories."""
        self._top.mkdir(mode=0o711)
        for target, place in self.outer.items():
            mounting.make_point(place, file=target in self._files)

    def fill(self, mounts: Sequence[Mount], scratch: Mapping[str, int]) -> None:
        """Mount everything; `scratch` maps targets of empty memory to MiB. What was mounted before an error is taken away again."""
        try:
            for target, megabytes in scratch.items():
                mounting.show_memory(self._places[target], megabytes)
            for mount in sorted(mounts, key=lambda m: depth(m.target)):
                mounting.show(self._room, mount, self._places[mount.target])
        except BaseException:
            self.empty()
            raise

    def empty(self) -> None:
        """Take away everything that is mounted, here and inside; nothing that still runs inside can reach it by path any more."""
        for place in self.outer.values():
            mounting.detach(place)

    def remove(self) -> None:
        """Remove the directories, once the container is gone; a later manager's sweep may have been first."""
        self.empty()
        for place in (*self.outer.values(), self._top):
            mounting.remove_point(place)


def depth(target: str) -> int:
    return len(PurePosixPath(target).parts)
