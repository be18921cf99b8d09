"""A worker process that hashes files: NUL-separated paths on stdin, 32 bytes for each on stdout, in order.

Run as a script, so that it loads nothing but blake3 (starting a worker from the manager's own module would run a user's script
again). Small files cost open, read and close, not the hash, which is why processes help and threads do not.
"""

from __future__ import annotations

import os
import sys

from blake3 import blake3

CHUNK = 1 << 20


def hash_file(path: str | bytes) -> bytes:
    """Return the blake3 digest of a regular file, without following a link."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        data = os.read(descriptor, CHUNK)
        hasher = blake3(data)
        while data:
            data = os.read(descriptor, CHUNK)
            hasher.update(data)
        return hasher.digest()
    finally:
        os.close(descriptor)


if __name__ == "__main__":
    for each in sys.stdin.buffer.read().split(b"\0"):
        if each:
            sys.stdout.buffer.write(hash_file(each))
