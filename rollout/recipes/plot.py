"""Learning curves as SVG files that need nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 720, 440
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 52, 58
COLOURS = ("#1b6ca8", "#c4451c", "#2e8b57", "#7b4fa3", "#8a6d1d", "#444444", "#b0307a", "#0f8b8d")
DASHES = ("", "7 4", "2 4", "9 3 2 3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A curve by number of updates. `low` and `high` are its interval where there is one; `style` chooses colour and dashes."""

    label: str
    points: Sequence[tuple[float, float]]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    style: int = 0
    faint: bool = False


def curves(title: str, note: str, lines: Sequence[Line]) -> str:
    """Return an SVG of held-out success (0 to 1) over updates, with a legend of the lines that are not faint."""
    last = max((x for line in lines for x, _ in line.points), default=1) or 1

    def at(x: float, y: float) -> tuple[float, float]:
        across, up = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return round(LEFT + across * x / last, 1), round(TOP + up * (1 - min(1.0, max(0.0, y))), 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="16" font-weight="600" fill="#222222">{escape(title)}</text>',
        f'<text x="{LEFT}" y="40" fill="#666666">{escape(note)}</text>',
    ]
    for tenth in range(0, 11, 2):
        x, y = at(0, tenth / 10)
        parts.append(f'<line x1="{x}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#e3e3e3"/>')
        parts.append(f'<text x="{x - 8}" y="{y + 4}" text-anchor="end" fill="#555555">{tenth / 10:.1f}</text>')
    for tick in sorted({x for line in lines for x, _ in line.points}):
        x, y = at(tick, 0)
        parts.append(f'<text x="{x}" y="{y + 20}" text-anchor="middle" fill="#555555">{tick:g}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - 14}" text-anchor="middle" fill="#333333">updates</text>')
    up = (TOP + HEIGHT - BOTTOM) / 2
    parts.append(
        f'<text x="16" y="{up}" text-anchor="middle" fill="#333333" transform="rotate(-90 16 {up})">held-out success</text>'
    )
    for line in lines:
        parts += _drawn(line, at)
    shown = [line for line in lines if not line.faint]
    for number, line in enumerate(shown):
        y = HEIGHT - BOTTOM - 16 - 20 * (len(shown) - 1 - number)
        x = WIDTH - RIGHT - 210
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 30}" y2="{y}" {_stroke(line)}/>')
        parts.append(f'<text x="{x + 38}" y="{y + 4}" fill="#222222">{escape(line.label)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _drawn(line: Line, at: object) -> list[str]:
    assert callable(at)
    places = [at(x, y) for x, y in line.points]
    drawn = " ".join(f"{x},{y}" for x, y in places)
    out = [f'<polyline points="{drawn}" fill="none" {_stroke(line)}/>']
    if line.faint:
        return out
    colour = COLOURS[line.style % len(COLOURS)]
    out += [f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>' for x, y in places]
    for (x, _), low, high in zip(line.points, line.low, line.high, strict=False):
        (across, bottom), (_, top) = at(x, low), at(x, high)
        shift = across + 3 * (line.style - 1)  # so that two intervals at one place can be told apart
        out.append(f'<line x1="{shift}" y1="{bottom}" x2="{shift}" y2="{top}" stroke="{colour}" stroke-width="1.5" opacity="0.6"/>')
    return out


def _stroke(line: Line) -> str:
    dash = DASHES[line.style % len(DASHES)]
    width, opacity = (1, 0.35) if line.faint else (2.2, 1)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'stroke="{COLOURS[line.style % len(COLOURS)]}" stroke-width="{width}" opacity="{opacity}"{dashes}'
