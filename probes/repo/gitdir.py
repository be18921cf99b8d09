"""What a git directory holds besides files: refs, configuration, hooks and unfinished operations, each under a name of its own.

Everything is read from the files themselves; git is not run, for an agent's configuration can make it run commands.
"""

from __future__ import annotations

from collections.abc import Iterator

from probes.canonical import bytes_digest, name_of
from sandbox.ports import Tree

# Files that say something even by being there; the value is their text where it is short.
INFO = ("exclude", "attributes", "grafts", "sparse-checkout", "refs")
STATES = (
    "MERGE_HEAD",
    "MERGE_MSG",
    "MERGE_MODE",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "REBASE_HEAD",
    "AUTO_MERGE",
    "BISECT_LOG",
    "BISECT_START",
    "BISECT_TERMS",
    "BISECT_NAMES",
    "BISECT_EXPECTED_REV",
    "FETCH_HEAD",
    "ORIG_HEAD",
    "COMMIT_EDITMSG",
    "SQUASH_MSG",
    "shallow",
    "gc.log",
    "gc.pid",
    "rebase-merge",
    "rebase-apply",
    "sequencer",
    "rr-cache",
    "commondir",
    "gitdir",
)
SHORT = 400
LIMIT = 8_000_000


def read_state(tree: Tree, top: str) -> dict[str, str]:
    """Read what is cheap: everything but logs, index and objects."""
    fields = {"head": _text(tree, f"{top}/HEAD") if tree.entry(f"{top}/HEAD") is not None else "absent"}
    fields |= _refs(tree, top)
    fields |= _config(tree, f"{top}/config", "config")
    fields |= _config(tree, f"{top}/config.worktree", "worktree config")
    fields |= _hooks(tree, top)
    for name in INFO:
        fields |= _maybe(tree, f"{top}/info/{name}", f"info/{name}")
    for name in ("alternates", "http-alternates"):
        fields |= _maybe(tree, f"{top}/objects/info/{name}", f"objects/{name}")
    for name in STATES:
        fields |= _maybe(tree, f"{top}/{name}", f"state/{name}")
    for folder, word in (("worktrees", "worktree"), ("modules", "submodule")):
        fields |= {f"{word}/{name_of(n)}": "present" for n in _below(tree, f"{top}/{folder}")}
    return fields


def read_logs(tree: Tree, top: str) -> dict[str, str]:
    """Read the reflogs, the stash's among them."""
    if tree.entry(f"{top}/logs") is None:
        return {}
    prefix = f"{top}/logs/"
    return {
        f"reflog/{name_of(e.path.removeprefix(prefix))}": _lines(tree.read(e.path, LIMIT))
        for e in tree.walk(f"{top}/logs")
        if e.kind == "file"
    }


def read_locks(tree: Tree, top: str) -> dict[str, str]:
    """Name every lock file of the git directory (objects aside)."""
    return {
        f"lock/{name_of(e.path.removeprefix(f'{top}/'))}": e.kind
        for e in tree.walk(top)
        if e.path.endswith(".lock") and not e.path.startswith(f"{top}/objects/")
    }


def hash_size(tree: Tree, top: str) -> int:
    """Return how long object names are: 20 bytes, 32 where the repository says sha256."""
    values = dict(parse_config(tree.read(f"{top}/config", LIMIT))) if tree.entry(f"{top}/config") is not None else {}
    return 32 if values.get("extensions.objectformat", "").lower() == "sha256" else 20


def head_commit(tree: Tree, top: str) -> bytes | None:
    """Return the commit that HEAD stands for, None for one that is not born yet."""
    if tree.entry(f"{top}/HEAD") is None:
        return None
    refs = dict(_pairs(tree, top))
    text = _text(tree, f"{top}/HEAD")
    for _ in range(5):  # git's own limit for symbolic refs
        if not text.startswith("ref:"):
            break
        text = refs.get(text[4:].strip(), "")
    try:
        return bytes.fromhex(text.strip()) or None
    except ValueError:
        return None


