"""Files that the init reads and writes for the host.

Part of the program that runs inside (see `init.py`): Python 3.9, standard library only, few imports.
"""

import errno
import os

from sandbox.runtimes.channel.wire import CHUNK_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:  # the typing modules would cost time at start
    from collections.abc import Iterator

_TYPE, _REGULAR, _DIRECTORY = 0o170000, 0o100000, 0o040000


def pieces(path: bytes, room: int) -> "Iterator[bytes]":
    """Yield a regular file's content; raise EFBIG when there is more than `room`. Never waits (a named pipe would)."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        kind = os.fstat(fd).st_mode & _TYPE
        if kind != _REGULAR:
            raise OSError(errno.EISDIR if kind == _DIRECTORY else errno.EINVAL, "not a file")
        while True:
            data = os.read(fd, min(CHUNK_BYTES, room + 1))
            if not data:
                return
            room -= len(data)
            if room < 0:
                raise OSError(errno.EFBIG, "too big")
            yield data
    finally:
        os.close(fd)


class Writes:
    """Files on their way in: each is written beside its target and renamed when it is whole."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, bytes, bytes, int]] = {}

    def __contains__(self, number: int) -> bool:
        return number in self._open

    def begin(self, number: int, path: bytes, mode: int) -> None:
        """Make the parents and the file beside the target."""
        folder, name = os.path.split(os.path.abspath(path))
        os.makedirs(folder, exist_ok=True)
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, "a directory")
        beside = os.path.join(folder, b".%s.autoclave-%d" % (name[:200], number))
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._open[number] = (fd, beside, os.path.join(folder, name), mode)

    def add(self, number: int, data: bytes) -> None:
        """Write one piece; pieces of a write that has failed are dropped."""
        if number in self._open:
            view = memoryview(data)
            while view:
                view = view[os.write(self._open[number][0], view) :]

    def commit(self, number: int) -> bool:
        """Give the file its mode and name; False where the write has failed before."""
        if number not in self._open:
            return False
        fd, beside, path, mode = self._open[number]
        os.fchmod(fd, mode)
        os.rename(beside, path)
        os.close(fd)
        del self._open[number]
        return True

    def abort(self, number: int) -> bool:
        """Remove what was written; False where there was nothing."""
        if number not in self._open:
            return False
        fd, beside, _, _ = self._open.pop(number)
        os.close(fd)
        try:  # noqa: SIM105 - see init_system
            os.unlink(beside)
        except OSError:
            pass
        return True
