"""The user's optimizer, run as twin and templates, against the same optimizer run by PyTorch."""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim
from torch.nn import Parameter
from torch.optim import lr_scheduler
from torch.optim.optimizer import register_optimizer_step_pre_hook

from lowtide._capture.recorder import Ref
from lowtide._optimizer.template import Number, UpdateTemplate
from lowtide._optimizer.twin import NotExpressible, OptimizerTwin, TwinRun
from optimizer_zoo import BY_NAME, REFUSED, SETTINGS, Coupled, LateReader, Lion, Net, OldAdam, Rule, Setting, two_groups

STEPS = 20


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


# -- a program made of templates, in plain Python --------------------------------------------------------------------


class TemplateRunner:
    """Runs one parameter's template call by call; a buffer is the first tensor that was seen in it."""

    def __init__(self, template: UpdateTemplate, numbers: list[int | float], roots: dict[tuple[str, ...], Tensor]):
        self.template = template
        self.numbers = numbers
        self.buffers = {buffer: roots[origin] for buffer, origin in template.origins.items()}

    def value(self, tree: Any) -> Any:
        if isinstance(tree, Ref):
            return self.tensor(tree)
        if isinstance(tree, Number):
            number = self.numbers[tree.index]
            assert type(number) is tree.kind
            return number
        if isinstance(tree, (list, tuple)):
            return [self.value(item) for item in tree]
        return tree

    def tensor(self, ref: Ref) -> Tensor:
        base = self.buffers[ref.buffer]
        if (base.shape, base.stride(), base.dtype) == (ref.sizes, ref.strides, ref.dtype) and ref.offset == 0:
            return base
        start = base.storage_offset() * base.element_size() // ref.dtype.itemsize
        window = torch.empty(0, dtype=ref.dtype)
        return window.set_(base.untyped_storage(), start + ref.offset, ref.sizes, ref.strides)

    def run(self) -> dict[str, Tensor]:
        for call in self.template.recording.calls:
            out = call.target(*map(self.value, call.args), **{k: self.value(v) for k, v in call.kwargs.items()})
            for result, ref in zip(out if isinstance(out, (list, tuple)) else [out], call.results, strict=False):
                if ref is not None:
                    self.buffers.setdefault(ref.buffer, result)
        return {key: self.tensor(ref) for key, ref in self.template.new_state.items()}


def update(optimizer: optim.Optimizer, run: TwinRun, parameters: list[Parameter]) -> None:
    """What the program does with a run: updates every parameter and stores new state."""
    made = []
    with torch.no_grad():
        for p in parameters:
            assert p.grad is not None
            template, first = run.template(p)
            group = next(group for group in optimizer.param_groups if any(p is q for q in group["params"]))
            state = optimizer.state.get(p, {})
            roots: dict[tuple[str, ...], Tensor] = {("param",): p, ("grad",): p.grad}
            roots |= {("state", key): item for key, item in state.items() if isinstance(item, Tensor)}
            roots |= {("hyper", key): item for key, item in group.items() if isinstance(item, Tensor)}
            roots |= {("attribute", k): item for k, item in vars(optimizer).items() if isinstance(item, Tensor)}
            made.append((p, TemplateRunner(template, run.numbers[first:], roots).run()))
    for p, new in made:
        for key, value in new.items():
            optimizer.state[p][key] = value
    run.commit()


class Pair:
    """The same model twice: one trained by PyTorch, one by twin and templates."""

    def __init__(self, setting: Setting, model: Callable[[], nn.Module] = Net) -> None:
        torch.manual_seed(0)
        self.models = [model()]
        self.models.append(copy.deepcopy(self.models[0]))
        self.optimizers = [setting.make(model) for model in self.models]
        self.schedulers = [setting.schedule_for(optimizer) for optimizer in self.optimizers]
        self.clip = setting.clip
        self.batches = [(torch.randn(4, 3, 8, 8), torch.randint(10, (4,))) for _ in range(STEPS + 5)]
        self.keys: list[Any] = []
        self.done = 0
        self.twin: OptimizerTwin | None = None

    def backward(self, model: nn.Module, step: int) -> None:
        torch.manual_seed(100 + step)
        images, labels = self.batches[step % len(self.batches)]
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        if self.clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), self.clip)

    def train(self, steps: int) -> None:
        for step in range(self.done, self.done + steps):
            for model in self.models:
                self.backward(model, step)
            self.optimizers[0].step()
            updated = [p for p in self.models[1].parameters() if p.grad is not None]
            if self.twin is None:
                self.twin = OptimizerTwin(self.optimizers[1], updated)
            random_state = torch.get_rng_state()
            run = self.twin.run()
            self.keys.append(run.key)
            update(self.optimizers[1], run, updated)
            assert torch.equal(torch.get_rng_state(), random_state)
            for scheduler in self.schedulers:
                scheduler.step()
        self.done += steps

    def assert_equal(self) -> None:
        for ours, theirs in zip(self.models[1].parameters(), self.models[0].parameters(), strict=True):
            assert torch.equal(ours, theirs)
        assert_same(self.optimizers[1].state_dict(), self.optimizers[0].state_dict())
        states = [{k: v for k, v in s.state_dict().items() if k != "lr_lambdas"} for s in self.schedulers]
        assert_same(states[1], states[0])


