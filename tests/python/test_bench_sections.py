"""How figures are written on pages, by hand-made ones: results that take hours to make again are written so too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.lib.result import Result
from bench.page import adapt, budgets, large, machines, planners, predictions, replay
from bench.page.amounts import MIB, span
from bench.page.results import Results

MACHINE = {"cores": 2, "processor": "P", "memory_gib": 7.8, "load_before": 3.1}
VERSIONS = {"torch": "2.13.0+cpu", "python": "3.11.7"}


def results_of(folder: Path, options: dict[str, Any] | None = None, **figures: Any) -> Results:
    """One remade result for each."""
    at = {"commit": "0123456789", "date": "2026-01-02"}
    for name, found in figures.items():
        Result(name, options or {}, True, at, MACHINE, VERSIONS, 1.0, found).save(name, folder)
    return Results(folder)


def test_spans() -> None:
    assert span([1.004, 1.0], 2) == "1.00" and span(iter([2, 1, 3]), 1) == "1.0 to 3.0"


def test_where_figures_come_from(tmp_path: Path) -> None:
    results = results_of(tmp_path, step_time=[])
    made = results.written("step_time", lambda rows: {"rows": str(len(rows))}, "x_")
    assert made["x_rows"] == "0"
    assert made["x_made"] == "*Made at 0123456 on 2026-01-02, load 3.1 on 2 cores.*"
    said = {"table": [["a", "b"], ["1", "2"]], "remark": "Less since."}
    Result("step_time", {}, False, {"commit": "abc", "date": "2026-01-01"}, {}, {}, None, said).save("old", tmp_path)
    assert results.written("old", lambda _: {}) == {
        "table": "| a | b |\n|---|---|\n| 1 | 2 |",
        "remark": "Less since.",
        "made": "*Not remade: as an earlier page had it (abc, 2026-01-01).* Less since.",
    }
    assert machines.values(Results(tmp_path))["list"].splitlines() == [
        "- 2 cores of P, 8 GiB, Python 3.11.7, PyTorch 2.13.0: `step_time`",
        "- not remade: `old`",
    ]


def task(name: str, share: float, time: float, over: int = 0) -> dict[str, Any]:
    return {
        "task": name,
        "share": share,
        "extents": {"min": 1.0, "median": 2.5, "p99": 3.0, "max": 4.0},
        "gains": {"static": 0.25, "all": 0.5, "dtr": -0.01},
        "over_budget": {"dtr": over},
        "times": {"adapt": time},
        "prediction_error": 0.00123,
        "sheltering_iterations": 2.94,
    }


def test_batches(tmp_path: Path) -> None:
    rows = [task("od_r50", 0.6, 1.1, over=3), task("tc_bert", 0.6, 1.02), task("od_r50", 0.8, 1.14)]
    rows += [task("tc_bert", 0.8, 1.01), task("tc_bert", 0.4, 1.2), task("qa_bert", 0.4, 1.1)]
    rows += [{"task": "od_r50", "share": 0.4, "refused_share": 0.591}]
    micros = {"median_us": 6.2, "p99_us": 58.0}
    flat = [
        {"batches": n, "tensor_bytes": 6 * MIB, "process_bytes": p * MIB}
        for n, p in ((0, 300), (1000, 400), (2000, 401))
    ]
    planning = {"prediction and plan": micros, "from the call of the model to its plan": {"median_us": 150.0}}
    found = adapt.values(results_of(tmp_path, adapt_table=rows, adapt_planning=planning, adapt_flat=flat))
    assert found["table"].splitlines()[2:] == [
        "| pair classification, BERT | 1, 2.5, 3, 4 | +25.0 % | +50.0 % | -1.0 % | 0.123 % | 2.9 |",
        "| detection, ResNet-50 | 1, 2.5, 3, 4 | +25.0 % | +50.0 % | -1.0 %, which was over the budget 3 times "
        "| 0.123 % | 2.9 |",
    ]
    assert (found["texts_40"], found["images_80"], found["refused"]) == ("1.10 to 1.20", "1.14", "59 %")
    assert (found["planning_p99"], found["planning_call"]) == ("58", "150")
    assert (found["flat_batches"], found["flat_tensors"]) == ("2,000", "6.00")
    assert found["flat_process"] == "400 MiB after 1,000 batches and 401 MiB after 2,000 batches"


def test_budgets_beside_inductor(tmp_path: Path) -> None:
    def trained(way: str, peak: int, time: float) -> dict[str, Any]:
        return {"way": way, "peak_bytes": peak * MIB, "of_eager": peak / 100, "time_of_eager": time}

    rows = [trained("eager", 100, 1.0), trained("60% of eager", 59, 1.01), trained("40% of eager", 40, 1.2)]
    rows += [trained("5% longer", 80, 1.04), trained("Inductor, activation_memory_budget 0.5", 45, 1.3)]
    other = [*rows[:2], {"way": "40% of eager", "refused_bytes": 42 * MIB}, rows[4]]
    figures = {budgets.BERT: {"rows": rows}, budgets.GPT2: {"rows": rows}, budgets.VIT: {"rows": other}}
    results = results_of(tmp_path, {"rounds": 3}, trade_budgets=figures, trade_budgets_inductor=figures)
    found = budgets.values(results)
    assert (found["time_at_60"], found["time_at_40"], found["rounds"]) == ("1.01", "1.20", "3")
    assert found["inductor_table"].splitlines()[2:] == [
        "| eager | 100.0 MiB | 1.00 | 100.0 MiB | 1.00 |",
        "| `memory_budget` of 60 % of eager | 59 % | 1.01 | 59 % | 1.01 |",
        "| `memory_budget` of 40 % of eager | 40 % | 1.20 | refused, at least 42 % |  |",
        "| `torch.compile`, `activation_memory_budget` 0.5 | 45 % | 1.30 | 45 % | 1.30 |",
    ]


def test_trades(tmp_path: Path) -> None:
    front = [{"model": model, "ahead": ahead} for model, ahead in (("a", 0), ("a", 0), ("b", 0), ("b", 2))]
    lowest = [
        {"extra": 0.02, "peak_bytes": 50, "bound_bytes": 49},
        {"extra": 0.05, "peak_bytes": 40, "bound_bytes": 40},
    ]
    rows = [{"model": "btlm_3b", "ops": 7, "eager_bytes": 100, "lowest": lowest}]
    found = large.values(results_of(tmp_path, trade_large=rows, trade_front=front))
    assert (found["front_steps"], found["front_reached"]) == ("2", "1")
    assert found["table"].splitlines()[0] == "| model | ops | eager GiB | +2 % time | +5 % |"
    assert found["table"].endswith("| BTLM-3B | 7 | 0.0 | 50.0 (49.0) | 40.0 (40.0) |")


def test_programs_that_are_too_large(tmp_path: Path) -> None:
    methods = [*planners.OTHERS, *planners.PROGRAMS]
    rows: list[dict[str, Any]] = [
        {"method": name, "model": "m", "batch": 1, "planned": (4 - (name == planners.OURS)) * MIB, "resident": 0,
         "seconds": 0.1}
        for name in methods
    ]  # fmt: skip
    rows = [row for row in rows if row["method"] != "MODeL, joint"]
    rows += [{"method": "MODeL, joint", "model": "m", "batch": 1, "refused": "too many variables"}]
    results = results_of(tmp_path, {"seconds": 9}, order_table=rows, order_table_adam=rows, order_table_sgd=rows)
    found = planners.values(results)
    assert "| MODeL, order and layout at once | too large |" in found["sgd_programs"]
    assert "| PyTorch, bytes alive | +0.0 % | -25.0 % |  |  |" in found["table"]
    assert (found["limit"], found["total_one"]) == ("9", "25.0 %")


def test_predictions(tmp_path: Path) -> None:
    columns = ("alone_of_program", "alone_of_step", "settled_of_program", "settled_of_step")
    times = [dict.fromkeys(columns, ratio) for ratio in (0.75, 0.95, 1.2)]
    peaks = [
        {"eager": {"predicted": p, "measured": 1000}, "planned": {"predicted": 999, "measured": 1000}}
        for p in (1000, 1030)
    ]
    found = predictions.values(results_of(tmp_path, step_prediction=times, fit_measured=peaks))
    assert (found["times_models"], found["times_settled_of_step"], found["times_others"]) == ("3", "1", "0.75 to 1.20")
    assert (found["peaks_eager_near"], found["peaks_eager_worst"]) == ("1 of 2", "+3.0 %")
    assert (found["peaks_planned_near"], found["peaks_planned_worst"]) == ("2 of 2", "-0.1 %")


def test_eager_loops(tmp_path: Path) -> None:
    memory = [
        {"model": model, "loop": loop, "requests": 7, "arena_bytes": 8 * MIB, "pool_bytes": 10 * MIB, "proven": True,
         "best_fit_bytes": (9 if (model, loop) == ("gpt2", "inference") else 8) * MIB}
        for model in replay.MODELS
        for loop in ("training", "inference")
    ]  # fmt: skip
    small = {
        "time": [
            {"sizes": "all", "replayed": 50.0, "ordinary": 200.0, "pool": 150.0},
            {"sizes": "below 1 KiB", "replayed": 500.0, "ordinary": 200.0, "pool": 150.0},
        ],
        "step": [{"plain_ms": 10.0, "replayed_ms": 9.5}],
        "capacity": [
            {"pool_batch": 8, "arena_batch": b, "plain_samples": 2.0, "replayed_samples": 3.0} for b in (8, 21)
        ],
    }
    found = replay.values(results_of(tmp_path, replay_table=small, replay_table_full={"memory": memory}))
    assert found["memory_table"].endswith("| LSTM seq2seq, 16 x 50 | 7 | 8 | 10 | 0.80 | 8 | 10 | 0.80 |")
    assert (found["memory_proven"], found["memory_best_fit"]) == ("16 of 16", "GPT-2's inference (+12.5 %)")
    assert (found["time_ratio"], found["step_mean"], found["batches"], found["samples"]) == (
        "0.25", "0.95", "8 to 21", "1.50"
    )  # fmt: skip
