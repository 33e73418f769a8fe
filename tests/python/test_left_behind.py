"""A capture leaves nothing behind: caches that code fills while it runs on fake tensors hold none of them later."""

from __future__ import annotations

import contextvars
import copy
import functools
import gc
import os
import queue
import sys
import sysconfig
import threading
import types
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from lowtide._capture import leftovers
from lowtide._capture.leftovers import Leftovers
from step_models import same


def library(source: str) -> types.ModuleType:
    """A module whose code is a library's, not the user's."""
    name = "lowtide_test_library"
    module = types.ModuleType(name)
    module.__file__ = os.path.join(sysconfig.get_paths()["purelib"], f"{name}.py")
    exec(compile(source, module.__file__, "exec"), module.__dict__)
    sys.modules[name] = module
    return module


@pytest.fixture(autouse=True)
def forget_the_library():
    yield
    sys.modules.pop("lowtide_test_library", None)


# -- caches: each gives a function of the step's input, and what the cache holds -------------------------------------

Cache = tuple[Callable[[torch.Tensor], torch.Tensor], Callable[[], Any]]


def lru_cache() -> Cache:
    @functools.lru_cache(None)
    def mask(n: int) -> torch.Tensor:
        return torch.ones(n, n).tril()

    return lambda x: x @ mask(4), lambda: mask(4)


