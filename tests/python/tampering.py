"""Caches that somebody has changed, and a step that is trained with them: whatever they say, the numbers are eager's.

The honest cache is made once. Each try copies it, changes it at random, forgets what this process has seen of operators
(as a new process would not have seen them) and trains from the same weights.
"""

from __future__ import annotations

import copy
import json
import random
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import lowtide
from lowtide._compile.plan_cache import PlanCache
from lowtide._lower import profiles
from lowtide._store.entry import opened, sealed
from step_models import same

STEPS = 3
SHARE = 0.85  # of what eager needs: some operators run again, and the plan is kept on disk


class Net(nn.Module):
    """Operators that ask for temporaries before their results, and operators that may reuse an operand's place."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 4, 3))
        self.first = nn.Linear(4 * 6 * 6, 32)
        self.norm = nn.LayerNorm(32)
        self.drop = nn.Dropout(0.2)
        self.last = nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(self.conv(x).flatten(1))
        x = self.drop(nn.functional.gelu(self.norm(x)).tanh())
        return torch.softmax(self.last(x), -1).pow(2).mean()


class Bench:
    """One model, its eager numbers, and its honest cache."""

    def __init__(self, directory: Path, monkeypatch: Any) -> None:
        self.directory = directory
        self._monkeypatch = monkeypatch
        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._model = Net()
        self._batches = [torch.randn(8, 3, 8, 8) for _ in range(STEPS)]
        self.expected, _ = self._train(lambda step, _: step)
        self.honest = directory / "honest"
        self.train(self.honest, repeat=3)  # times settle, and then so does the plan
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PlanCache, "get_or_plan", self._noting_plans(PlanCache.get_or_plan))
            assert self.train(self.honest)["kind"] == "planned"
        for file in (self.honest / "plans").iterdir():  # only those that were used are ever read
            if file.name not in _plan_texts:
                file.unlink()

    def train(self, cache: Path, repeat: int = 1) -> dict[str, Any]:
        """Trains with this cache: how it ran, or how it was refused. Other numbers than eager's are an error."""
        self._monkeypatch.setenv("LOWTIDE_CACHE_DIR", str(cache))
        profiles._seen_here.clear()

        def compiled(step: Callable[..., Any], side: tuple[nn.Module, torch.optim.Optimizer]) -> Any:
            return lowtide.compile(step, model=side[0], optimizer=side[1], memory_budget=SHARE, keep_grads=False)

        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                got, step = self._train(compiled, repeat)
            except lowtide.LowtideError as error:
                return {"kind": "refused", "why": str(error)}
        stats = step.stats()
        arena, eager = stats["arena_bytes"] + stats["resident_bytes"], stats["eager_bytes"]
        step.close()
        assert repeat > 1 or same(self.expected, got), "other numbers than eager's"
        assert arena <= SHARE * eager, "the budget is not kept"
        told = [str(warning.message) for warning in said if "lowtide" in str(warning.message)]
        kind = "eager" if stats["eager_calls"] else "planned"
        return {"kind": kind, "why": told, "profiled": stats["profiled_ops"], "misses": stats["misses"]}

    def _noting_plans(self, get_or_plan: Callable[..., Any]) -> Callable[..., Any]:
        """Keeps each plan as text, by the name of its file."""

        def noting(cache: PlanCache, *args: Any) -> Any:
            plan = get_or_plan(cache, *args)
            plan.save(self.directory / "plan.json")
            for file in (self.honest / "plans").iterdir():
                found = _plan_in(file)
                if (found.order, found.offsets()) == (plan.order, plan.offsets()):
                    _plan_texts[file.name] = (self.directory / "plan.json").read_text()
            return plan

        return noting

    def _train(self, wrap: Callable[..., Any], repeat: int = 1) -> tuple[Any, Any]:
        model = copy.deepcopy(self._model)
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

        def function(x: torch.Tensor) -> torch.Tensor:
            loss = model(x)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        step = wrap(function, (model, optimizer))
        torch.manual_seed(1)
        losses = [step(batch) for _ in range(repeat) for batch in self._batches]
        return [losses, model.state_dict(), optimizer.state_dict()], step

    def tampered(self, seed: int) -> tuple[str, Path]:
        """A copy of the honest cache, changed at random, and in words how."""
        chance = random.Random(seed)
        cache = self.directory / "tampered"
        shutil.rmtree(cache, ignore_errors=True)
        shutil.copytree(self.honest, cache)
        kinds = [*PROFILE_KINDS, *PLAN_KINDS]
        kind = kinds[seed % len(kinds)]
        if kind in PROFILE_KINDS:
            (file,) = cache.glob("profiles-*.json")
            PROFILE_KINDS[kind](file, chance)
        else:
            PLAN_KINDS[kind](sorted((cache / "plans").iterdir()), chance)
        return f"{kind} (seed {seed})", cache


