"""The picture of the README: the memory of one training step over time, eager and planned.

    python -m bench run step_picture

The step is that of examples/gpt2.py, at its own batch. It is captured without weights, so nothing is computed. Times
are those of an A100's roofline. Each curve is drawn from a plan that `lowtide.verify` has accepted: what is alive at
each step, resident bytes included. Writes docs/assets/step-light.svg and step-dark.svg, and prints what it drew.
"""

from __future__ import annotations

import argparse
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode

import lowtide
from bench.lib.apart import ROOT
from bench.lib.graph_file import GraphFile
from bench.page.picture import table

GIB = 2**30
BUDGET = "60%"
WIDTH, HEIGHT = 860, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 20, 58, 44
THEMES = {  # paper, ink, faint lines, resident; then a color for each curve
    "light": ("#ffffff", "#1f2328", "#d1d9e0", "#eaeef2", "#8c959f", "#0969da", "#bc4c00"),
    "dark": ("none", "#e6edf3", "#3d444d", "#21262d", "#9198a1", "#58a6ff", "#f0883e"),
}


@dataclass(frozen=True)
class Curve:
    """Bytes alive, resident ones included, while each step runs; and when each begins, in nanoseconds."""

    name: str
    begins: list[int]
    alive: list[int]
    end: int

    @property
    def peak(self) -> int:
        return max(self.alive)


def captured(batch: int | None = None) -> tuple[lowtide.Graph, int]:
    """The step of examples/gpt2.py with the times of an A100, and its batch."""
    spec = importlib.util.spec_from_file_location("gpt2", ROOT / "examples" / "gpt2.py")
    assert spec is not None and spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    with FakeTensorMode():
        made: dict[str, Any] = example.training()
        batch = batch or made["batch"]
        inputs = made["example"](batch)
    graph = lowtide.capture(
        made["function"], model=made["model"], optimizer=made["optimizer"], example=inputs, device="A100"
    )
    return graph, batch


def curve_of(name: str, graph: lowtide.Graph, times: list[int], plan: lowtide.Plan) -> Curve:
    """What a plan holds over time. An operand and the result that reuses its bytes count once."""
    lowtide.verify(graph, plan)
    offsets, firsts, ends = plan.offsets(), plan.begins(), plan.ends()
    sizes = [graph.buffer_size(buffer) for buffer in plan.block_buffers()]
    planned = [block for block, offset in enumerate(offsets) if offset >= 0]
    starting: dict[int, list[int]] = {}
    for block in planned:
        starting.setdefault(firsts[block], []).append(block)
    begins, alive, now = [], [], 0
    live: list[int] = []
    for step, op in enumerate(plan.order):
        live = [block for block in live if ends[block] > step] + starting.get(step, [])
        total = covered = 0
        for block in sorted(live, key=offsets.__getitem__):
            end = offsets[block] + sizes[block]
            total += max(0, end - max(offsets[block], covered))
            covered = max(covered, end)
        begins.append(now)
        alive.append(plan.resident_bytes + total)
        now += times[op]
    return Curve(name, begins, alive, now)


def curves_of(graph: lowtide.Graph) -> list[Curve]:
    """Eager, planned, and planned within the budget."""
    times = [op.get("time_ns", 0) for op in GraphFile(graph).ops]
    eager = lowtide.plan(graph, order="program", reuse=False, recompute="none")
    curves = [
        curve_of("eager", graph, times, eager),
        curve_of("planned", graph, times, lowtide.plan(graph)),
        curve_of(
            f"planned, memory_budget={BUDGET!r}".replace("'", '"'),
            graph,
            times,
            lowtide.plan(graph, memory_budget=BUDGET),
        ),
    ]
    assert curves[0].peak == graph.eager_bytes
    return curves


