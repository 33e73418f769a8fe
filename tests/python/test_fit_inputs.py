"""What people hand to `lowtide.fit`: examples of every form, models on other devices, files with mistakes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

import lowtide
from lowtide._fit import program as fit_program
from lowtide._fit.largest import LIMIT, largest_that_fits


@dataclass
class Batch:
    x: torch.Tensor


def trained(model: nn.Module, form: Any) -> Any:
    def step(given: Any) -> torch.Tensor:
        model.zero_grad()
        loss = model(form(given)).square().sum()
        loss.backward()
        return loss.detach()

    return step


X = torch.randn(8, 64)


@pytest.mark.parametrize(
    ("example", "form"),
    [
        (X, lambda given: given),
        ([X], lambda given: given),
        ({"x": X}, lambda given: given["x"]),
        (Batch(X), lambda given: given.x),
        ((Batch(X),), lambda given: given.x),
    ],
)
def test_forms_of_examples(example: Any, form: Any) -> None:
    model = nn.Linear(64, 64)
    report = lowtide.fit(trained(model, form), model=model, example=example, device="4MiB", reserve=0)
    assert report.batch == 8
    assert report.largest_batch is not None and report.largest_batch.refused == ""
    assert 1000 < report.largest_batch.plain < 10000  # rows of 256 bytes, a few of each


def test_gradients_of_arguments_are_asked_for() -> None:
    model = nn.Linear(64, 64)
    example = (torch.randn(8, 64, requires_grad=True),)
    with pytest.raises(lowtide.CaptureError, match="requires a gradient"):
        lowtide.fit(trained(model, lambda given: given), model=model, example=example, device="4MiB", reserve=0)


@pytest.mark.parametrize("tread", [10, 100, 1000])
def test_largest_where_bytes_grow_by_steps(tread: int) -> None:
    asked = []

    def probe(number: int) -> tuple[bool, int]:
        asked.append(number)
        needed = 64 * (number // tread) * tread + 500
        return needed <= 400_000, needed

    found = largest_that_fits(probe, 400_000, [8])
    assert probe(found)[0] and not probe(found + 1)[0]
    assert len(asked) <= 24, asked


def test_batches_beyond_what_is_tried() -> None:
    assert largest_that_fits(lambda number: (True, 10), 50, [LIMIT * 2]) == LIMIT * 2
    assert largest_that_fits(lambda number: (number <= 10**6, number), 10**6, [32]) == 10**6
    model = nn.Linear(4, 4)
    report = lowtide.fit(
        torch.no_grad()(lambda x: model(x[:1])), model=model, example=(torch.randn(8, 4),), device="1TiB"
    )
    assert report.largest_batch is not None
    shown = str(report)
    assert (f"{LIMIT} or more" in shown) == (report.largest_batch.plain == LIMIT)
    assert f"largest: PyTorch {report.largest_batch.shown(report.largest_batch.plain)}, " in shown


def test_models_on_a_gpu() -> None:
    model = nn.Linear(64, 64, bias=False)
    with FakeTensorMode():
        model.weight = nn.Parameter(torch.empty(64, 64, device="cuda"))
    report = lowtide.fit(
        torch.no_grad()(lambda x: model(x).sum()),
        model=model,
        example=(torch.randn(4, 64),),
        device="L4",
        largest=False,
    )
    assert report.fits
    assert model.weight.device.type == "cuda"


def test_autocast_of_a_gpu_is_said_to_have_no_effect() -> None:
    model = nn.Linear(64, 64)

    def step(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return model(x).sum()

    for function, noted in ((step, True), (lambda x: model(x).sum(), False)):
        report = lowtide.fit(
            torch.no_grad()(function), model=model, example=(torch.randn(4, 64),), device="L4", largest=False
        )
        assert any("autocast" in note for note in report.notes) == noted


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("def make(): return undefined", "NameError"),
        ("def make(): raise ValueError('bad config')", "ValueError"),
        ("def make(:", "SyntaxError"),
        ("import nothing_of_that_name", "ModuleNotFoundError"),
    ],
)
def test_mistakes_in_the_users_file(text: str, kind: str, tmp_path: Any, capsys: Any) -> None:
    (tmp_path / "mistaken.py").write_text(text)
    assert fit_program.run([f"{tmp_path}/mistaken.py:make", "--device", "L4", "--json"]) == fit_program.INVALID_INPUT
    answer = json.loads(capsys.readouterr().out)
    assert answer["error"]["code"] == kind and "mistaken.py" in answer["error"]["message"]
