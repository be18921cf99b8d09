"""What a tree of files holds, directory by directory: content, kind, mode, owner, link target, extended attributes.

Every directory gives one listing, `<directory>/`, with a line for each name in it (the top's is `./`), so that a mismatch names the
path. Times are left out: they prove nothing. Where the storage keeps a list of what was touched since the clone was made, a reading
costs what was touched: everything else is the sealed layer's, which nobody can write.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from probes.canonical import bytes_digest, digest_of, lines_of, listing, name_of
from sandbox.ports import Tree, TreeEntry

TOP = "."
TOUCHED = "changed since clone"
UNKNOWN = "unknown: this storage does not tell"
REMEMBERED = 200_000
Skip = Callable[[str], bool]


@dataclass(slots=True)
class Digests:
    """Digests of files that lie in sealed layers, by everything that the file system says of them."""

    found: OrderedDict[tuple[str, int, int, int, int], str] = field(default_factory=OrderedDict)

    def of(self, tree: Tree, entry: TreeEntry, *, sealed: bool) -> str:
        if not sealed:
            return bytes_digest(tree.read(entry.path))
        key = (str(tree.real(entry.path)), entry.inode, entry.size, entry.mtime_ns, entry.ctime_ns)
        digest = self.found.get(key)
        if digest is None:
            digest = self.found[key] = bytes_digest(tree.read(entry.path))
            if len(self.found) > REMEMBERED:
                self.found.popitem(last=False)
        return digest


def read_touched(tree: Tree, skip: Skip) -> str:
    """Name every path touched since the clone was made: on a fresh instance, what its own start touches."""
    changed = tree.changed()
    if changed is None:
        return UNKNOWN
    return "\n".join(sorted(name_of(path or TOP) for path in changed if not skip(path)))


def read_whole(tree: Tree, digests: Digests, skip: Skip) -> dict[str, str]:
    """List every directory."""
    changed = tree.changed()
    own = _owner(tree)
    listings: dict[str, dict[str, str]] = {"": {}}
    for entry in tree.walk():
        if skip(entry.path):
            continue
        sealed = changed is not None and entry.path not in changed
        parent, _, name = entry.path.rpartition("/")
        if parent in listings:
            listings[parent][name_of(name)] = _line(tree, entry, digests, own, sealed=sealed)
        if entry.kind == "dir" and (not parent or parent in listings):
            listings[entry.path] = {}
    return {_field(path): listing(lines) for path, lines in listings.items()}


def read_changed(tree: Tree, digests: Digests, skip: Skip, baseline: Mapping[str, str]) -> dict[str, str] | None:
    """The same at the cost of what changed, from a baseline's listings; None where that cannot be done soundly: the storage does
    not tell, or the baseline's own instance had been touched before it was read."""
    changed = tree.changed()
    if changed is None or baseline.get(TOUCHED) != "":
        return None
    fields = {name: text for name, text in baseline.items() if name.endswith("/")}
    own = _owner(tree)
    touched: dict[str, dict[str, str]] = {}
    for path in sorted(p for p in changed if p and not skip(p)):
        entry = tree.entry(path)
        parent, _, name = path.rpartition("/")
        lines = touched.setdefault(parent, lines_of(fields.get(_field(parent), "")))
        if entry is None:
            lines.pop(name_of(name), None)
        else:
            lines[name_of(name)] = _line(tree, entry, digests, own, sealed=False)
        if entry is not None and entry.kind == "dir":
            touched.setdefault(path, lines_of(fields.get(_field(path), "")))
        else:
            fields = _without(fields, path)
            touched.pop(path, None)
    for path, lines in touched.items():
        at = tree.entry(path) if path else None
        if not path or (at is not None and at.kind == "dir"):
            fields[_field(path)] = listing(lines)
    return fields


def _without(fields: dict[str, str], path: str) -> dict[str, str]:
    gone = _field(path)
    return {n: t for n, t in fields.items() if not n.startswith(gone)} if gone in fields else fields


def _field(path: str) -> str:
    return "./" if not path else "/".join(map(name_of, path.split("/"))) + "/"


def _line(tree: Tree, entry: TreeEntry, digests: Digests, own: tuple[int, int], *, sealed: bool) -> str:
    words = [entry.kind, f"{entry.mode:04o}"]
    if entry.kind == "file":
        words += [str(entry.size), digests.of(tree, entry, sealed=sealed)]
    elif entry.kind == "link":
        words.append(name_of(entry.target or ""))
    return " ".join([*words, *_rest(tree, entry, own)])


def _rest(tree: Tree, entry: TreeEntry, own: tuple[int, int]) -> Iterable[str]:
    if (entry.uid, entry.gid) != own:  # the tree's own user is another on another machine
        yield f"owner {entry.uid - own[0]:+d}:{entry.gid - own[1]:+d}"
    attributes = tree.xattrs(entry.path)
    if attributes:
        named = [part for name in sorted(attributes) for part in (name, attributes[name].hex())]
        yield f"xattrs {' '.join(map(name_of, sorted(attributes)))} {digest_of(named)[:16]}"


def _owner(tree: Tree) -> tuple[int, int]:
    top = tree.entry("")
    if top is None:
        raise FileNotFoundError("the state directory is gone")
    return top.uid, top.gid


def read_top(tree: Tree) -> str:
    """Describe the directory itself."""
    top = tree.entry("")
    if top is None:
        raise FileNotFoundError("the state directory is gone")
    return " ".join([top.kind, f"{top.mode:04o}", *_rest(tree, top, (top.uid, top.gid))])
