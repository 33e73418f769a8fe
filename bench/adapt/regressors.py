"""What a batch needs, by regressors: errors of the sum of per-block bytes, fitted on 10 and on 50 batches.

    python -m bench run adapt_regressors [TASK ...]

Polynomials, as `lowtide.adapt` has them, beside SVR, trees and boosted trees of scikit-learn.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from bench.adapt.tasks import Task, tasks
from bench.lib.markdown import header, line
from bench.lib.progress import each
from lowtide._adapt.memory import CpuMemory
from lowtide._base.blocks import find_blocks


def saved_by_block(model: nn.Module, batch: dict[str, torch.Tensor]) -> list[int]:
    """Bytes that each block holds after its forward pass."""
    memory = CpuMemory([])
    levels: list[int] = []
    handles = []
    for block in find_blocks(model).values():
        handles.append(block.register_forward_pre_hook(lambda *_: levels.append(-memory.level())))
        handles.append(block.register_forward_hook(lambda *_: levels.append(memory.level())))
    result = model(**batch)
    for handle in handles:
        handle.remove()
    memory.close()
    del result
    return [levels[i] + levels[i + 1] for i in range(0, len(levels), 2)]


def print_table(chosen: Sequence[Task], samples: int = 60) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler
    from sklearn.svm import SVR
    from sklearn.tree import DecisionTreeRegressor

    makers: dict[str, Callable[[], Any]] = {
        **{
            f"polynomial, order {n}": lambda n=n: make_pipeline(  # type: ignore[misc]
                StandardScaler(), PolynomialFeatures(n), LinearRegression()
            )
            for n in (1, 2, 3)
        },
        "SVR": lambda: make_pipeline(StandardScaler(), SVR(C=1e3, epsilon=1e-3)),
        "decision tree": DecisionTreeRegressor,
        "boosted trees": lambda: HistGradientBoostingRegressor(min_samples_leaf=2),
    }
    print(header(("task", "regressor", "fitted on", "error", "fit ms", "predict us a batch")))
    rows = []
    for task in each(chosen, "tasks"):
        chance = random.Random(1)
        extents = [task.extents(chance) for _ in range(samples + 20)]
        torch.manual_seed(0)
        model = task.make()
        bytes_ = [saved_by_block(model, task.batch(e)) for e in extents]
        for name, make in makers.items():
            for count in (10, 50):
                begin = time.perf_counter()
                scales = [max(row[b] for row in bytes_[:count]) for b in range(len(bytes_[0]))]
                fitted = [
                    make().fit(extents[:count], [row[b] / scales[b] for row in bytes_[:count]])
                    for b in range(len(scales))
                ]
                fit_ms = (time.perf_counter() - begin) * 1e3
                begin = time.perf_counter()
                errors = []
                for e, row in zip(extents[samples:], bytes_[samples:], strict=True):
                    total = sum(f.predict([e])[0] * s for f, s in zip(fitted, scales, strict=True))
                    errors.append(abs(total - sum(row)) / sum(row))
                us = (time.perf_counter() - begin) * 1e6 / len(errors)
                error = statistics.mean(errors)
                rows.append(
                    {
                        "task": task.name,
                        "regressor": name,
                        "fitted_on": count,
                        "error": error,
                        "fit_ms": fit_ms,
                        "predict_us": us,
                    }
                )
                print(line((task.name, name, count, f"{error:.2%}", f"{fit_ms:.1f}", f"{us:.0f}")), flush=True)
    return rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"some of {', '.join(tasks())}; all if none")


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Prints the table; gives its rows."""
    torch.set_num_threads(1)
    known = tasks()
    return print_table([known[name] for name in options.tasks or known])
