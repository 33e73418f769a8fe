"""The front of memory against time as an SVG picture, colored by the style of its page."""

from __future__ import annotations

from collections.abc import Sequence

from .._core import format_bytes
from .document import text
from .front import Front, Point
from .picture import byte_ticks, tick_label, time_ticks
from .timeline import Timeline

WIDTH, HEIGHT = 860, 320
LEFT, RIGHT, TOP, BOTTOM = 76, 24, 14, 40


def front_picture(front: Front, plans: Sequence[Timeline]) -> str:
    """Stairs of trades and bounds, and a dot for each plan."""
    dots = [(one.plan.time_ns, one.plan.peak_bytes + one.plan.resident_bytes, one.name) for one in plans]
    first = min(nanos for nanos, _ in [*front.trades, *(dot[:2] for dot in dots)])
    span = max(1, max(nanos for nanos, _ in [*front.trades, *(dot[:2] for dot in dots)]) - first)
    highest = max(1, *(size for _, size in [*front.trades, *(dot[:2] for dot in dots)]))

    def x(nanos: int) -> float:
        return LEFT + (nanos - first) / span * (WIDTH - LEFT - RIGHT)

    def y(size: int) -> float:
        return HEIGHT - BOTTOM - size / (1.05 * highest) * (HEIGHT - TOP - BOTTOM)

    def stairs(points: Sequence[Point]) -> str:
        (start, size), *rest = points
        return f"M{x(start):.1f} {y(size):.1f}" + "".join(f"H{x(nanos):.1f}V{y(size):.1f}" for nanos, size in rest)

    out = [
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="front-picture">',
        '<title id="front-picture">Bytes alive at once against operators\' time</title>',
    ]
    for mark in byte_ticks(highest, 6):
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(mark):.1f}" y2="{y(mark):.1f}"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y(mark) + 4:.1f}" text-anchor="end">{tick_label(mark)}</text>')
    for mark, label in time_ticks(span, 8):
        across = x(first + mark)
        out.append(f'<text x="{across:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">+{label}</text>')
    said = f"milliseconds more than {first / 1e6:.3f}"
    out.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 4}" text-anchor="end">{said}</text>')
    out.append(f'<path class="trades" d="{stairs(front.trades)}"/><path class="bounds" d="{stairs(front.bounds)}"/>')
    for nanos, size, name in dots:
        label = text(f"{name}: {format_bytes(size)}, {nanos / 1e6:.3f} ms")
        out.append(f'<circle class="plan" cx="{x(nanos):.1f}" cy="{y(size):.1f}" r="5"><title>{label}</title></circle>')
    return "".join([*out, "</svg>"])