def small_lru_cache() -> Cache:
    @functools.lru_cache(maxsize=2)
    def masks(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.ones(n, n).tril_(), torch.arange(n) * 1.0

    return lambda x: x @ masks(4)[0] + masks(4)[1], lambda: masks(4)


def cached_view() -> Cache:
    @functools.cache
    def row(n: int) -> torch.Tensor:
        return torch.ones(n, n).tril()[n // 2]

    return lambda x: x * row(4), lambda: row(4)


def library_variable() -> Cache:
    module = library(
        "import torch\n_mask = None\ndef mask(n):\n    global _mask\n"
        "    if _mask is None: _mask = torch.ones(n, n).tril()\n    return _mask"
    )
    mask = module.mask
    return lambda x: x @ mask(4), lambda: module._mask


def library_dictionary() -> Cache:
    module = library(
        "import torch\n_kept = {}\ndef mask(n):\n    if n not in _kept: _kept[n] = torch.ones(n, n).tril()\n"
        "    return _kept[n]"
    )
    mask = module.mask
    return lambda x: x @ mask(4), lambda: module._kept


def library_class() -> Cache:
    module = library(
        "import torch\nclass Masks:\n    kept = None\n    @classmethod\n    def mask(cls, n):\n"
        "        if cls.kept is None: cls.kept = torch.ones(n, n).tril()\n        return cls.kept\n"
    )
    masks = module.Masks
    return lambda x: x @ masks.mask(4), lambda: masks.kept


def thread_local() -> Cache:
    kept = threading.local()

    def mask() -> torch.Tensor:
        if not hasattr(kept, "mask"):
            kept.mask = torch.ones(4, 4).tril()
        return kept.mask

    return lambda x: x @ mask(), lambda: kept.mask


def weak_keys() -> Cache:
    kept: weakref.WeakKeyDictionary[Any, torch.Tensor] = weakref.WeakKeyDictionary()

    def mask() -> torch.Tensor:
        if mask not in kept:
            kept[mask] = torch.ones(4, 4).tril()
        return kept[mask]

    return lambda x: x @ mask(), lambda: kept[mask]


def written_lru_cache() -> Cache:
    @functools.cache
    def counter() -> torch.Tensor:
        return torch.zeros(4)

    return lambda x: x * counter().add_(1), counter


def context_variable() -> Cache:
    kept: contextvars.ContextVar[torch.Tensor | None] = contextvars.ContextVar("kept", default=None)

    def mask() -> torch.Tensor:
        if kept.get() is None:
            kept.set(torch.ones(4, 4).tril())
        return kept.get()  # type: ignore[return-value]

    return lambda x: x @ mask(), kept.get


def default_argument() -> Cache:
    module = library(
        "import torch\ndef mask(n, kept=[]):\n    kept or kept.append(torch.ones(n, n).tril())\n    return kept[0]"
    )
    mask = module.mask
    return lambda x: x @ mask(4), lambda: mask.__defaults__


def cached_property() -> Cache:
    class Masks:
        @functools.cached_property
        def mask(self) -> torch.Tensor:
            return torch.ones(4, 4).tril()

    masks = Masks()
    return lambda x: x @ masks.mask, lambda: masks.mask


def running_mean_of_a_library() -> Cache:
    module = library(
        "import torch\n_mean = torch.zeros(4)\ndef centre(x):\n    global _mean\n"
        "    _mean = 0.5 * _mean + 0.5 * x.detach().mean(0)\n    return x - _mean"
    )
    centre = module.centre
    return lambda x: centre(x), lambda: module._mean


def list_of_a_library() -> Cache:
    module = library("seen = []\ndef note(x):\n    seen.append(x.detach())\n    return x")
    note = module.note
    return lambda x: note(x), lambda: module.seen


def lru_cache_by_tensor() -> Cache:
    @functools.lru_cache(maxsize=1)
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    return lambda x: double(x), lambda: double.cache_info().maxsize


def lru_cache_of_random_numbers() -> Cache:
    @functools.cache
    def direction() -> torch.Tensor:
        return torch.randn(4)

    return lambda x: x * direction(), direction


def simple_queue() -> Cache:
    kept: queue.SimpleQueue[torch.Tensor] = queue.SimpleQueue()
    return lambda x: (kept.put(x.detach()), x)[1], kept.qsize


def thread_local_history() -> Cache:
    kept = threading.local()
    kept.last = torch.zeros(3, 4)

    def follow(x: torch.Tensor) -> torch.Tensor:
        result = x - kept.last
        kept.last = x.detach()
        return result

    return follow, lambda: kept.last


PLANNED = [
    lru_cache,
    small_lru_cache,
    cached_view,
    library_variable,
    library_dictionary,
    library_class,
    weak_keys,
]
EAGER = [
    written_lru_cache,
    context_variable,
    default_argument,
    cached_property,
    thread_local,
    running_mean_of_a_library,
    list_of_a_library,
    lru_cache_by_tensor,
    lru_cache_of_random_numbers,
    simple_queue,
    thread_local_history,
]


class Using(nn.Module):
    """A model whose own code goes through a cache; `spoil` makes it one that cannot be planned."""

    def __init__(self, use: Callable[[torch.Tensor], torch.Tensor], spoil: bool) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 4)
        self.use = use
        self.spoil = spoil

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.use(self.linear(x))
        if self.spoil and out.square().sum().item() < 0:
            raise AssertionError("a square is not negative")
        return out


def same_tensor(x: torch.Tensor) -> torch.Tensor:
    return x


def train(
    make: Callable[[], Cache], compiled: bool, in_module: bool, spoil: bool = False
) -> tuple[list[Any], Any, list[str]]:
    torch.manual_seed(0)
    use, peek = make()
    inside, outside = (use, same_tensor) if in_module else (same_tensor, use)
    model = Using(inside, spoil)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def function(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = outside(model(x)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step: Any = lowtide.compile(function, model=model, optimizer=optimizer) if compiled else function
    log = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            log.append([step(torch.randn(3, 8)), dict(model.state_dict()), peek(), torch.get_rng_state()])
            log[-1] = [part.clone() if isinstance(part, torch.Tensor) else repr(part) for part in log[-1]]
    return log, step, [str(w.message) for w in caught if "lowtide" in str(w.message)]


SPOILT = [lru_cache, small_lru_cache, library_variable, written_lru_cache, running_mean_of_a_library]
CASES = [(make, False) for make in (*PLANNED, *EAGER)] + [(make, True) for make in SPOILT]


@pytest.mark.parametrize(("make", "spoil"), CASES, ids=[f"{m.__name__}{'-refused' if s else ''}" for m, s in CASES])
def test_caches_of_modules_hold_what_eager_puts_there(make, spoil):
    expected, _, _ = train(make, compiled=False, in_module=True, spoil=spoil)
    got, step, said = train(make, compiled=True, in_module=True, spoil=spoil)
    assert same(expected, got)
    planned = make in PLANNED and not spoil
    assert (step.stats()["eager_calls"], len(said)) == ((0, 0) if planned else (3, 1)), said


@pytest.mark.parametrize("make", [*PLANNED, *EAGER], ids=lambda make: make.__name__)
def test_caches_of_the_function_hold_what_eager_puts_there(make):
    expected, _, _ = train(make, compiled=False, in_module=False)
    got, step, said = train(make, compiled=True, in_module=False)
    assert same(expected, got)
    assert (step.stats()["calls"], step.stats()["eager_calls"], said) == (3, 0, []), step.explain_guards()


class Masked(nn.Module):
    def __init__(self, mask: Callable[[int], torch.Tensor]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.mask = mask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) @ self.mask(4)


@pytest.mark.parametrize("in_module", [True, False])
def test_a_cache_that_is_cleared_is_filled_again(in_module):
    @functools.lru_cache(None)
    def mask(n: int) -> torch.Tensor:
        return torch.full((n, n), scale)

    scale = 1.0
    model = Masked(mask) if in_module else nn.Linear(4, 4)
    linear = model.linear if in_module else model
    function = (lambda x: model(x)) if in_module else (lambda x: model(x) @ mask(4))
    step = lowtide.compile(function, model=model, on_unsupported="raise")
    x = torch.randn(2, 4)
    with torch.no_grad():
        for scale in (1.0, 2.0, 2.0):
            assert torch.equal(step(x), linear(x) @ torch.full((4, 4), scale))
            mask.cache_clear()
        assert torch.equal(step(x), linear(x) @ torch.full((4, 4), scale))
    assert step.stats()["captures"] <= 4
    assert step.stats()["eager_calls"] == 0


def deep_store() -> Any:
    """A function of a library that keeps its argument where nobody looks, and what it keeps."""
    module = library(
        "class Deep:\n    def __init__(self, inner): self.inner = inner\n"
        "store = Deep(Deep(Deep(None)))\n"
        "def keep(x):\n    deep = store.inner.inner\n    deep.inner = x.detach()\n    return x"
    )
    return module.keep, lambda: module.store.inner.inner.inner


def test_what_cannot_be_put_back_is_an_error_that_names_it():
    keep, _ = deep_store()
    model = nn.Linear(4, 4)
    model.register_forward_hook(lambda module, args, out: keep(out))
    step = lowtide.compile(lambda x: model(x), model=model, on_unsupported="eager")
    with torch.no_grad(), pytest.raises(lowtide.CaptureError, match=r"a tensor of shape \(2, 4\) in a Deep"):
        step(torch.randn(2, 4))


def test_what_the_function_keeps_where_nobody_looks_is_real():
    keep, kept = deep_store()
    model = nn.Linear(4, 4)
    step = lowtide.compile(lambda x: keep(model(x)), model=model, on_unsupported="raise")
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(2, 4)
            out = step(x)
            assert type(kept()) is torch.Tensor
            assert torch.equal(kept(), model(x)) and torch.equal(out, model(x))


def test_holders_of_what_a_graph_keeps_are_searched_for_once():
    """A search goes through all objects of the process, and a capture that is given up can leave hundreds of fakes."""
    weight = torch.ones(2, requires_grad=True)
    saved = [torch.randn(2) for _ in range(50)]
    loss = torch.stack([weight * one for one in saved]).sum()
    kept_by_the_graph = [weakref.ref(one) for one in saved]
    saved.clear()
    assert all(reference() is not None for reference in kept_by_the_graph)

    searches = []

    def count(_frame: Any, event: str, called: Any) -> None:
        if event == "c_call" and called is gc.get_referrers:
            searches.append(called)

    sys.setprofile(count)
    try:
        leftovers._refuse_held(kept_by_the_graph)
    finally:
        sys.setprofile(None)
    assert 0 < len(searches) < 10
    loss.backward()


@pytest.mark.parametrize("clears", ["before", "after", "never"])
def test_a_capture_that_is_made_again_leaves_nothing_in_the_engine(clears, monkeypatch):
    """That gradients at entry are used is seen in mid-backward; the engine would keep a pass that failed there."""
    found = []
    monkeypatch.setattr(Leftovers, "_empty", lambda _, alive: found.extend(alive))
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    twin = copy.deepcopy(model)

    def training(model):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def function(x):
            if clears == "before":
                optimizer.zero_grad()
            loss = model(x).square().sum()
            loss.backward()
            optimizer.step()
            if clears == "after":
                optimizer.zero_grad()
            return loss.detach()

        return function, optimizer

    eager, _ = training(twin)
    function, optimizer = training(model)
    step = lowtide.compile(function, model=model, optimizer=optimizer, on_unsupported="raise")
    for _ in range(3):
        assert same(step(torch.ones(2, 4)), eager(torch.ones(2, 4)))
    assert not found
