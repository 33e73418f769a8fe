"""Random training scripts whose steps do more than train: they count, log, return early, fail, and change their model.

A seed is a script, which `script` writes as text. It runs eager and compiled, and after each call all that the two have
left behind is compared bit for bit: results, exceptions, tensors, Python's variables, what is printed, random states.

    python random_effects.py START SECONDS     compares from seed START on; a line for each difference
    python random_effects.py SEED              prints the script of a seed, and how it differs
"""

from __future__ import annotations

import contextlib
import copy
import io
import itertools
import linecache
import math
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from string import Template
from textwrap import dedent, indent
from types import FunctionType, ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import lowtide

CALLS = 6
SHARES = (0.8, 1.0)  # budgets, in turn: many steps have small programs that cannot do with less

# -- what scripts are made of ------------------------------------------------------------------------------------------


class Residual(nn.Sequential):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + super().forward(x)


class Checkpointed(nn.Sequential):
    def forward(self, x: torch.Tensor) -> Any:
        return checkpoint(super().forward, x, use_reentrant=False)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.attention(x[None], x[None], x[None], need_weights=False)[0][0]


class Centred(nn.Module):
    """Subtracts a running mean."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean.lerp_(x.detach().mean(0).to(self.mean.dtype), 0.1)
        return x - self.mean


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 0.1 * torch.randn_like(x) if self.training else x


def _table(text: str) -> list[str]:
    """Pieces of code, with an empty line between any two."""
    return dedent(text).strip().split("\n\n")


LAYERS = _table("""
    nn.Linear(16, 16)

    nn.Linear(16, 16, bias=False)

    nn.ReLU()

    nn.SiLU(inplace=True)

    nn.GELU()

    nn.Dropout(0.3)

    nn.BatchNorm1d(16)

    nn.LayerNorm(16)

    nn.GroupNorm(2, 16)

    Residual(nn.Linear(16, 16), nn.Tanh(), nn.Dropout(0.2))

    Checkpointed(nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.1))

    Attention()

    Centred()

    Noisy()
""")
OPTIMIZERS = _table("""
    SGD($of, 0.05)

    SGD($of, 0.05, momentum=0.9, nesterov=True)

    Adam($of, 0.01)

    Adam($of, 0.01, foreach=True)

    Adam($of, 0.01, fused=True)

    AdamW($of, 0.01, amsgrad=True)

    RMSprop($of, 0.001, momentum=0.5)

    Adagrad($of, 0.01)

    NAdam($of, 0.01)

    Adafactor($of, 0.01)
""")
PARAMETERS = _table("""
    model.parameters()

    model.parameters()

    [{"params": model[:1].parameters(), "lr": 0.005}, {"params": model[1:].parameters()}]
""")
SCHEDULERS = _table("""
    StepLR(optimizer, 2, 0.5)

    ExponentialLR(optimizer, 0.9)

    CosineAnnealingLR(optimizer, 5)

    OneCycleLR(optimizer, 0.1, total_steps=100, cycle_momentum=False)

    LambdaLR(optimizer, lambda epoch: 1 / (1 + epoch))
""")
LOSSES = _table("""
    F.mse_loss(out, y.to(out.dtype))

    F.smooth_l1_loss(out.float(), y)

    F.cross_entropy(out, y.argmax(-1), label_smoothing=0.1)

    out.float().pow(2).mean() + out.float().abs().amax()
""")
FORWARD = _table("""
    out = model(x)

    out = model(x)

    out = model(x)

    try:
        out = model(x)
    except RuntimeError as error:
        seen.append(str(error))
        return None
""")
ZERO = _table("""
    optimizer.zero_grad()

    optimizer.zero_grad(set_to_none=False)

    model.zero_grad()

    for p in model.parameters():
        p.grad = None
""")
BACKWARD = _table("""
    loss.backward()

    loss.backward()

    loss.backward()

    loss.backward(retain_graph=True)
    out.float().abs().mean().backward()

    loss.backward(retain_graph=True)
    loss.backward()

    (loss / 2).backward()
    for part, target in zip(x.chunk(2), y.chunk(2)):
        F.mse_loss(model(part).float(), target).backward()

    scaler.scale(loss).backward()

    for p, g in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)):
        p.grad = g
""")
STEP = _table("""
    optimizer.step()

    optimizer.step()

    optimizer.step()

    if calls % $every == 0:
        optimizer.step()
        optimizer.zero_grad()

    if calls != $call:
        optimizer.step()

    optimizer.step()
    other.step()
    other.zero_grad()