def parse_config(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield every key of a configuration file with its value as written. Sections and keys are lower case, subsections are not."""
    section = ""
    joined = data.decode("utf-8", "surrogateescape").replace("\\\n", " ")
    for raw in joined.splitlines():
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("["):
            head, _, line = line[1:].partition("]")
            name, quote, rest = head.partition('"')
            section = name.strip().lower() + (f".{rest.rpartition(chr(34))[0]}" if quote else "")
            line = line.strip()
            if not line or line[0] in "#;":
                continue
        key, given, value = line.partition("=")
        yield f"{section}.{key.strip().lower()}", value.strip() if given else "true"


def _refs(tree: Tree, top: str) -> dict[str, str]:
    return {f"ref/{name_of(name)}": text for name, text in _pairs(tree, top)}


def _pairs(tree: Tree, top: str) -> Iterator[tuple[str, str]]:
    """Yield refs: packed ones first, so that loose ones win."""
    if tree.entry(f"{top}/packed-refs") is not None:
        for line in tree.read(f"{top}/packed-refs", LIMIT).decode("utf-8", "surrogateescape").splitlines():
            if line and line[0] not in "#^":
                name, _, ref = line.partition(" ")
                yield ref, name
    if tree.entry(f"{top}/refs") is not None:
        for entry in tree.walk(f"{top}/refs"):
            if entry.kind == "file":
                yield entry.path.removeprefix(f"{top}/"), _text(tree, entry.path)
            elif entry.kind == "link":
                yield entry.path.removeprefix(f"{top}/"), f"link {name_of(entry.target or '')}"
    if tree.entry(f"{top}/reftable") is not None:
        yield "reftable", " ".join(name_of(n) for n in _below(tree, f"{top}/reftable"))


def _config(tree: Tree, path: str, word: str) -> dict[str, str]:
    if tree.entry(path) is None:
        return {}
    data = tree.read(path, LIMIT)
    found: dict[str, list[str]] = {}
    for key, value in parse_config(data):
        found.setdefault(f"{word}/{name_of(key)}", []).append(name_of(value))
    return {key: "\n".join(values) for key, values in found.items()} | {f"{word} file": _lines(data)}


def _hooks(tree: Tree, top: str) -> dict[str, str]:
    if tree.entry(f"{top}/hooks") is None:
        return {}
    fields = {}
    for entry in tree.walk(f"{top}/hooks"):
        name = entry.path.removeprefix(f"{top}/hooks/")
        if entry.kind == "dir" or name.endswith(".sample"):
            continue
        what = bytes_digest(tree.read(entry.path, LIMIT)) if entry.kind == "file" else name_of(entry.target or "")
        fields[f"hook/{name_of(name)}"] = f"{entry.kind} {entry.mode:04o} {what}"
    return fields


def _maybe(tree: Tree, path: str, field: str) -> dict[str, str]:
    entry = tree.entry(path)
    if entry is None:
        return {}
    if entry.kind != "file":
        return {field: entry.kind if entry.target is None else f"link {name_of(entry.target)}"}
    data = tree.read(path, LIMIT)
    return {field: name_of(data.decode("utf-8", "surrogateescape").strip()) if len(data) <= SHORT else _lines(data)}


def _below(tree: Tree, path: str) -> list[str]:
    if tree.entry(path) is None:
        return []
    return [e.path.removeprefix(f"{path}/") for e in tree.walk(path) if "/" not in e.path.removeprefix(f"{path}/")]


def _text(tree: Tree, path: str) -> str:
    entry = tree.entry(path)
    if entry is not None and entry.kind == "link":
        return f"link {name_of(entry.target or '')}"
    return name_of(tree.read(path, LIMIT).decode("utf-8", "surrogateescape").strip())


def _lines(data: bytes) -> str:
    return f"{data.count(10)} lines, {bytes_digest(data)}"
