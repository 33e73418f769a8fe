"""Bytes alive over time as one SVG picture: the curves of several plans of a step over each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .._core import format_bytes
from .document import text
from .timeline import Timeline, planned_bytes

WIDTH, HEIGHT = 860, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 58, 44
THEMES = {  # paper, ink, faint lines, resident; then a color for each curve
    "light": ("#ffffff", "#1f2328", "#d1d9e0", "#eaeef2", "#8c959f", "#0969da", "#bc4c00"),
    "dark": ("none", "#e6edf3", "#3d444d", "#21262d", "#9198a1", "#58a6ff", "#f0883e"),
}


@dataclass(frozen=True)
class Curve:
    """Bytes alive, resident ones included, while each step runs; and when each begins, in nanoseconds or steps."""

    name: str
    begins: list[int]
    alive: list[int]
    end: int

    @property
    def peak(self) -> int:
        """The most of them."""
        return max(self.alive, default=0)


def curve_of(timeline: Timeline, *, timed: bool) -> Curve:
    """Over the time of its operators, or over its steps."""
    begins, now = [], 0
    for nanos in timeline.times:
        begins.append(now)
        now += nanos if timed else 1
    resident = timeline.plan.resident_bytes
    return Curve(timeline.name, begins, [resident + planned for planned in planned_bytes(timeline)], now)


def drawn(
    curves: Sequence[Curve],
    resident: int,
    caption: str,
    theme: str,
    *,
    timed: bool,
    across: str,
    floor: str = "resident",
) -> str:
    """The picture as SVG; `across` names what is below it, and `floor` what is there all the time."""
    paper, ink, faint, ground, *colors = THEMES[theme]
    longest, highest = max(1, *(curve.end for curve in curves)), max(1, *(curve.peak for curve in curves))
    x_scale = (WIDTH - LEFT - RIGHT) / longest
    y_scale = (HEIGHT - TOP - BOTTOM) / (highest * 1.02)
    base = HEIGHT - BOTTOM
    caption = text(caption)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="13" role="img">',
        f"<title>{caption}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{paper}"/>',
        f'<rect x="{LEFT}" y="{base - resident * y_scale:.1f}" width="{WIDTH - LEFT - RIGHT}" '
        f'height="{resident * y_scale:.1f}" fill="{ground}"/>',
    ]
    for mark in byte_ticks(highest, 6):
        y = base - mark * y_scale
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{faint}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{ink}">{tick_label(mark)}</text>')
    for mark, label in time_ticks(longest, 10) if timed else ((mark, str(mark)) for mark in count_ticks(longest, 10)):
        x = LEFT + mark * x_scale
        out.append(f'<text x="{x:.0f}" y="{base + 18}" text-anchor="middle" fill="{ink}">{label}</text>')
    if floor:
        out.append(f'<text x="{LEFT + 8}" y="{base - 8}" fill="{ink}">{text(floor)}, {short_bytes(resident)}</text>')
    x = LEFT
    for curve, color in zip(curves, colors, strict=False):
        out.append(
            f'<path d="{_path_of(curve, x_scale, y_scale)}" fill="none" stroke="{color}" stroke-width="1.6" '
            'stroke-linejoin="round"/>'
        )
        length = f"{curve.end / 1e6:.0f} ms" if timed else f"{curve.end} steps"
        label = f"{curve.name}: {short_bytes(curve.peak)}, {length}"
        out.append(f'<line x1="{x}" x2="{x + 18}" y1="40" y2="40" stroke="{color}" stroke-width="3"/>')
        out.append(f'<text x="{x + 24}" y="44" fill="{ink}">{text(label)}</text>')
        x += 44 + round(6.7 * len(label))
    out.append(f'<text x="{LEFT}" y="20" fill="{ink}" font-weight="600">{caption}</text>')
    out.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end" fill="{ink}">{text(across)}</text>')
    return "\n".join([*out, "</svg>", ""])


def _path_of(curve: Curve, x_scale: float, y_scale: float) -> str:
    """Stairs, with at most one corner a pixel: within each, the highest."""
    highest: dict[int, int] = {}
    for begin, alive in zip(curve.begins, curve.alive, strict=True):
        x = round(begin * x_scale)
        highest[x] = max(alive, highest.get(x, 0))
    parts = [f"M{LEFT} {HEIGHT - BOTTOM - (curve.alive or [0])[0] * y_scale:.1f}"]
    for x, alive in highest.items():
        parts.append(f"H{LEFT + x} V{HEIGHT - BOTTOM - alive * y_scale:.1f}")
    return " ".join([*parts, f"H{LEFT + curve.end * x_scale:.0f}"])


def byte_ticks(highest: int, most: int) -> list[int]:
    """Amounts from 0 on, so many at most above that."""
    step = 1
    while highest / step > most:
        step *= 2
    return list(range(0, highest + 1, step))


def count_ticks(longest: int, most: int) -> list[int]:
    """Round numbers from 0 on, so many at most above that."""
    scale = 1
    while True:
        for step in (scale, 2 * scale, 5 * scale):
            if longest / step <= most:
                return list(range(0, longest + 1, step))
        scale *= 10


def time_ticks(longest: int, most: int) -> list[tuple[int, str]]:
    """Round times in nanoseconds, with their milliseconds."""
    return [(nanos, f"{nanos / 1e6:g}") for nanos in count_ticks(longest, most)]


def tick_label(amount: int) -> str:
    """Without places that say nothing: "4 GiB"."""
    return format_bytes(amount).replace(".00 ", " ")


def short_bytes(amount: int) -> str:
    """With one decimal place: "28.5 GiB"."""
    number, unit = format_bytes(amount).split(" ")
    return f"{float(number):.1f} {unit}" if "." in number else f"{number} {unit}"