""")

# What a step does besides: at its beginning, with its loss, with its gradients, and when it has stepped.

AT_FIRST = _table("""
    torch.manual_seed(calls)

    if calls % $every == 0:
        torch.manual_seed($call)

    model.train(calls % $every != 0)

    if calls == $call:
        model.eval()

    model[$layer].requires_grad_(calls != $call)

    if calls == $call:
        model[$layer].requires_grad_(False)

    if calls == $call:
        raise ValueError(f"call {calls} has a bad batch")

    if calls == $call:
        return None

    for group in optimizer.param_groups:
        group["lr"] = 0.01 / calls

    if calls == $call:
        optimizer.param_groups[0]["lr"] *= 0.1

    shapes.add(tuple(x.shape))
    if len(shapes) > 1 and calls % $every:
        x, y = x[:8], y[:8]

    if random.random() < 0.3:
        x = x.flip(0)

    x = x + 0.01 * torch.randn_like(x)

    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.1 * min(calls, 3)

    counts["rows"] = counts.get("rows", 0) + len(x)
    counts[tuple(x.shape)] = calls

    if x.isnan().any():
        counts["bad"] = calls
        return None
""")
WITH_LOSS = _table("""
    if torch.isnan(loss):
        counts["skipped"] = counts.get("skipped", 0) + 1
        return None

    if not math.isfinite(loss.item()):
        seen.append(calls)
        return float("nan")

    if loss < 0.9:
        return loss.detach()

    if loss.item() > 1.5 and calls > 1:
        seen.append(f"large: {loss:.3f}")
        return None

    seen.append(loss.item())

    losses.append(loss.detach())

    losses.append(loss)

    losses.append(loss.detach())
    loss = loss + 0.1 * torch.stack(losses).mean()

    if calls % $every == 0:
        print(f"{calls}: {loss.item():.4f}")

    if calls % $every == 0:
        print(calls, loss.detach())

    with torch.no_grad():
        right = (out.argmax(-1) == y.argmax(-1)).float().mean()
    seen.append(right.item())

    with torch.no_grad():
        counts["right"] = counts.get("right", 0) + (out.argmax(-1) == y.argmax(-1)).sum()

    best = min(best, loss.item())

    average = 0.9 * average + 0.1 * loss.item()

    average = 0.9 * average + 0.1 * loss.detach()

    if calls == $call:
        raise RuntimeError(f"the loss is {loss.item():.3f}")

    assert calls != $call, f"call {calls}"

    assert not torch.isnan(loss), "the loss is not a number"

    loss = loss * min(1.0, calls / 4)

    loss = loss * (1.0, 0.5)[calls % 2]

    loss = loss + 1e-3 * sum(p.pow(2).sum() for p in model.parameters())

    if calls > $call:
        loss = loss + out.float().std()

    with torch.no_grad():
        teaching = teacher(x)
    loss = loss + F.mse_loss(out.float(), teaching.float())
""")
WITH_GRADIENTS = _table("""
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)

    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    seen.append(norm.item())

    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    if not torch.isfinite(norm):
        optimizer.zero_grad()
        return None

    nn.utils.clip_grad_value_(model.parameters(), 0.1)

    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()

    norm = sum(p.grad.pow(2).sum().item() for p in model.parameters() if p.grad is not None) ** 0.5

    for p in model.parameters():
        if p.grad is not None:
            p.grad.mul_(0.5)

    for p in model.parameters():
        if p.grad is not None:
            p.grad += 0.01 * torch.randn_like(p.grad)

    seen.append([p.grad is None for p in model.parameters()])

    if calls == $call:
        raise KeyError(calls)

    if calls % $every == 0:
        return loss.item()

    if calls == $call:
        kept = [None if p.grad is None else p.grad.clone() for p in model.parameters()]

    print(f"{loss.item():.3f}", end=" ")
""")
AT_LAST = _table("""
    scheduler.step()

    scheduler.step()
    seen.append(scheduler.get_last_lr()[0])

    if calls % $every == 0:
        scheduler.step()

    plateau.step(loss.item())

    with torch.no_grad():
        for a, p in zip(ema, model.parameters()):
            a.lerp_(p, 0.1)

    for a, p in zip(ema, model.parameters()):
        a.mul_(0.9).add_(p.detach(), alpha=0.1)

    averaged.update_parameters(model)

    if calls == $call:
        saved = copy.deepcopy(model.state_dict())

    if calls == 2:
        saved = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    if calls == $call and saved:
        model.load_state_dict(saved)

    if calls == $call:
        saved = copy.deepcopy(optimizer.state_dict())

    if calls == $call:
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

    with torch.no_grad():
        for p in model.parameters():
            p.clamp_(-0.3, 0.3)

    for p in model.parameters():
        p.data.mul_(0.999)

    if calls % $every == 0:
        model.eval()
        with torch.no_grad():
            seen.append(F.mse_loss(model(x).float(), y).item())
        model.train()

    seen.append(model[0].weight.norm().item())

    if calls % $every == 0:
        print(f"{calls} {loss.item():.4f} {model[0].weight.abs().max():.4f}")

    if calls == $call:
        raise ValueError(f"call {calls} ends badly")

    losses.append(loss)
    if len(losses) == 3:
        seen.append(torch.stack(losses).mean().item())
        losses.clear()

    counts["steps"] = len(optimizer.state)

    if loss.item() < best:
        best, saved = loss.item(), [p.detach().clone() for p in model.parameters()]
