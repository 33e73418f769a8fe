"""What live Python sees of tensors: structures, values, memory and identity, before they are computed and after."""

import concurrent.futures
import copy
import weakref
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import lowtide
from live_cases import Cases, World, check
from lowtide._capture.layouts import layouts

cases = Cases()

# -- what modules give -------------------------------------------------------------------------------------------------


@dataclass
class Answer:
    scores: torch.Tensor
    hidden: list[torch.Tensor]
    count: int = 3


class Couple(NamedTuple):
    scores: torch.Tensor
    hidden: torch.Tensor


class Gives(nn.Module):
    def __init__(self, give) -> None:
        super().__init__()
        self.first, self.last, self.give = nn.Linear(8, 8), nn.Linear(8, 4), give

    def forward(self, x):
        hidden = self.first(x)
        return self.give(x, hidden, self.last(hidden))


@cases.add(model=lambda: Gives(lambda x, h, y: Answer(y, [h])))
def gets_an_object(w, x):
    answer = w.model(x)
    w.train(answer.scores.pow(2).mean() + answer.hidden[0].mean())
    return type(answer).__name__, answer.scores.detach(), answer.count


@cases.add(model=lambda: Gives(lambda x, h, y: {"scores": y, "rest": (h, None, 3)}))
def gets_a_dict(w, x):
    answer = w.model(x)
    w.train(answer["scores"].pow(2).mean())
    answer["more"] = 1
    return sorted(answer), answer["rest"][0].detach(), answer["rest"][1:]


@cases.add(model=lambda: Gives(lambda x, h, y: Couple(y, h)))
def gets_a_named_tuple(w, x):
    answer = w.model(x)
    w.train(answer.scores.pow(2).mean())
    return type(answer).__name__, answer._fields


@cases.add(model=lambda: Gives(lambda x, h, y: (x, y)))
def gets_its_own_input(w, x):
    same, out = w.model(x)
    w.train(out.pow(2).mean())
    same.add_(1)
    return same is x


@cases.add("none", model=lambda: Gives(lambda x, h, y: iter([y, h])), said="only tensors and plain values")
def gets_an_iterator(w, x):
    out, _ = w.model(x)
    return w.train(out.pow(2).mean())


class TakesOut(nn.Linear):
    def forward(self, batch):
        target = batch.pop("target")
        return super().forward(batch["x"]) - target


@cases.add("none", model=lambda: TakesOut(8, 4), said="changes a list, dict or object")
def lends_a_dict(w, x):
    lent = {"x": x, "target": torch.ones(12, 4)}
    loss = w.model(lent).pow(2).mean()
    return w.train(loss), sorted(lent)


# -- parts and views ---------------------------------------------------------------------------------------------------


@cases.add()
def takes_outputs_apart(w, x):
    out = w.model(x)
    upper, lower = out.chunk(2)
    rows = [row.sum() for row in out]
    head, *rest = out.split(5)
    largest, where = out.max(1)
    loss = upper.pow(2).mean() + lower.abs().mean() + sum(rows) + rest[0][:, None, ..., 1:3].sum() + largest.mean()
    w.train(loss)
    return where, head.detach(), out.topk(2).indices, len(out)


@cases.add()
def writes_into_views_afterwards(w, x):
    out = w.model(x)
    kept, of_input, of_weight = out.detach(), x.view(-1), w.model[0].weight.detach()
    part = kept.view(-1)[3:]
    w.train(out.pow(2).mean())
    kept.add_(1)
    x.zero_()
    return kept, part, of_input, of_weight


@cases.add()
def writes_into_its_input(w, x):
    out = w.model(x.mul_(2))
    total = torch.zeros(12, 4).add_(out.detach())
    own = x.clone()
    x.zero_()
    w.seen.append(x.sum().item())
    return w.train(w.model(own).pow(2).mean()), total


@cases.add(inputs=lambda call: torch.randn(1 + call * 7 % 12, 8))
def has_another_shape_each_time(w, x):
    return w.train(w.loss(x))


@cases.add()
def calls_helpers(w, x):
    def again(times, h):
        return h if times == 0 else again(times - 1, torch.tanh(h))

    loss = sum(out.pow(2).mean() for out in (w.model(part) for part in x.chunk(3)))
    return w.train(loss + again(3, w.model(x)).mean())


@cases.made()
def is_a_method(w: World):
    class Trainer:
        count = 0

        def step(self, x):
            self.count += 1
            w.seen.append(self.count)
            return w.train(w.loss(x))

    return Trainer().step


@cases.made()
def calls_a_compiled_step(w: World):
    inner = lowtide.compile(w.loss, model=w.model)
    return lambda x: w.train(inner(x))


# -- values ------------------------------------------------------------------------------------------------------------


@cases.add("none", said="__repr__")
def prints_before_backward(w, x):
    loss = w.loss(x)
    w.seen.append((f"{loss:.3f}", str(w.model(x).detach()[0]), repr(loss.shape)))
    return w.train(loss)


@cases.add()
def prints_afterwards(w, x):
    out = w.model(x)
    loss = out.pow(2).mean()
    w.train(loss)
    w.seen.append((f"{loss:.3f}", str(out.detach()[0]), out.detach().numpy().tolist(), np.asarray(out.detach()).sum()))
    return copy.deepcopy(out.detach()), format(loss, ".3f"), max(loss, loss * 2).tolist()


@cases.add("none", said="__deepcopy__")
def copies_before_backward(w, x):
    out = w.model(x)
    with pytest.raises(RuntimeError, match="created explicitly by the user"):
        copy.deepcopy(out)
    return copy.deepcopy(out.detach()), w.train(out.pow(2).mean())


