"""What waits to be sent to the host.

Part of the program that runs inside (see `init.py`): Python 3.9, standard library only, few imports.
"""

import os
import select

from sandbox.runtimes.channel.wire import CHUNK_BYTES, encode


class Outbox:
    """Frames for the host, sent as it takes them."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.waiting = bytearray()

    def send(self, kind: int, number: int, payload: bytes = b"") -> None:
        self.waiting += encode(kind, number, payload)
        self.flush()

    def flush(self, wait: bool = False) -> None:
        while self.waiting:
            try:
                sent = os.write(self.fd, self.waiting[:CHUNK_BYTES])
                del self.waiting[:sent]
            except BlockingIOError:
                if not wait:
                    return
                room = select.poll()
                room.register(self.fd, select.POLLOUT)
                room.poll(1000)
            except OSError:
                os._exit(0)  # the host is gone, and with this process so is the whole namespace