""")
RESULTS = _table("""
    loss.detach()

    loss.item()

    loss

    loss.detach(), out.detach()

    {"loss": loss.detach(), "first": out.detach()[0], "calls": calls}

    f"{loss:.5f}"

    None
""")
MADE = {  # before the step, if it is used there
    "scheduler": "torch.optim.lr_scheduler.$scheduler",
    "plateau": "torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)",
    "ema": "[p.detach().clone() for p in model.parameters()]",
    "averaged": "torch.optim.swa_utils.AveragedModel(model)",
    "teacher": "copy.deepcopy(model).requires_grad_(False)",
    "scaler": 'torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)',
    "other": "torch.optim.SGD(model[-1].parameters(), 0.01)",
}
IMPORTED = {
    "torch": torch, "nn": nn, "F": F, "math": math, "copy": copy, "random": random, "Residual": Residual,
    "Checkpointed": Checkpointed, "Attention": Attention, "Centred": Centred, "Noisy": Noisy,
}  # fmt: skip
SCRIPT = Template("""\
model = nn.Sequential($layers)
optimizer = torch.optim.$optimizer
$made
calls, best, average, norm = 0, math.inf, 0.0, None
seen, losses, counts, shapes, saved, kept = [], [], {}, set(), None, None


def step(x, y):
    global calls, best, average, norm, saved, kept
    calls += 1
$body
    return $result
""")


def script(seed: int) -> str:
    """The training script of a seed."""
    chance = random.Random(seed)
    pick = chance.choice

    def some(table: list[str]) -> list[str]:
        return chance.sample(table, pick([0, 0, 1, 1, 2]))

    layers = ["nn.Linear(8, 16)", *chance.choices(LAYERS, k=chance.randint(1, 3)), "nn.Linear(16, 4)"]
    forward = [pick(FORWARD), f"loss = {pick(LOSSES)}"]
    autocast = f"with torch.autocast('cpu', torch.{pick(['bfloat16', 'float16'])}):\n"
    if inside := pick([0, 0, 0, 0, 1, 2]):  # so many of the two
        forward[:inside] = [autocast + indent("\n".join(forward[:inside]), "    ")]
    backward, step = pick(BACKWARD), pick(STEP)
    if "scaler" in backward:
        step = step.replace("optimizer.step()", "scaler.step(optimizer); scaler.update()")
    zero = "" if "optimizer.zero_grad()" in step else pick(ZERO)
    first, last = pick([(zero, ""), (zero, ""), ("", zero)])
    pieces = [*some(AT_FIRST), first, *forward, *some(WITH_LOSS), backward, *some(WITH_GRADIENTS), step, *some(AT_LAST),
              last]  # fmt: skip

    def filled(piece: str) -> str:
        numbers = {"call": chance.randint(2, CALLS), "every": pick([2, 3]), "layer": chance.randrange(len(layers))}
        return Template(piece).substitute(numbers)

    body = "\n".join(filled(piece) for piece in pieces if piece)
    made = "\n".join(f"{name} = {made}" for name, made in MADE.items() if name in body)
    return SCRIPT.substitute(
        layers=", ".join(layers),
        optimizer=Template(pick(OPTIMIZERS)).substitute(of=pick(PARAMETERS)),
        made=Template(made).substitute(scheduler=pick(SCHEDULERS)),
        body=indent(body, "    "),
        result=pick([*RESULTS, "loss.detach(), norm"]) if "norm" in body else pick(RESULTS),
    )


def batches(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """What the calls are given: one size or two in turn, and now and then a batch that has a NaN or is too wide."""
    chance = random.Random(seed)
    draws = torch.Generator().manual_seed(seed)
    sizes = chance.choice([(128,), (128,), (128, 96)])
    odd = {chance.randint(2, CALLS): chance.choice(["", "", "nan", "nan", "nan", "wide"])}
    for call in range(1, CALLS + 1):
        x, y = (torch.randn(sizes[call % len(sizes)], width, generator=draws) for width in (8, 4))
        if odd.get(call) == "nan":
            x[3, 2] = math.nan
        yield (x.repeat(1, 2) if odd.get(call) == "wide" else x), y


# -- running and comparing ---------------------------------------------------------------------------------------------


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All that a value is made of, by where it is, such that equal means the same bits."""
    if isinstance(value, set):
        value = sorted(value)
    if isinstance(value, torch.Tensor):
        yield f"type of {path}", (type(value), value.dtype, value.shape, value.stride())
        yield f"part in autograd of {path}", (value.requires_grad, value.is_leaf)
        yield path, value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    elif isinstance(value, (dict, list, tuple)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        yield f"length of {path}", (type(value).__name__, len(value))
        for key, item in items:
            yield from leaves(item, f"{path}.{key}")
    else:
        yield path, value.hex() if isinstance(value, float) else value


@dataclass
class Outcome:
    """What one run of a script has left behind after each call."""

    after: list[dict[str, Any]] = field(default_factory=list)
    planned: int = 0
    eager: int = 0
    refusal: str = ""


def run(seed: int, options: dict[str, Any] | None) -> Outcome:
    """Runs the script of a seed, eager if there are no options."""
    torch.manual_seed(seed)
    random.seed(seed)
    world: dict[str, Any] = dict(IMPORTED)
    text, file = script(seed), f"<seed {seed}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), world)
    step, outcome = world["step"], Outcome()
    optimizers = [world[name] for name in ("optimizer", "other") if name in world]
    if options is not None:
        step = lowtide.compile(step, model=world["model"], optimizer=optimizers, **options)
    for x, y in batches(seed):
        result = None
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()) as printed:
            warnings.simplefilter("ignore")
            try:
                result = step(x, y)
            except lowtide.LowtideError as error:
                outcome.refusal = f"{type(error).__name__}: {error}"
                break
            except Exception as error:
                result = (type(error).__name__, str(error))
        left = {"result": result, "printed": printed.getvalue(), "batch": (x, y), "python": _python_of(world)}
        outcome.after.append(dict(leaves({**left, **_tensors_of(world, optimizers)})))
    if options is not None:
        stats = step.stats()
        outcome.planned, outcome.eager = stats["calls"], stats["eager_calls"]
        step.close()
    return outcome