@cases.add()
def counts_right_answers(w, x):
    out, target = w.model(x), torch.arange(12) % 4
    loss = nn.functional.cross_entropy(out, target)
    right = (out.argmax(1) == target).sum().item()
    return w.train(loss), right


@cases.add()
def has_numbers_of_numpy(w, x):
    return w.train(w.loss(x) * np.float64(0.5) + w.model(x)[np.int64(1)].sum() * np.float32(2))


@cases.add()
def tells_numbers_apart(w, x):
    scale = [0.0, -0.0, True, 1, 1.0][w.calls % 5]
    out = w.model(x)
    scaled = out.detach().abs() * 0 * scale, torch.zeros_like(out, dtype=torch.int32) * scale
    return w.train(out.pow(2).mean()), scaled


# -- identity ----------------------------------------------------------------------------------------------------------


@cases.add()
def marks_its_outputs(w, x):
    out = w.model(x)
    out.origin, known = "model", {out: 1}
    gone = weakref.ref(w.model(x))
    w.train(out.pow(2).mean())
    return out.origin, known[out], gone() is None


@cases.add("none", said="a new parameter")
def makes_a_parameter_of_an_output(w, x):
    out = w.model(x)
    made = nn.Parameter(out.detach())
    w.train(out.pow(2).mean())
    return isinstance(made, nn.Parameter), type(made).__name__, made.detach()


@cases.add()
def iterates_over_a_number(w, x):
    loss = w.loss(x)
    try:
        w.seen.append(list(loss))
    except (TypeError, IndexError) as error:
        w.seen.append((type(error).__name__, str(error)))
    return w.train(loss)


@cases.add()
def draws_with_a_tensor_of_another_shape(w, x):
    beside = nn.functional.dropout(torch.ones(3 + w.calls % 3), 0.5)
    loss = w.loss(x)
    other = nn.functional.dropout(torch.ones(2 + w.calls % 4), 0.5)
    w.seen.append((tuple(other.shape), tuple(beside.shape)))
    return w.train(loss * (1 + other.sum()))


@cases.add()
def uses_a_tensor_of_another_shape_now_and_then(w, x):
    y = w.model(x)
    if w.calls >= 2:
        y = torch.mul(y, torch.full((12 if w.calls % 3 else 1, 1), 0.5 + w.calls))
    return w.train(y.pow(2).mean())


# -- strides that PyTorch predicts wrongly ----------------------------------------------------------------------------


class LooksAtStrides(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(8), nn.Linear(8, 4)

    def forward(self, x):
        hidden = self.norm(x)  # laid out in rows, whatever x is; its fake is laid out as x is
        return self.last(hidden if hidden.is_contiguous() else 2 * hidden)


def in_columns(_call: int) -> torch.Tensor:
    return torch.randn(8, 12).t()


def nothing_is_known(_world: World) -> None:
    layouts._strides.clear()


@cases.add(model=LooksAtStrides, inputs=in_columns, setup=nothing_is_known)
def a_module_that_looks_at_the_strides_of_a_result(w, x):
    return w.train(w.loss(x))


@cases.add(
    "some",
    model=lambda: nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 4)),
    inputs=in_columns,
    setup=nothing_is_known,
)
def a_step_that_looks_at_the_strides_of_a_result(w, x):
    hidden = w.model[0](x)
    w.seen.append(hidden.stride())
    return w.train(w.model[1](hidden).pow(2).mean())


@cases.add(model=lambda: nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 4)), inputs=in_columns, setup=nothing_is_known)
def a_view_of_a_result_with_other_strides(w, x):
    hidden = w.model[0](x)
    return w.train(w.model[1](hidden[2:]).pow(2).mean())


@cases.add(model=LooksAtStrides, inputs=in_columns, setup=nothing_is_known)
def a_call_with_wrong_strides_that_is_made_twice(w, x):
    return w.train(w.loss(x) + w.loss((2 * x.t()).t()))


class InLowPrecision(nn.Module):
    """What batch norm saves in low precision, and reads later, has another dtype than its fakes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)

    def forward(self, x):
        with torch.autocast("cpu", torch.float16):
            hidden = self.norm(self.first(x))
            return self.last(hidden.t().contiguous().view(x.shape)).float()  # its gradient comes in columns


@cases.add(model=InLowPrecision, inputs=lambda _: torch.randn(6, 8), setup=nothing_is_known)
def wrong_strides_and_wrong_dtypes(w, x):
    return w.train(w.loss(x))


@pytest.mark.parametrize("name", cases)
def test_live_python_sees_what_eager_python_sees(name: str) -> None:
    check(cases[name])


# -- what is known to be different -------------------------------------------------------------------------------------


def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def by_another_thread(out: torch.Tensor) -> torch.Tensor:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        return pool.submit(twice, out).result()


def test_another_thread_that_works_with_a_result_raises() -> None:
    """Never wrong, but not eager's behaviour either."""
    model = nn.Linear(8, 4)
    step = lowtide.compile(lambda x: by_another_thread(model(x)).sum().detach(), model=model)
    with pytest.raises(RuntimeError, match="not computed yet"):
        step(torch.randn(3, 8))


def test_scripted_functions_are_part_of_the_step() -> None:
    model, scripted = nn.Linear(8, 4), torch.jit.script(twice)
    step = lowtide.compile(lambda x: scripted(model(x)).sum().detach(), model=model, on_unsupported="raise")
    x = torch.randn(3, 8)
    assert torch.equal(step(x), scripted(model(x)).sum())
