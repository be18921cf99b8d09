"""Trying the walls of a shared tree: marks left in the sandbox of one part, looked for in that of another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sandbox.errors import InstanceLost
from sandbox.model import ExecResult

_LIMIT_S = 120.0
# The mark comes on the standard input: it must be in nobody's arguments but those of the process that is a mark itself.
_WRITE = """
read -r mark
for place in "$@" "$HOME" /tmp /var/tmp /dev/shm /run; do
  [ -d "$place" ] && [ -w "$place" ] && echo "$mark" > "$place/$mark"
done
sh -c 'sleep 600; :' "$mark" > /dev/null 2>&1 < /dev/null &
echo left
"""
_READ = """
read -r mark
read -r part
command -v grep cat ls tr > /dev/null || exit 1
tell() { case "$2" in *"$mark"* | *"$part"*) echo "$1" ;; esac; }
for place in "$@" "$HOME" /tmp /var/tmp /dev /dev/shm /dev/mqueue /run /srv /mnt /tree /golden; do
  [ -d "$place" ] || continue
  tell "the name of a file in $place" "$(ls -aR "$place" 2> /dev/null)"
  found=$(printf '%s\\n' "$mark" "$part" | grep -lsF -D skip -d skip -f - "$place"/* "$place"/.* 2> /dev/null)
  [ -z "$found" ] || echo "a file in $place"
done
tell "a process" "$(cat /proc/[0-9]*/cmdline 2> /dev/null | tr '\\000' ' ')"
tell "a mount" "$(cat /proc/self/mountinfo)"
tell "a socket" "$(cat /proc/net/unix 2> /dev/null)"
echo looked
"""


class Sandboxed(Protocol):
    """A namespace in whose sandbox commands run."""

    async def run(self, argv: Sequence[str], *, stdin: bytes = b"", limit_s: float | None = None) -> ExecResult: ...


async def leave_marks(writer: Sandboxed, mark: str, directories: Sequence[str]) -> None:
    """Leave them wherever a holder can; raise InstanceLost."""
    await _run(writer, _WRITE, directories, f"{mark}\n", "left")


async def marks_seen(reader: Sandboxed, mark: str, part: str, directories: Sequence[str]) -> list[str]:
    """Return where a holder of another part sees a mark, or the name of the part that left it; raise InstanceLost."""
    *seen, _ = (await _run(reader, _READ, directories, f"{mark}\n{part}\n", "looked")).splitlines()
    return sorted(set(seen))


async def _run(place: Sandboxed, script: str, directories: Sequence[str], stdin: str, last: str) -> str:
    done = await place.run(("/bin/sh", "-c", script, "sh", *directories), stdin=stdin.encode(), limit_s=_LIMIT_S)
    if done.timed_out or not done.text.rstrip().endswith(last):
        said = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise InstanceLost(f"the walls of a shared tree could not be tried: {said or f'exit code {done.exit_code}'}")
    return done.text