def _python_of(world: dict[str, Any]) -> dict[str, Any]:
    """The script's own variables."""
    known = (ModuleType, FunctionType, type, nn.Module, torch.optim.Optimizer)
    plain = {name: value for name, value in world.items() if not isinstance(value, known) and name[0] != "_"}
    for name in ("scheduler", "plateau", "scaler"):
        if name in plain:
            plain[name] = plain[name].state_dict()
    return {**plain, "draws": hash(random.getstate())}


def _tensors_of(world: dict[str, Any], optimizers: Iterable[torch.optim.Optimizer]) -> dict[str, Any]:
    modules = {
        name: {
            "parameters": dict(module.named_parameters()),
            "buffers": dict(module.named_buffers()),
            "gradients": [parameter.grad for parameter in module.parameters()],
            "training": [part.training for part in module.modules()],
        }
        for name, module in world.items()
        if isinstance(module, nn.Module)
    }
    return {**modules, "optimizers": [one.state_dict() for one in optimizers], "random": torch.get_rng_state()}


def difference(expected: Outcome, got: Outcome) -> str:
    """The first thing that is not the same, in words."""
    for call, (ours, theirs) in enumerate(zip(got.after, expected.after, strict=False), 1):
        for path in [*theirs, *ours]:
            if path not in ours or path not in theirs or ours[path] != theirs[path]:
                shown = f"eager {theirs.get(path)!r:.80} but {ours.get(path)!r:.80}"
                return f"call {call} {path}: {shown}"
    return ""


def compare(seed: int, counts: Counter[str]) -> Iterator[str]:
    """Compares all variants of a seed with eager; gives the differences, and counts."""
    expected = run(seed, None)
    for options in ({}, {"memory_budget": SHARES[seed % 2]}):
        got = run(seed, options)
        counts.update({"comparisons": 1, "planned calls": got.planned, "eager calls": got.eager})
        counts["refusals"] += bool(got.refusal)
        refused = f"refused {got.refusal}" if got.refusal and not options else ""
        if found := difference(expected, got) or refused:
            counts["differences"] += 1
            yield f"seed {seed} with {options}: {found}"


def main(arguments: list[str]) -> None:
    torch.set_num_threads(1)
    counts: Counter[str] = Counter()
    start, end = int(arguments[0]), time.monotonic() + float(arguments[1] if len(arguments) > 1 else 0)
    if len(arguments) == 1:
        print(script(start))
    for seed in itertools.count(start):
        for line in compare(seed, counts):
            print(line, flush=True)
        if time.monotonic() >= end:
            break
    print(f"seeds {start} to {seed}:", ", ".join(f"{count} {name}" for name, count in counts.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