def assert_same(ours: Any, theirs: Any, path: str = "") -> None:
    assert type(ours) is type(theirs), path
    if isinstance(ours, Tensor):
        assert (ours.shape, ours.dtype, ours.stride()) == (theirs.shape, theirs.dtype, theirs.stride()), path
        assert torch.equal(ours, theirs), path
    elif isinstance(ours, dict):
        assert list(ours) == list(theirs), path
        for key in ours:
            assert_same(ours[key], theirs[key], f"{path}.{key}")
    elif isinstance(ours, (list, tuple)):
        assert len(ours) == len(theirs), path
        for place, pair in enumerate(zip(ours, theirs, strict=True)):
            assert_same(*pair, f"{path}[{place}]")
    else:
        assert ours == theirs, path


# -- bit-equal ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_twenty_steps_are_bit_equal(setting: Setting) -> None:
    pair = Pair(setting)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pair.train(STEPS)
    assert not [warning for warning in caught if "lr_scheduler" in str(warning.message)]
    pair.assert_equal()
    assert len(set(pair.keys)) <= 4


def test_load_state_dict_in_the_middle() -> None:
    pair = Pair(BY_NAME["adamw"])
    pair.train(4)
    saved = copy.deepcopy(pair.optimizers[0].state_dict())
    pair.train(3)
    for optimizer in pair.optimizers:
        optimizer.load_state_dict(copy.deepcopy(saved))
    pair.train(4)
    pair.assert_equal()
    assert len(set(pair.keys)) == 2  # state is created at the first step; loading it makes no new variant


def test_edited_counter_splits_a_class() -> None:
    pair = Pair(BY_NAME["adam"])
    pair.train(3)
    for model, optimizer in zip(pair.models, pair.optimizers, strict=True):
        optimizer.state[model.hidden.weight]["step"].fill_(100)
    pair.train(3)
    pair.assert_equal()
    assert pair.twin is not None and len(pair.twin.classes) == 3
    assert pair.keys[3] != pair.keys[2] and pair.keys[4] == pair.keys[3]


def test_edited_python_counter_splits_a_class() -> None:
    pair = Pair(BY_NAME["old adam"])
    pair.train(3)
    assert pair.twin is not None
    classes = len(pair.twin.classes)
    for model, optimizer in zip(pair.models, pair.optimizers, strict=True):
        optimizer.state[model.hidden.weight]["step"] = 100
    pair.train(3)
    pair.assert_equal()
    assert len(pair.twin.classes) == classes + 1
    assert pair.optimizers[1].param_groups[0]["k"] == 6  # once per group and step, however many classes


def test_hand_changed_hyper_parameters() -> None:
    pair = Pair(BY_NAME["sgd, momentum, dampening"])
    pair.train(3)
    for optimizer in pair.optimizers:
        optimizer.param_groups[1]["weight_decay"] = 0.1  # another structure: the rule had skipped the decay
        optimizer.param_groups[0]["lr"] = 0.01  # only another number
    pair.train(3)
    for optimizer in pair.optimizers:
        optimizer.param_groups[1]["weight_decay"] = 0.0
    pair.train(3)
    pair.assert_equal()
    assert pair.keys[1] == pair.keys[2] == pair.keys[8] != pair.keys[3]


def test_added_group_leaves_the_updated_parameters_as_they_are() -> None:
    pair = Pair(BY_NAME["adam, foreach"])
    pair.train(3)
    for optimizer in pair.optimizers:
        optimizer.add_param_group({"params": [Parameter(torch.ones(3))]})
    for scheduler in pair.schedulers:
        scheduler.base_lrs.append(1e-3)
        scheduler.lr_lambdas.append(scheduler.lr_lambdas[0])
    pair.train(3)
    pair.assert_equal()


