"""The digest of an environment: everything that shapes its states, by content."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from blake3 import blake3

_SKIPPED = frozenset({"__pycache__"})  # written by running Python, never part of a seed


def of_environment(data: Mapping[str, Any], files: Mapping[str, str]) -> str:
    """Digest the description's values (comments and spelling apart) and the digest of each file or directory that it names."""
    total = blake3(b"autoclave environment 1\n")
    total.update(json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str).encode())
    for label, content in sorted(files.items()):
        total.update(f"\n{label}\0{content}".encode(errors="surrogateescape"))
    return total.hexdigest()


def of_path(path: Path) -> str:
    """Digest a file's content, or a directory's paths, kinds, modes, link targets and contents. A path that is itself a link stands
    for what it leads to."""
    total = blake3()
    path = path.resolve(strict=True)
    for entry in [path, *_below(path)]:
        info = entry.lstat()
        relative = os.fsencode(entry.relative_to(path))
        executable = bool(info.st_mode & 0o111)
        if stat.S_ISLNK(info.st_mode):
            total.update(b"link\0" + relative + b"\0" + os.fsencode(os.readlink(entry)) + b"\0")
        elif stat.S_ISDIR(info.st_mode):
            total.update(b"dir\0" + relative + b"\0")
        elif stat.S_ISREG(info.st_mode):
            content = blake3().update_mmap(str(entry)).digest() if info.st_size > 1_000_000 else blake3(entry.read_bytes()).digest()
            total.update(b"file\0" + relative + (b"\0x" if executable else b"\0-") + content)
    return total.hexdigest()


def _below(path: Path) -> list[Path]:
    if path.is_symlink() or not path.is_dir():
        return []
    found: list[Path] = []
    for top, folders, files in os.walk(path):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        found.extend(Path(top, name) for name in (*folders, *sorted(files)))
    return sorted(found)
