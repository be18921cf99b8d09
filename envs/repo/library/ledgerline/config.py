"""Settings files: sections, typed values, references, includes by layer."""

from __future__ import annotations

import re
from collections.abc import Mapping

Settings = dict[str, dict[str, str]]
_REFERENCE = re.compile(r"\$\{([A-Za-z0-9_.-]+)(?::([^}]*))?\}")
_TRUE = ("yes", "true", "on", "1")
_FALSE = ("no", "false", "off", "0")


class ConfigError(ValueError):
    """The text is wrong; the message names the line or the key."""


def parse(text: str) -> Settings:
    """Read `[section]` and `key = value`. # and ; begin comments; a line that begins with blanks goes on with the value."""
    out: Settings = {}
    section, key = "main", ""
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line:
            key = ""
            continue
        if line[0] in "#;":
            continue
        if raw[0] in " \t" and key:
            out[section][key] += "\n" + line
            continue
        if line.startswith("["):
            if not line.endswith("]") or len(line) < 3:
                raise ConfigError(f"line {number}: not a section: {line}")
            section, key = line[1:-1].strip().lower(), ""
            out.setdefault(section, {})
            continue
        name, equals, value = line.partition("=")
        key = name.strip().lower()
        if not equals or not key:
            raise ConfigError(f"line {number}: no `key = value`: {line}")
        if key in out.get(section, {}):
            raise ConfigError(f"line {number}: {key} is set twice")
        out.setdefault(section, {})[key] = value.strip()
    return out


def dump(settings: Mapping[str, Mapping[str, str]]) -> str:
    """Write settings so that `parse` reads the same."""
    lines: list[str] = []
    for section, values in settings.items():
        if lines:
            lines.append("")
        lines.append(f"[{section}]")
        lines += [f"{key} = {value}".replace("\n", "\n    ") for key, value in values.items()]
    return "\n".join(lines) + "\n" if lines else ""


def layered(*layers: Mapping[str, Mapping[str, str]]) -> Settings:
    """Join layers; later ones win, key by key."""
    out: Settings = {}
    for layer in layers:
        for section, values in layer.items():
            out.setdefault(section, {}).update(values)
    return out


def expand(settings: Settings) -> Settings:
    """Replace `${section.key}` and `${key}` (of the same section); `${key:fallback}` where it may be missing."""
    return {
        section: {key: _expanded(settings, section, value, (f"{section}.{key}",)) for key, value in values.items()}
        for section, values in settings.items()
    }


def _expanded(settings: Settings, section: str, value: str, trail: tuple[str, ...]) -> str:
    def replaced(match: re.Match[str]) -> str:
        name, fallback = match[1], match[2]
        where, _, key = name.rpartition(".")
        where = where or section
        path = f"{where}.{key}"
        if path in trail:
            raise ConfigError(f"{trail[0]} refers to itself through {path}")
        found = settings.get(where, {}).get(key)
        if found is None:
            if fallback is None:
                raise ConfigError(f"{trail[0]} refers to {path}, which is not set")
            return fallback
        return _expanded(settings, where, found, (*trail, path))

    return _REFERENCE.sub(replaced, value)


def boolean(text: str) -> bool:
    """Read yes, no, on, off, true, false, 1, 0."""
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise ConfigError(f"neither yes nor no: {text!r}")


def listing(text: str) -> list[str]:
    """Read values separated by commas or line breaks; empty ones go."""
    return [item.strip() for item in re.split(r"[,\n]", text) if item.strip()]
