"""lowtide.explain_oom: what eager code holds when memory runs out, at the lines that made it so."""

import gc
import inspect
import json
import mmap
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import lowtide

KEPT_BY_A_MODULE: list[torch.Tensor] = []


def line(function: Callable[..., Any], text: str) -> str:
    """Where in a function a text is, as sources are written."""
    lines, first = inspect.getsourcelines(function)
    found = [first + i for i, row in enumerate(lines) if text in row]
    assert len(found) == 1, text
    return f"{inspect.getsourcefile(function)}:{found[0]}"


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(16, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1))


def run_out() -> None:
    raise torch.OutOfMemoryError("out of memory")


def report_of(function: Callable[..., Any], *arguments: Any) -> lowtide.OomReport:
    gc.collect()  # of other tests
    try:
        function(*arguments)
    except torch.OutOfMemoryError:
        return lowtide.explain_oom()
    raise AssertionError("it did not run out of memory")


def evaluate(model: nn.Module, losses: list[torch.Tensor], rounds: int) -> None:
    for _ in range(rounds):
        losses.append(model(torch.randn(64, 16)).square().mean())
    run_out()


def test_losses_kept_with_their_graphs() -> None:
    losses: list[torch.Tensor] = []
    model = network()
    with lowtide.measure() as used:
        report = report_of(evaluate, model, losses, 10)
        before = used.current_bytes
        losses.clear()
        freed = before - used.current_bytes
    holder = report.holders[0]
    assert holder.name == "losses[*] in evaluate()" and holder.count == 10
    # Each graph keeps the batch and what two tanhs made, which the layers after them save too.
    assert holder.graph_bytes >= 10 * 64 * (16 + 2 * 256) * 4
    assert holder.bytes == holder.only_bytes and abs(freed - holder.bytes) <= 64 * 10 * 8, "what letting go of it frees"
    assert holder.source == line(evaluate, "losses.append") and holder.code.startswith("losses.append(model(")
    assert report.source == line(run_out, "raise")
    assert "graphs of 10 tensors" in report.advice[0] and "detach()" in report.advice[0]
    assert holder.source in str(report) and "10 tensors" in str(report)
    assert json.loads(report.to_json()) == report.to_dict()


class Recurrent:
    """State that is carried from step to step."""

    def __init__(self) -> None:
        self.cell = nn.GRUCell(16, 128)
        self.hidden = torch.zeros(32, 128)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.hidden = self.cell(torch.randn(32, 16), self.hidden)
        run_out()


def test_history_that_is_not_detached() -> None:
    report = report_of(Recurrent().run, 25)
    holder = report.holders[0]
    assert holder.name == "self.hidden in run()" and holder.count == 1
    assert holder.bytes > 0.5 * report.total_bytes and holder.graph_bytes >= 24 * 32 * 128 * 4
    assert holder.source == line(Recurrent.run, "self.hidden = ")
    assert "25 uses of the same parameter" in report.advice[0] and "self.hidden.detach()" in report.advice[0]


def test_gradients_kept_into_the_next_forward_pass() -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train(clear_early: bool) -> None:
        for step in range(2):
            out = model(torch.randn(1, 16))
            if step == 1:
                run_out()
            optimizer.zero_grad()
            out.sum().backward()
            optimizer.step()
            if clear_early:
                optimizer.zero_grad()

    parameters = sum(parameter.nbytes for parameter in model.parameters())
    report = report_of(train, False)
    gradients = next(holder for holder in report.holders if holder.name == "gradients")
    assert gradients.bytes == parameters and "optimizer.zero_grad() right after" in gradients.advice
    report = report_of(train, True)
    assert "gradients" not in {holder.name for holder in report.holders}


def classify() -> None:
    model = nn.Linear(16, 8192).bfloat16()
    logits = model(torch.randn(64, 16).bfloat16())
    wide = logits.float()
    F.cross_entropy(wide, torch.zeros(64, dtype=torch.long))
    run_out()


def test_giant_logits_and_their_copy() -> None:
    report = report_of(classify)
    wide, logits = report.holders[:2]
    assert (wide.name, logits.name) == ("wide in classify()", "logits in classify()")
    assert (wide.bytes, logits.bytes - logits.graph_bytes) == (64 * 8192 * 4, 64 * 8192 * 2)
    assert wide.source == line(classify, "wide = ") and logits.source == line(classify, "logits = ")
    assert wide.what == "float32 [64, 8192]"
    assert "is the copy needed?" in wide.advice and "bfloat16 [64, 8192]" in wide.advice
    assert "logits is one tensor" in logits.advice and "chunks" in logits.advice


def test_nothing_is_unpacked_and_what_was_freed_is_not_counted() -> None:
    unpacked: list[torch.Tensor] = []

    def unpack(packed: tuple[torch.Tensor]) -> torch.Tensor:
        unpacked.append(packed[0])
        return packed[0]

    def train() -> None:
        model = network()
        first = model(torch.randn(64, 16)).sum()
        first.backward()
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: (tensor,), unpack):
            second = model(torch.randn(32, 16)).sum()
        run_out()
        del second

    report = report_of(train)
    graphs = {holder.name: holder.graph_bytes for holder in report.holders}
    assert graphs["second in train()"] >= 32 * (16 + 2 * 256) * 4 and not unpacked
    assert graphs["first in train()"] == 0