# -- profiles ----------------------------------------------------------------------------------------------------------

ODD_NUMBERS = [0, 1, -1, 2, 63, 64, 65, 2**31, 2**39, 2**62, 2**63, 2**64, -(2**30), 10**400, 0.5, 1e300]
ODD_VALUES = [*ODD_NUMBERS, True, False, None, "x", "", [], {}, [[]], [1, 2, 3], "float64", float("nan")]


def _change_rows(change: Callable[[list[Any], random.Random], None], share: float = 0.7) -> Callable[..., None]:
    """Changes rows of the profile cache: most, or all of some operator, or one."""

    def tamper(file: Path, chance: random.Random) -> None:
        stored = json.loads(file.read_text())
        for row in stored["profiles"].values():
            if chance.random() < share:
                change(row, chance)
        file.write_text(json.dumps(stored))

    return tamper


def drop_temporaries(row: list[Any], _: random.Random) -> None:
    """As if recorded by something that sees results only: the first temporary then takes the result's place."""
    if any(result >= 0 for _, result, _ in row[0]):
        row[0] = [request for request in row[0] if request[1] >= 0]
        row[1] = 0


def _drop_request(row: list[Any], chance: random.Random) -> None:
    if row[0]:
        row[0].pop(chance.randrange(len(row[0])))


def _double_request(row: list[Any], chance: random.Random) -> None:
    if row[0]:
        row[0].insert(chance.randrange(len(row[0]) + 1), list(chance.choice(row[0])))


def _swap_requests(row: list[Any], chance: random.Random) -> None:
    chance.shuffle(row[0])


def _resize(row: list[Any], chance: random.Random) -> None:
    factor = chance.choice([0.25, 0.5, 2, 4, 64])
    for request in row[0]:
        request[0] = max(1, int(request[0] * factor))


def _no_workspace(row: list[Any], chance: random.Random) -> None:
    row[1] = chance.choice([0, row[1] // 2, row[1] * 2, 1 << 40])


def _move(row: list[Any], chance: random.Random) -> None:
    for request in row[0]:
        if request[2] >= 0:
            request[2] = chance.choice([0, 64, request[2] + 64, 1 << 39, -(1 << 30)])


def _other_result(row: list[Any], chance: random.Random) -> None:
    for request in row[0]:
        request[1] = chance.choice([-1, 0, 1, 2, 7, request[1]])


def _correct(row: list[Any], chance: random.Random) -> None:
    dtype = chance.choice(["float32", "float64", "nonsense", "nn", ""])
    sizes = [chance.randrange(9) for _ in range(chance.randrange(5))]
    row[3] = [[chance.choice([0, 0, 1, 7, -1]), dtype, sizes, sizes[::-1]]]


def _other_time(row: list[Any], chance: random.Random) -> None:
    row[2] = chance.choice([0, 1, 10**9, 10**11, 10**12, 10**18, -1, row[2] + 1])


def _odd_value(chance: random.Random) -> Any:
    """One of its own: what is put into a list here could be put into itself later."""
    return copy.deepcopy(chance.choice(ODD_VALUES))


def _odd_type(row: list[Any], chance: random.Random) -> None:
    row[chance.randrange(len(row))] = _odd_value(chance)


def _odd_leaf(tree: Any, chance: random.Random) -> Any:
    """The same tree with one leaf or branch exchanged."""
    if isinstance(tree, (list, dict)) and tree and chance.random() < 0.9:
        key = chance.choice(list(tree)) if isinstance(tree, dict) else chance.randrange(len(tree))
        tree[key] = _odd_leaf(tree[key], chance)
        return tree
    if isinstance(tree, int) and chance.random() < 0.5:
        return tree + chance.choice([-64, -1, 1, 64])
    return _odd_value(chance)


def _odd_leaves(file: Path, chance: random.Random) -> None:
    stored = json.loads(file.read_text())
    for _ in range(chance.choice([1, 10, 100])):
        stored = _odd_leaf(stored, chance)
    file.write_text(json.dumps(stored))


def _swap_rows(file: Path, chance: random.Random) -> None:
    stored = json.loads(file.read_text())
    rows = list(stored["profiles"].values())
    chance.shuffle(rows)
    stored["profiles"] = dict(zip(stored["profiles"], rows, strict=True))
    file.write_text(json.dumps(stored))


def _truncate(file: Path, chance: random.Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: chance.randrange(len(content))])


def _flip_bytes(file: Path, chance: random.Random) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(chance.choice([1, 10, 100])):
        content[chance.randrange(len(content))] = chance.randrange(256)
    file.write_bytes(bytes(content))


def _change_digits(file: Path, chance: random.Random) -> None:
    """Keeps it a file of the right form."""
    content = bytearray(file.read_bytes())
    digits = [place for place, byte in enumerate(content) if chr(byte).isdigit()]
    for place in chance.sample(digits, min(len(digits), chance.choice([1, 20, 400]))):
        content[place] = ord(chance.choice("123456789"))
    file.write_bytes(bytes(content))


def _other_content(file: Path, chance: random.Random) -> None:
    deep = "[" * 100_000
    odd = ["", "null", "[]", "{}", "7", deep, '{"a":' * 50_000, "\0" * 100, '{"environment": NaN}', "9" * 5000]
    file.write_text(chance.choice(odd))


PROFILE_KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "temporaries dropped": _change_rows(drop_temporaries, 1.0),
    "requests dropped": _change_rows(_drop_request),
    "requests doubled": _change_rows(_double_request),
    "requests swapped": _change_rows(_swap_requests),
    "requests resized": _change_rows(_resize),
    "workspaces changed": _change_rows(_no_workspace),
    "offsets changed": _change_rows(_move),
    "results changed": _change_rows(_other_result),
    "corrections changed": _change_rows(_correct, 0.3),
    "times changed": _change_rows(_other_time),
    "types changed": _change_rows(_odd_type, 0.4),
    "leaves exchanged": _odd_leaves,
    "rows exchanged": _swap_rows,
    "profiles truncated": _truncate,
    "bytes of profiles changed": _flip_bytes,
    "digits of profiles changed": _change_digits,
    "profiles replaced": _other_content,
}

