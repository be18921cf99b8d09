"""The accounts that a container knows: a made-up /etc/passwd and /etc/group, since state belongs to ids that no image has."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

from sandbox import staging
from sandbox.ports import Mount
from sandbox.settings import Settings


@functools.lru_cache(maxsize=16)
def accounts(settings: Settings, uid: int, gid: int, home: str) -> tuple[Mount, ...]:
    """Return the mounts of both files, made once. Blocking."""
    texts = {
        "passwd": f"root:x:0:0:root:/root:/bin/sh\nagent:x:{uid}:{gid}:agent:{home}:/bin/sh\n"
        "nobody:x:65534:65534:nobody:/:/bin/false\n",
        "group": f"root:x:0:\nagent:x:{gid}:\nnogroup:x:65534:\n",
    }

    def fill(folder: Path) -> None:
        for name, text in texts.items():
            (folder / name).write_text(text)

    digest = hashlib.blake2b(repr(sorted(texts.items())).encode(), digest_size=16).hexdigest()
    folder = staging.place(settings, digest, fill)
    return tuple(Mount(target=f"/etc/{name}", layers=(str(folder / name),), readonly=True) for name in texts)
