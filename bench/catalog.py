"""Every benchmark: its name, what it compares, and how long it takes.

`room_module` is `bench/room/module.py`, which has `add_arguments(parser)` and `run(options)`. `run` prints tables as
they come and gives the figures in them, for `bench/results`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Benchmark:
    """One of them."""

    name: str
    compares: str
    takes: str

    @property
    def module(self) -> str:
        room, _, module = self.name.partition("_")
        return f"bench.{room}.{module}"

    @property
    def path(self) -> str:
        """From `bench/`."""
        return "/".join(self.module.split(".")[1:]) + ".py"


CATALOG = (
    Benchmark(
        "packing_table",
        "the packer with minimalloc and omnimalloc, where they are there, and with the bound: hard problems, generated "
        "ones, traces, a million buffers",
        "1 hour; `--quick` for a trial, or name some of its sections",
    ),
    Benchmark(
        "packing_zoo",
        "the arena with the most bytes alive: the zoo in program order",
        "3 minutes",
    ),
    Benchmark(
        "order_zoo",
        "the arena of the best order, and of the plan in which results reuse operands' bytes too, with the peak of "
        "program order and with proven bounds: the zoo with three kinds of Adam, gradients kept and dropped",
        "20 minutes, half a minute with captured graphs (`--cache`)",
    ),
    Benchmark(
        "order_irregular",
        "the same: networks with the wiring of architecture search and of RandWire",
        "seconds",
    ),
    Benchmark(
        "order_scale",
        "the same: steps of the zoo stacked and unrolled to a million ops; time and memory too",
        "2 minutes",
    ),
    Benchmark(
        "order_table",
        "memory with PyTorch, LESCEA and LLFB, ROAM and MODeL: the models and batches of ROAM's evaluation",
        "2 minutes; with MODeL (`--slow`) 5 more for each step and program",
    ),
    Benchmark(
        "trade_budgets",
        "training within budgets of 90 to 40 % of eager's memory, with eager, with checkpointing of each block and "
        "(`--inductor`) with Inductor: five models, time and measured peak",
        "15 minutes; `--quick` for a trial",
    ),
    Benchmark(
        "trade_large",
        "GPT-Neo-1.3B and BTLM-3B as MAGIS trains them: what is left of plain PyTorch's memory for 2 to 33 % more "
        "time, with the bound",
        "a minute, half of it captures",
    ),
    Benchmark(
        "trade_front",
        "what is traded of memory for time with what `greedy`, `chen`, `rotor`, `checkmate` and `dtr` trade, on the "
        "same graphs, costs and work: ten steps of the zoo with the times of an A100",
        "5 minutes, most of them captures; `--quick` for a trial",
    ),
    Benchmark(
        "trade_swap",
        "the time of recomputation alone, of swapping alone and of both within budgets of memory, with the bound: the "
        "same steps and the two large ones, links of 16 and 64 GB/s",
        "1 hour; `--quick` for a trial, `--state` where parameters and optimizer state may leave too",
    ),
    Benchmark(
        "trade_study",
        "the lowest peaks for 2 to 33 % more time with the figures of a study on the same graphs and costs, and with "
        "the bound",
        "10 seconds; needs the study's graphs",
    ),
    Benchmark(
        "fission_coverage",
        "the bytes of operands of operators that can run in parts with those of all operators: the zoo",
        "10 minutes; name some models for less",
    ),
    Benchmark(
        "fission_magis",
        "what is traded of memory for time, operators in parts included, with what the search of MAGIS, `chen`, "
        "`rotor`, `dtr` and `checkmate` trade: the steps of that paper's evaluation, an A100 and an RTX 3090",
        "5 hours; `--quick` for a trial, `--only` and `--device` for some",
    ),
    Benchmark(
        "step_picture",
        "what is alive over one training step of GPT-2, eager and planned: the picture of the README",
        "half a minute",
    ),
    Benchmark(
        "step_time",
        "the time of a step, planned and eager: 4-layer BERT of width 128, three batch sizes, one and two threads, "
        "Adam and fused Adam",
        "2 minutes; `--quick` for a trial",
    ),
    Benchmark(
        "step_memory",
        "the peak of training, planned and eager: the four models of the tests",
        "2 minutes",
    ),
    Benchmark(
        "step_zoo",
        "what a step needs beyond parameters and state, planned and eager, bit for bit: the zoo's small models, and "
        "ResNet-50",
        "3 minutes",
    ),
    Benchmark(
        "step_prediction",
        "predicted times, before and after they have settled, with what the operators and the whole step take: the "
        "zoo's small models, 4-layer BERT and GPT-2, ResNet-50",
        "10 minutes; `--quick` for a trial",
    ),
    Benchmark(
        "step_live",
        "what a call takes beside its planned programs, because the function's own Python runs: BERT on 8 x 128, and a "
        "step of ten tensor calls",
        "1 minute; `--quick` for a trial",
    ),
    Benchmark(
        "step_swap",
        "GPT-2 XL with Adam, which does not fit, trained from a file within 8 and within 16 GiB: the step with its "
        "operators and its transfers alone, and equal losses and parameters",
        "6 minutes and 30 GB of disk in TMPDIR; `--tenth` takes a minute",
    ),
    Benchmark(
        "step_parts",
        "steps whose largest operators are the peak, planned in parts, with eager: peak, time and numbers of the head "
        "of a language model, attention written out, a U-Net's level and a transformer's MLP",
        "10 minutes; name some steps for less",
    ),
    Benchmark(
        "step_guard",
        "the time of a step, guarded and plain: the zoo's small models, and BERT on 8 x 128",
        "1 minute",
    ),
    Benchmark(
        "fit_table",
        "what plain PyTorch reserves with what is planned, on a GPU that is not here, and the largest batch of each: "
        "the zoo",
        "20 minutes; name some models for less, or `--one-batch`",
    ),
    Benchmark(
        "fit_measured",
        "peaks that `lowtide.fit` predicts before a step runs with measured ones, eager and planned: the zoo's small "
        "models, and ResNet-50",
        "4 minutes",
    ),
    Benchmark(
        "fit_emulated",
        "what `lowtide.fit` says that plain PyTorch reserves on an L4 with what its caching allocator does on a device "
        "of that kind, emulated: the zoo's small models, or `--size paper` for full ones",
        "4 minutes, on emulated CUDA (tests/emulated_cuda)",
    ),
    Benchmark(
        "backend_table",
        '`torch.compile(backend="lowtide")` within budgets with eager, checkpointing of each block, aot_eager and '
        "Inductor at five settings of its own knob: four models, peak, time, first call and bits",
        "1 hour; `--quick` for a trial, or name some models",
    ),
    Benchmark(
        "adapt_table",
        "`lowtide.adapt` on batches of any length with a static plan for the longest, with DTR's rule and with "
        "checkpointing of every block, within budgets of 40, 60 and 80 %: seven tasks, time, measured peaks, "
        "predictions",
        "hours; `--batches 60` and a name for a trial",
    ),
    Benchmark(
        "adapt_flat",
        "the memory of a process after few and after many batches of 500 shapes under `lowtide.adapt`",
        "10 minutes; `--batches 1000` for less",
    ),
    Benchmark(
        "adapt_planning",
        "how long the plan for a batch takes, from the model's call and in the core alone: 48 blocks",
        "seconds",
    ),
    Benchmark(
        "adapt_regressors",
        "polynomials with other regressors of what a batch needs: the same tasks",
        "minutes; needs scikit-learn",
    ),
    Benchmark(
        "replay_table",
        "eager loops from one arena with PyTorch's allocators: memory, time for a request, time of a step, largest "
        "batch in a capacity; eight models, training and inference",
        "20 minutes; `--quick` for a trial, or name some of its tables",
    ),
    Benchmark(
        "store_entries",
        "what a fleet asks of the plan store: bytes and milliseconds of entries in a directory and in Redis, and jobs "
        "that plan with jobs that find the plan",
        "2 minutes; needs redis-server and redis-py",
    ),
    Benchmark(
        "zoo_held",
        "what a step of each of the papers' models holds in program order with what PyTorch's allocator for CUDA would "
        "reserve for it (simulated)",
        "2 minutes",
    ),
)


def find(name: str) -> Benchmark | None:
    return next((benchmark for benchmark in CATALOG if benchmark.name == name), None)