def test_graphs_that_were_freed_and_parameters_without_a_shape() -> None:
    def train() -> None:
        lazy = nn.LazyLinear(4)
        weight = torch.randn(64, 64, requires_grad=True)
        loss = weight[torch.tensor([0, 2])].sum()  # keeps a list of tensors
        loss.backward()
        run_out()
        del lazy

    assert report_of(train).total_bytes >= 2 * 64 * 64 * 4


class Inner(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([x] * 64)
        run_out()
        return x


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.inner(x)
        return y


def test_methods_of_the_same_name_are_told_apart() -> None:
    report = report_of(Outer(), torch.zeros(1 << 12))
    held = {holder.name: holder for holder in report.holders}
    assert held["x in Inner.forward()"].bytes == 64 * 4 << 12
    assert held["x in Outer.forward()"].bytes == 4 << 12
    assert "work in chunks" in held["x in Inner.forward()"].advice and not held["x in Outer.forward()"].advice


def test_what_is_global_and_what_nobody_is_found_to_hold() -> None:
    KEPT_BY_A_MODULE.extend(torch.zeros(1 << 16) for _ in range(3))

    def with_closure(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: tensor

    function = with_closure(torch.zeros(1 << 18))
    try:
        report = lowtide.explain_oom()
    finally:
        KEPT_BY_A_MODULE.clear()
    by_name = {holder.name: holder for holder in report.holders}
    kept = by_name["KEPT_BY_A_MODULE[*] in test_explain_oom.py"]
    assert (kept.count, kept.bytes) == (3, 3 << 18) and kept.source.startswith(__file__)
    assert by_name["not held by any variable that was found"].bytes >= function().nbytes
    assert report.error == report.source == ""


def test_only_the_device_that_is_full_counts() -> None:
    def train() -> None:
        batch = torch.zeros(1 << 16)
        raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {batch.nbytes} bytes")

    report = report_of(train)
    assert (report.total_bytes, report.holders) == (0, []) and "CUDA out of memory" in str(report)


def test_advice_for_a_gpu_runs_there() -> None:
    def train() -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    assert "lowtide.fit(" in report_of(train).advice[0], "no step on a GPU is captured"
    assert "lowtide.explain(step, model=model" in report_of(run_out).advice[-2]


def with_measure() -> None:
    with lowtide.measure():
        torch.empty(1 << 46)


ERRORS: dict[str, tuple[Callable[[], Any], bool]] = {
    "of the CPU's allocator": (lambda: torch.empty(1 << 46), True),
    "of Lowtide's allocator": (with_measure, True),
    "of NumPy": (lambda: np.empty(1 << 46), True),
    "of Python": (lambda: bytearray(1 << 50), True),
    "of the system": (lambda: mmap.mmap(-1, 1 << 46), True),
    "of a GPU": (run_out, True),
    "of shapes": (lambda: torch.ones(2) + torch.ones(3), False),
    "of a size that no device has": (lambda: torch.empty(1 << 62), False),
    "of a name": (lambda: {}["out of memory"], False),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_that_say_that_memory_ran_out(name: str) -> None:
    fails, expected = ERRORS[name]
    with pytest.raises(Exception) as raised:
        fails()
    assert lowtide.is_out_of_memory(raised.value) == expected


def recipe() -> str:
    """The block of the documents that prints the report."""
    page = (Path(__file__).parents[2] / "docs" / "explain.md").read_text()
    blocks = [block for block in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S) if "explain_oom" in block]
    assert len(blocks) == 1
    return blocks[0]


@pytest.mark.parametrize(
    "name", [name for name, (_, expected) in ERRORS.items() if expected and name != "of the system"]
)
def test_the_recipe_of_the_documents_catches_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    def train_step(x: torch.Tensor, y: torch.Tensor) -> None:
        ERRORS[name][0]()

    with pytest.raises((RuntimeError, MemoryError)):
        exec(recipe(), {"torch": torch, "lowtide": lowtide, "train_step": train_step})
    printed = capsys.readouterr().out
    assert printed.startswith("error ") and "\nalive " in printed


def test_the_recipe_of_the_documents_leaves_other_errors_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RuntimeError, match="size"):
        exec(recipe(), {"torch": torch, "lowtide": lowtide, "train_step": lambda x, y: torch.ones(2) + torch.ones(3)})
    assert capsys.readouterr().out == ""


LIMITED = """
import resource, torch, lowtide
torch.set_num_threads(1)
weight, losses = torch.randn(256, 256, requires_grad=True), []
def train_step(x, y):
    while True:
        losses.append((torch.randn(64, 256) @ weight).square().mean())
torch.randn(32, 64), torch.randint(10, (32,))
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
"""


def test_the_recipe_works_where_no_address_is_left() -> None:
    """Small tensors until nothing more can be had: Python needs some for the report, too."""
    done = subprocess.run([sys.executable, "-c", LIMITED + recipe()], capture_output=True, text=True, timeout=120)
    assert "losses keeps the autograd graphs of" in done.stdout, done.stderr
    assert "can't allocate memory" in done.stderr.splitlines()[-1]
