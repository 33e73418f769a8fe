"""The picture of the README: the memory of one training step over time, eager and planned.

    python -m bench run step_picture

The step is that of examples/gpt2.py, at its own batch. It is captured without weights, so nothing is computed. Times
are those of an A100's roofline. Each curve is drawn from a plan that `lowtide.verify` has accepted: what is alive at
each step, resident bytes included. Writes docs/assets/step-light.svg and step-dark.svg, and prints what it drew.
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode

import lowtide
from bench.lib.apart import ROOT
from bench.page.picture import table
from lowtide._base.graph_file import GraphFile
from lowtide._report.contents import in_program_order
from lowtide._report.picture import THEMES, Curve, curve_of, drawn
from lowtide._report.timeline import timeline_of

BUDGET = "60%"
ACROSS = "milliseconds, by the roofline of an A100"
FLOOR = "resident: parameters, gradients, state of the optimizer"


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


def curves_of(graph: lowtide.Graph) -> list[Curve]:
    """Eager, planned, and planned within the budget."""
    file = GraphFile(graph)
    plans = {
        "eager": in_program_order(graph),
        "planned": lowtide.plan(graph),
        f'planned, memory_budget="{BUDGET}"': lowtide.plan(graph, memory_budget=BUDGET),
    }
    curves = [curve_of(timeline_of(name, graph, file, plan), timed=True) for name, plan in plans.items()]
    assert curves[0].peak == graph.eager_bytes
    return curves


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
        picture = drawn(curves, graph.resident_bytes, caption, theme, timed=True, across=ACROSS, floor=FLOOR)
        (options.folder / f"step-{theme}.svg").write_text(picture)
    shown = [{"name": curve.name, "peak_bytes": curve.peak, "time_ns": curve.end} for curve in curves]
    print(table(shown))
    return {"batch": batch, "resident_bytes": graph.resident_bytes, "curves": shown}