class Odd(nn.Module):
    """A 0-dim parameter, two dtypes in one group, a frozen parameter and one without a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = Parameter(torch.tensor(0.5))
        self.bias = Parameter(torch.tensor(0.25))
        self.convolution = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
        self.wide = Parameter(torch.randn(4 * 36, 10, dtype=torch.float64))
        self.frozen = Parameter(torch.randn(10), requires_grad=False)
        self.unused = Parameter(torch.randn(10))

    def forward(self, images: Tensor) -> Tensor:
        h = self.convolution(images).flatten(1) * self.scale
        return (h.double() @ self.wide).float() + self.frozen + self.bias


@pytest.mark.parametrize("name", ["adam", "adam, foreach", "adamw, fused", "nadam", "old adam", "adadelta", "asgd"])
def test_odd_parameters(name: str) -> None:
    pair = Pair(BY_NAME[name], Odd)
    pair.train(8)
    pair.assert_equal()
    assert pair.optimizers[1].state.keys().isdisjoint({pair.models[1].unused, pair.models[1].frozen})


class Low(Net):
    """All in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.bfloat16()

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.bfloat16()).float()


class Complex(nn.Module):
    """A complex parameter beside a real one in one group: the rules look at it through real views."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(torch.randn(192, 10, dtype=torch.complex64))
        self.bias = Parameter(torch.randn(10))

    def forward(self, images: Tensor) -> Tensor:
        return (images.flatten(1).to(torch.complex64) @ self.weight).abs() + self.bias


# Fused SGD is left out of bfloat16: PyTorch's own kernel gives other momentum buffers from run to run.
@pytest.mark.parametrize("name", ["adam", "adamw, fused", "sgd, nesterov", "rmsprop, foreach", "nadam", "lion"])
def test_bfloat16_parameters(name: str) -> None:
    pair = Pair(BY_NAME[name], Low)
    pair.train(5)
    pair.assert_equal()


@pytest.mark.parametrize("name", ["adam", "adamw, foreach, amsgrad", "sgd, nesterov", "radam"])
def test_complex_parameters(name: str) -> None:
    pair = Pair(BY_NAME[name], Complex)
    pair.train(7)
    pair.assert_equal()


class Derived(optim.AdamW):
    """A step that wraps another one, hooks and all."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            group["lr"] *= 0.99
        super().step()


def test_a_step_that_calls_the_step_it_overrides() -> None:
    pair = Pair(Setting("derived", lambda model: Derived(two_groups(model, 1e-3))))
    pair.train(5)
    pair.assert_equal()


def test_loss_scaling_tensors_are_attributes_of_the_template() -> None:
    pair = Pair(BY_NAME["adamw, fused"])
    for found_inf in (0.0, 1.0, 0.0):
        for optimizer in pair.optimizers:
            optimizer.grad_scale = torch.tensor(4.0)  # type: ignore[attr-defined]
            optimizer.found_inf = torch.tensor(found_inf)  # type: ignore[attr-defined]
        pair.train(1)
    pair.assert_equal()


