"""A tree of letters: lookup by prefix, longest match, wildcards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


class Node:
    __slots__ = ("children", "held", "value")

    def __init__(self) -> None:
        self.children: dict[str, Node] = {}
        self.held = False
        self.value: Any = None


class Trie:
    """Maps words to values."""

    def __init__(self, words: Iterable[str] = ()) -> None:
        self._root = Node()
        self._size = 0
        for word in words:
            self.put(word)

    def __len__(self) -> int:
        return self._size

    def put(self, word: str, value: Any = True) -> None:
        node = self._root
        for char in word:
            node = node.children.setdefault(char, Node())
        if not node.held:
            self._size += 1
        node.held, node.value = True, value

    def _find(self, prefix: str) -> Node | None:
        node = self._root
        for char in prefix:
            if char not in node.children:
                return None
            node = node.children[char]
        return node

    def get(self, word: str, default: Any = None) -> Any:
        node = self._find(word)
        return node.value if node is not None and node.held else default

    def __contains__(self, word: str) -> bool:
        node = self._find(word)
        return node is not None and node.held

    def words(self, prefix: str = "") -> Iterator[str]:
        """Yield the words that begin with `prefix`, sorted."""
        node = self._find(prefix)
        if node is not None:
            yield from self._below(node, prefix)

    def _below(self, node: Node, word: str) -> Iterator[str]:
        if node.held:
            yield word
        for char in sorted(node.children):
            yield from self._below(node.children[char], word + char)

    def longest_prefix(self, text: str) -> str | None:
        """Return the longest word that `text` begins with."""
        node, best = self._root, "" if self._root.held else None
        for index, char in enumerate(text):
            if char not in node.children:
                break
            node = node.children[char]
            if node.held:
                best = text[: index + 1]
        return best

    def match(self, pattern: str) -> list[str]:
        """Return the words that fit a pattern in which `?` stands for any one letter, sorted."""
        out: list[str] = []
        self._match(self._root, pattern, "", out)
        return out

    def _match(self, node: Node, pattern: str, word: str, out: list[str]) -> None:
        if not pattern:
            if node.held:
                out.append(word)
            return
        for char in sorted(node.children):
            if pattern[0] in ("?", char):
                self._match(node.children[char], pattern[1:], word + char, out)

    def remove(self, word: str) -> bool:
        """Forget a word and the branches that nothing else needs; say whether it was there."""
        path = [self._root]
        for char in word:
            if char not in path[-1].children:
                return False
            path.append(path[-1].children[char])
        if not path[-1].held:
            return False
        path[-1].held, path[-1].value = False, None
        self._size -= 1
        for parent, child, char in zip(reversed(path[:-1]), reversed(path[1:]), reversed(word)):
            if child.held or child.children:
                break
            del parent.children[char]
        return True

    def nodes(self) -> int:
        """Return how many nodes the tree has, the root left out."""
        stack, count = [self._root], -1
        while stack:
            node = stack.pop()
            count += 1
            stack.extend(node.children.values())
        return count