# -- plans -------------------------------------------------------------------------------------------------------------


def _content_of(file: Path) -> bytes:
    content = opened(file.stem, file.read_bytes())
    assert content is not None
    return content


def _put(file: Path, content: bytes) -> None:
    """As somebody would who knows the format: the checksum holds."""
    file.write_bytes(sealed(file.stem, content))


def _plan_in(file: Path) -> lowtide.Plan:
    with tempfile.NamedTemporaryFile() as plain:
        plain.write(_content_of(file))
        plain.flush()
        return lowtide.Plan.load(plain.name)


def _each(change: Callable[[Path, random.Random], None]) -> Callable[[list[Path], random.Random], None]:
    """Changes the content of each entry, under a checksum that holds, or the entry as it is."""

    def tamper(files: list[Path], chance: random.Random) -> None:
        for file in files:
            if chance.random() < 0.2:
                change(file, chance)
                continue
            content = _content_of(file)
            file.write_bytes(content)
            change(file, chance)
            _put(file, file.read_bytes())

    return tamper


_plan_texts: dict[str, str] = {}  # the honest plans, uncompressed: such a file is read all the same


def _odd_plan(file: Path, chance: random.Random) -> None:
    stored = json.loads(_plan_texts[file.name])
    for _ in range(chance.choice([1, 1, 3, 30])):
        stored = _odd_leaf(stored, chance)
    file.write_text(json.dumps(stored))


def _plan_digits(file: Path, chance: random.Random) -> None:
    file.write_text(_plan_texts[file.name])
    _change_digits(file, chance)


def _swap_plans(files: list[Path], chance: random.Random) -> None:
    contents = [_content_of(file) for file in files]
    chance.shuffle(contents)
    for file, content in zip(files, contents, strict=True):
        _put(file, content)


def _one_plan_for_all(files: list[Path], chance: random.Random) -> None:
    content = _content_of(chance.choice(files))
    for file in files:
        _put(file, content)


PLAN_KINDS: dict[str, Callable[[list[Path], random.Random], None]] = {
    "leaves of plans exchanged": _each(_odd_plan),
    "digits of plans changed": _each(_plan_digits),
    "plans truncated": _each(_truncate),
    "bytes of plans changed": _each(_flip_bytes),
    "plans replaced": _each(_other_content),
    "plans swapped": _swap_plans,
    "one plan for all": _one_plan_for_all,
}