class Marked(Rule):
    """Rates that hang on the parameter, and in a list beside the group's parameters."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for place, p in enumerate(group["params"]):
                if p.grad is not None:
                    p.add_(p.grad, alpha=-group["lr"] * group["rates"][place] * getattr(p, "rate", 1.0))


def test_parameters_with_rates_of_their_own() -> None:
    def make(model: nn.Module) -> optim.Optimizer:
        parameters = list(model.parameters())
        parameters[2].rate = parameters[3].rate = 0.5  # type: ignore[attr-defined]  # norm.weight, norm.bias
        return Marked([{"params": parameters, "rates": [1.0 + place // 3 for place in range(len(parameters))]}])

    pair = Pair(Setting("marked", make))
    pair.train(5)
    pair.assert_equal()
    ranks = [parameter.dim() for parameter in pair.models[1].parameters()]
    assert ranks == [2, 4, 1, 1, 1, 2, 1, 2, 1]
    assert pair.twin is not None
    assert [len(one.members) for one in pair.twin.classes] == [1, 1, 1, 1, 1, 1, 2, 1]


def test_named_parameters() -> None:
    pair = Pair(Setting("named", lambda model: optim.AdamW(model.named_parameters(), lr=1e-3)))
    pair.train(5)
    pair.assert_equal()


# -- refused -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "reason"), REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_refusal_names_the_cause_and_changes_nothing(kind: Callable[[Any], optim.Optimizer], reason: str) -> None:
    torch.manual_seed(0)
    model = Net()
    optimizer = kind(model.parameters())
    torch.nn.functional.cross_entropy(model(torch.randn(4, 3, 8, 8)), torch.randint(10, (4,))).backward()
    parameters = list(model.parameters())
    before = copy.deepcopy([parameters, [p.grad for p in parameters], optimizer.state_dict()])
    random_state = torch.get_rng_state()
    run = None
    with pytest.raises(NotExpressible, match=reason) as refusal:
        run = OptimizerTwin(optimizer, parameters).run()
        for p in parameters:
            run.template(p)
    assert type(optimizer).__name__ in str(refusal.value)
    if run is not None:
        run.rollback()
    assert_same([parameters, [p.grad for p in parameters], optimizer.state_dict()], before)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert not optimizer.state


def test_refusal_names_the_line_of_the_rule() -> None:
    model = Net()
    rule = next(kind for kind, _ in REFUSED if kind.__name__ == "Branching")
    with pytest.raises(NotExpressible, match=r"optimizer_zoo\.py:\d+"):
        OptimizerTwin(rule(model.parameters()), list(model.parameters()))


class LateCoupled(Coupled):
    """Harmless for three steps."""

    calls = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        self.calls += 1
        if self.calls > 3:
            super().step()
            return
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(p.grad, alpha=group["lr"])


def test_a_rule_that_turns_unfit_is_refused_then_and_undone() -> None:
    optimizer = LateCoupled([Parameter(torch.ones(3)), Parameter(torch.ones(4))])
    twin = ready(optimizer)
    for _ in range(3):
        update(optimizer, twin.run(), twin.updated)
    with pytest.raises(NotExpressible, match="mixes the values of several parameters"):
        twin.run()
    assert optimizer.calls == 3
    optimizer.step()  # eager takes over where the twin left
    assert optimizer.calls == 4


class Rounds(Rule):
    """A number on the optimizer that grows with every group."""

    rounds = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            self.rounds += 1
            for p in group["params"]:
                p.sub_(p.grad, alpha=group["lr"] / self.rounds)


def test_a_counter_of_groups_is_right_or_refused() -> None:
    single = Rounds([{"params": [Parameter(torch.ones(3)) for _ in range(2)]} for _ in range(2)])
    ready(single).run().commit()
    assert single.rounds == 2
    split = Rounds([Parameter(torch.ones(3)), Parameter(torch.ones(3, dtype=torch.float64))])
    with pytest.raises(NotExpressible, match="changes 'rounds' anew"):
        ready(split)


def test_data_in_a_counter_is_remembered() -> None:
    optimizer = LateReader([Parameter(torch.ones(3)), Parameter(torch.ones(3))])
    twin = ready(optimizer)
    for _ in range(4):
        update(optimizer, twin.run(), twin.updated)
    with pytest.raises(NotExpressible, match="reads a value that depends on data"):
        twin.run()


def test_compiled_step_is_refused() -> None:
    optimizer = optim.SGD(Net().parameters(), lr=0.1)
    twin = ready(optimizer)
    optimizer.step = torch.compile(optimizer.step)  # type: ignore[method-assign]
    with pytest.raises(NotExpressible, match=r"compiled by torch\.compile"):
        twin.run()


def test_sparse_gradient_is_refused() -> None:
    embedding = nn.Embedding(10, 4, sparse=True)
    embedding(torch.tensor([1, 2])).sum().backward()
    with pytest.raises(NotExpressible, match="sparse gradient"):
        OptimizerTwin(optim.SGD(embedding.parameters(), lr=0.1), list(embedding.parameters()))


# -- undone, and around the step ---------------------------------------------------------------------------------------


def ready(optimizer: optim.Optimizer) -> OptimizerTwin:
    """A twin over all parameters of `optimizer`, which have gradients."""
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    for p in parameters:
        p.grad = torch.full_like(p, 0.1)
    return OptimizerTwin(optimizer, parameters)


@pytest.mark.parametrize("steps", [0, 2])
def test_rollback_restores_everything(steps: int) -> None:
    model = Net()
    optimizer = OldAdam(two_groups(model, 1e-3, decay=False))
    optimizer.history = [1, [2, 3]]  # type: ignore[attr-defined]
    scheduler = lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.9**epoch)
    twin = ready(optimizer)
    for _ in range(steps):
        optimizer.step()
    groups, lists, state = optimizer.param_groups, [g["params"] for g in optimizer.param_groups], optimizer.state
    attributes, dicts = copy.copy(vars(optimizer)), [dict(group) for group in optimizer.param_groups]
    before = copy.deepcopy((optimizer.state_dict(), scheduler.state_dict(), optimizer.history))  # type: ignore[attr-defined]
    run = twin.run()
    assert optimizer.calls == steps + 1 and optimizer.param_groups[0]["k"] == steps + 1
    run.rollback()
    assert optimizer.param_groups is groups and optimizer.state is state
    assert all(group["params"] is held for group, held in zip(groups, lists, strict=True))
    assert vars(optimizer) == attributes and [dict(group) for group in groups] == dicts
    after = optimizer.state_dict(), scheduler.state_dict(), optimizer.history  # type: ignore[attr-defined]
    assert_same(after[0], before[0])
    assert after[2] == before[2]
    with pytest.raises(RuntimeError, match="rolled back"):
        run.commit()


def test_rolled_back_steps_leave_no_trace_in_the_result() -> None:
    pair = Pair(BY_NAME["nadam"])
    pair.train(2)
    assert pair.twin is not None
    for _ in range(3):
        pair.twin.run().rollback()
    pair.train(2)
    pair.assert_equal()


@pytest.mark.parametrize("kind", ["pre", "post", "global", "wrapper"])
def test_hooks_are_left_to_the_real_step(kind: str) -> None:
    model = Net()
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    twin = ready(optimizer)
    seen: list[Any] = []
    if kind == "pre":
        handle = optimizer.register_step_pre_hook(lambda *_: seen.append("pre"))
    elif kind == "post":
        handle = optimizer.register_step_post_hook(lambda *_: seen.append("post"))
    elif kind == "global":
        handle = register_optimizer_step_pre_hook(lambda *_: seen.append("global"))
    else:
        own = optimizer.step
        optimizer.step = lambda closure=None: (seen.append("wrapper"), own())[1]  # type: ignore[method-assign, assignment]
    with pytest.raises(NotExpressible, match=r"Adam has step hooks|Adam\.step is wrapped"):
        twin.run()
    assert not seen and not optimizer.state
    if kind == "wrapper":
        del optimizer.step
    else:
        handle.remove()
    twin.run().commit()
    assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks


def test_an_error_in_the_rule_restores_and_names_it() -> None:
    optimizer = OldAdam(Net().parameters())
    twin = ready(optimizer)
    groups, state = optimizer.param_groups, optimizer.state
    optimizer.param_groups[0]["lr"] = "fast"
    with pytest.raises(NotExpressible, match=r"OldAdam.step\(\) fails on parameters of one element"):
        twin.run()
    assert optimizer.param_groups is groups and optimizer.state is state and not state
    assert optimizer.calls == 0 and groups[0]["k"] == 0
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()


def test_the_scheduler_sees_a_step() -> None:
    optimizer = optim.SGD(Net().parameters(), lr=0.1)
    scheduler = lr_scheduler.StepLR(optimizer, 1)
    twin = ready(optimizer)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twin.run().commit()
        assert optimizer._opt_called  # type: ignore[attr-defined]
        scheduler.step()


def test_equal_forms_share_a_template_and_runs_share_keys() -> None:
    model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)])
    optimizer = Lion(model.parameters())
    twin = ready(optimizer)
    run = twin.run()
    parameters = list(model.parameters())
    assert len({id(run.template(p)[0]) for p in parameters}) == 2  # a weight and a bias
    update(optimizer, run, parameters)
    second = twin.run()
    update(optimizer, second, parameters)
    third = twin.run()
    assert run.key != second.key == third.key
    assert third.template(parameters[0])[0] is second.template(parameters[0])[0]


def test_cost_of_a_run() -> None:
    optimizer = optim.Adam(nn.Linear(64, 64).parameters(), lr=1e-3)
    twin = ready(optimizer)
    parameters = twin.updated
    for _ in range(20):
        update(optimizer, twin.run(), parameters)
    times = []
    for _ in range(300):
        begin = time.perf_counter()
        run = twin.run()
        times.append(time.perf_counter() - begin)
        run.rollback()
    print(f"twin run of Adam: {min(times) * 1e6:.0f} us at best, {sorted(times)[150] * 1e6:.0f} us median")
    assert min(times) < 1e-3
