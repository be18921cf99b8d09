"""The variables of commands in an image that has some of its own."""

from __future__ import annotations

from collections.abc import Mapping


def over_image(own: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """Return the image's variables, and over them what is asked for. Programs of both are found; HOME is ours to say."""
    kept = {name: value for name, value in own.items() if name not in ("HOME", "PATH")}
    paths = f"{asked.get('PATH', '')}:{own.get('PATH', '')}".split(":")
    return {**kept, **asked, "PATH": ":".join(dict.fromkeys(filter(None, paths)))}
