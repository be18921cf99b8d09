"""What a server writes: the last few kilobytes in memory, and up to a cap in a file."""

from __future__ import annotations

import logging
import os
from pathlib import Path

_log = logging.getLogger(__name__)
_TAIL = 8192


class Tail:
    """Takes output. At most `cap` bytes lie in `log`, where the older half makes room (`<log>.1`)."""

    def __init__(self, log: Path | None, cap: int) -> None:
        self._log, self._cap = log, cap
        self._tail = bytearray()
        self._file = -1 if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._size = 0 if self._file < 0 else os.fstat(self._file).st_size

    def take(self, data: bytes) -> None:
        self._tail += data
        del self._tail[:-_TAIL]
        if self._file >= 0:
            self._write(data)

    def _write(self, data: bytes) -> None:
        assert self._log is not None
        try:
            if self._size + len(data) > self._cap // 2:
                os.replace(self._log, f"{self._log}.1")
                os.close(self._file)
                self._file = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
                self._size = 0
            self._size += os.write(self._file, data[-(self._cap // 2) :])
        except OSError as error:  # a full disk must not end the server that writes the log
            _log.warning("log not written", extra={"path": str(self._log), "reason": str(error)})

    def last(self, limit: int = _TAIL) -> bytes:
        return bytes(self._tail[-limit:])

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