def path_of(curve: Curve, x_scale: float, y_scale: float) -> str:
    """Stairs, with at most one corner a pixel: within each, the highest."""
    highest: dict[int, int] = {}
    for begin, alive in zip(curve.begins, curve.alive, strict=True):
        x = round(begin * x_scale)
        highest[x] = max(alive, highest.get(x, 0))
    parts = [f"M{LEFT} {HEIGHT - BOTTOM - curve.alive[0] * y_scale:.1f}"]
    for x, alive in highest.items():
        parts.append(f"H{LEFT + x} V{HEIGHT - BOTTOM - alive * y_scale:.1f}")
    return " ".join([*parts, f"H{LEFT + curve.end * x_scale:.0f}"])


def drawn(curves: list[Curve], resident: int, caption: str, theme: str) -> str:
    """The picture as SVG."""
    paper, ink, faint, floor, *colors = THEMES[theme]
    longest, highest = max(curve.end for curve in curves), curves[0].peak
    x_scale = (WIDTH - LEFT - RIGHT) / longest
    y_scale = (HEIGHT - TOP - BOTTOM) / (highest * 1.02)
    base = HEIGHT - BOTTOM
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="system-ui, sans-serif" font-size="13" role="img">',
        f"<title>{caption}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{paper}"/>',
        f'<rect x="{LEFT}" y="{base - resident * y_scale:.1f}" width="{WIDTH - LEFT - RIGHT}" '
        f'height="{resident * y_scale:.1f}" fill="{floor}"/>',
    ]
    tick = next(step for step in (1, 2, 4, 5, 10, 20) if highest / GIB / step <= 6)
    for mark in range(0, int(highest / GIB) + 1, tick):
        y = base - mark * GIB * y_scale
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="{faint}"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="{ink}">{mark} GiB</text>')
    every = next(step for step in (50, 100, 200, 500, 1000) if longest / 1e6 / step <= 10)
    for mark in range(0, int(longest / 1e6) + 1, every):
        x = LEFT + mark * 1e6 * x_scale
        out.append(f'<text x="{x:.0f}" y="{base + 18}" text-anchor="middle" fill="{ink}">{mark}</text>')
    out.append(
        f'<text x="{LEFT + 8}" y="{base - 8}" fill="{ink}">'
        f"resident: parameters, gradients, state of the optimizer, {resident / GIB:.1f} GiB</text>"
    )
    x = LEFT
    for curve, color in zip(curves, colors, strict=True):
        out.append(
            f'<path d="{path_of(curve, x_scale, y_scale)}" fill="none" stroke="{color}" stroke-width="1.6" '
            'stroke-linejoin="round"/>'
        )
        label = f"{curve.name}: {curve.peak / GIB:.1f} GiB, {curve.end / 1e6:.0f} ms"
        out.append(f'<line x1="{x}" x2="{x + 18}" y1="40" y2="40" stroke="{color}" stroke-width="3"/>')
        out.append(f'<text x="{x + 24}" y="44" fill="{ink}">{label.replace(chr(34), "&quot;")}</text>')
        x += 44 + round(6.7 * len(label))
    out.append(f'<text x="{LEFT}" y="20" fill="{ink}" font-weight="600">{caption}</text>')
    out.append(
        f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 8}" text-anchor="end" fill="{ink}">'
        "milliseconds, by the roofline of an A100</text>"
    )
    return "\n".join([*out, "</svg>", ""])


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--batch", type=int, help="another batch than the example's")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "assets")


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Writes both files; gives what they show."""
    graph, batch = captured(options.batch)
    curves = curves_of(graph)
    caption = f"Memory over one training step of GPT-2, batch {batch} x 1024, AdamW"
    options.folder.mkdir(parents=True, exist_ok=True)
    for theme in THEMES:
        (options.folder / f"step-{theme}.svg").write_text(drawn(curves, graph.resident_bytes, caption, theme))
    shown = [{"name": curve.name, "peak_bytes": curve.peak, "time_ns": curve.end} for curve in curves]
    print(table(shown))
    return {"batch": batch, "resident_bytes": graph.resident_bytes, "curves": shown}
