"""The step function as Python code: tracebacks, debuggers, interrupts, output and generators."""

import contextlib
import io
import sys
import traceback
import warnings

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import lowtide
from both_ways import Run, equal_both_ways, frozen, perceptron, plain, state_of
from live_cases import dropping


def model_and_optimizer(model=None):
    torch.manual_seed(0)
    model = model or perceptron()
    return model, torch.optim.AdamW(model.parameters(), 0.01)


# -- errors ------------------------------------------------------------------------------------------------------------


def of_shape(model, x):
    return model(x)[:, :5] @ x  # line of the error


def of_python(model, x):
    return model(x).no_such_name  # line of the error


def of_module(model, x):
    return model(x[:, 1:])  # line of the error


def of_value(model, x):
    return [1, 2][int(model(x).abs().sum() * 0 + 7)]  # line of the error


@pytest.mark.parametrize("warm", [0, 3])
@pytest.mark.parametrize("fails", [of_shape, of_python, of_module, of_value])
def test_an_error_is_the_users_own(fails, warm: int) -> None:
    """Type, message, the line in the step function, and no trace of deferral among the causes."""
    said = []
    for compiled in (False, True):
        model, optimizer = model_and_optimizer()
        calls = []

        def step(x, model=model, optimizer=optimizer, calls=calls):
            calls.append(1)
            if len(calls) > warm:
                fails(model, x)
            return plain(model, optimizer)(x)

        run = lowtide.compile(step, model=model, optimizer=optimizer) if compiled else step
        for _ in range(warm):
            run(torch.ones(12, 8))
        with pytest.raises(Exception) as caught:
            run(torch.ones(12, 8))
        lines = [frame.line for frame in traceback.extract_tb(caught.tb) if frame.filename == __file__]
        error = caught.value
        said.append((type(error), str(error), lines[-1], error.__cause__, frozen(state_of(model, optimizer)), calls))
    assert said[0] == said[1]
    assert "line of the error" in said[1][2]


def test_an_error_of_a_kernel_comes_at_the_launch_and_leaves_the_state_alone() -> None:
    """Known to be different: eager fails where the module is called."""
    model = nn.Sequential(nn.Embedding(4, 8), nn.Linear(8, 2))
    _, optimizer = model_and_optimizer(model)
    passed = []

    def step(x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        passed.append(len(passed))
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = lowtide.compile(step, model=model, optimizer=optimizer)
    for _ in range(3):
        compiled(torch.tensor([0, 1]))
    before = frozen(state_of(model, optimizer)[:2]), frozen(optimizer.state_dict()["state"])
    with pytest.raises(IndexError, match="index out of range"):
        compiled(torch.tensor([0, 9]))
    assert (frozen(state_of(model, optimizer)[:2]), frozen(optimizer.state_dict()["state"])) == before
    assert len(passed) == 4
    assert torch.isfinite(compiled(torch.tensor([0, 1])))
    assert compiled.stats()["eager_calls"] == 0


@pytest.mark.parametrize("where", ["forward", "backward", "step"])
def test_after_an_interrupt_nothing_that_was_deferred_has_happened(where: str) -> None:
    model, optimizer = model_and_optimizer(dropping())
    calls = []

    def step(x, interrupted):
        calls.append(1)
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        if interrupted == "forward":
            raise KeyboardInterrupt
        loss.backward()
        if interrupted == "backward":
            raise KeyboardInterrupt
        optimizer.step()
        if interrupted == "step":
            raise KeyboardInterrupt
        return loss.detach()

    compiled = lowtide.compile(step, model=model, optimizer=optimizer, on_unsupported="raise")
    x = torch.randn(12, 8)
    for call in range(4):
        before = frozen([dict(model.state_dict()), optimizer.state_dict(), torch.get_rng_state()])
        with pytest.raises(KeyboardInterrupt):
            compiled(x, where)
        assert frozen([dict(model.state_dict()), optimizer.state_dict(), torch.get_rng_state()]) == before
        assert torch.isfinite(compiled(x, ""))
        assert len(calls) == 2 * call + 2
    assert compiled.stats()["eager_calls"] == 0


# -- who looks on ------------------------------------------------------------------------------------------------------


def test_a_tracer_sees_the_values_of_every_variable() -> None:
    def scenario(run: Run) -> None:
        model, optimizer = model_and_optimizer()

        def step(x):
            optimizer.zero_grad()
            out = model(x)
            loss = out.pow(2).mean()
            loss.backward()
            optimizer.step()
            done = True
            return done

        def trace(frame, event, _argument):
            if frame.f_code is not step.__code__:
                return None
            if event == "return":
                run.note({name: frame.f_locals[name] for name in ("x", "out", "loss", "done")})
            return trace

        compiled = run.wrap(step, model, optimizer)
        for _ in range(3):
            sys.settrace(trace)
            try:
                compiled(torch.randn(12, 8))
            finally:
                sys.settrace(None)

    assert equal_both_ways(scenario).planned == 3


def test_locals_and_frames_of_helpers_show_values() -> None:
    def scenario(run: Run) -> None:
        model, optimizer = model_and_optimizer()

        def caller():
            return sys._getframe(1).f_locals

        def step(x):
            out = model(x)
            kept = caller()
            optimizer.zero_grad()
            out.pow(2).mean().backward()
            optimizer.step()
            return kept["out"].detach(), sorted(set(kept) & {"x", "out"})

        def frank(x):
            out = model(x)
            optimizer.zero_grad()
            out.pow(2).mean().backward()
            optimizer.step()
            return locals()["out"].detach()

        for one in (step, frank):
            compiled = run.wrap(one, model, optimizer)
            for _ in range(3):
                run.note(compiled(torch.randn(12, 8)))

    assert equal_both_ways(scenario).eager == 0


def test_output_and_warnings_come_at_every_call() -> None:
    def scenario(run: Run) -> None:
        model, optimizer = model_and_optimizer()

        def step(x):
            print("begin", tuple(x.shape))
            loss = plain(model, optimizer)(x)
            print(f"loss {loss:.5f}")
            warnings.warn(f"planted {loss:.5f}", UserWarning, stacklevel=1)

        compiled = run.wrap(step, model, optimizer)
        for _ in range(4):
            with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                compiled(torch.randn(12, 8))
            run.note(out.getvalue(), [str(one.message) for one in caught if one.category is UserWarning])

    assert equal_both_ways(scenario).eager == 0


class Counting(nn.Linear):
    count = 0

    def forward(self, x):
        self.count += 1
        return super().forward(x)


def test_a_module_that_counts_runs_eager_and_is_named() -> None:
    def scenario(run: Run) -> None:
        model, optimizer = model_and_optimizer(Counting(8, 4))
        compiled = run.wrap(plain(model, optimizer), model, optimizer)
        for _ in range(3):
            run.note(compiled(torch.randn(12, 8)), model.count)

    run = equal_both_ways(scenario)
    assert run.planned == 0
    (said,) = run.said
    assert "`self.count` of the model" in said


# -- other kinds of functions ------------------------------------------------------------------------------------------


def yielding(model, optimizer):
    def step(x):
        yield plain(model, optimizer)(x)

    return step, next


def waiting(model, optimizer):
    async def step(x):
        return plain(model, optimizer)(x)

    def finish(coroutine):
        with pytest.raises(StopIteration) as caught:
            coroutine.send(None)
        return caught.value.value

    return step, finish


@pytest.mark.parametrize("kind", [yielding, waiting])
def test_a_function_whose_call_only_begins_it_runs_eager_with_one_warning(kind) -> None:
    def scenario(run: Run) -> None:
        model, optimizer = model_and_optimizer()
        step, finish = kind(model, optimizer)
        compiled = run.wrap(step, model, optimizer)
        for _ in range(3):
            run.note(finish(compiled(torch.randn(12, 8))), state_of(model, optimizer))

    run = equal_both_ways(scenario)
    assert run.planned == 0
    assert len(run.said) == 1
    assert "generator or coroutine" in run.said[0]


# -- errors of the model -----------------------------------------------------------------------------------------------


def test_an_error_of_the_model_is_that_of_eager_and_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    def scenario(run: Run) -> None:
        model, optimizer = model_and_optimizer()
        step = run.wrap(plain(model, optimizer), model, optimizer)
        for width in (8, 9, 8, 9, 8):
            try:
                run.note(step(torch.randn(12, width)))
            except RuntimeError as error:
                run.note(str(error))
            run.note(state_of(model, optimizer))

    run = equal_both_ways(scenario)
    assert (run.planned, run.eager, run.said) == (3, 0, [])
    assert capfd.readouterr().err == ""


# -- functions that are kept -------------------------------------------------------------------------------------------


class Looks(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("around", [contextlib.nullcontext, Looks])
def test_a_method_that_the_function_keeps_is_made_at_once_between_calls(around):
    def scenario(run: Run):
        model, optimizer = model_and_optimizer()
        kept = []

        def step(x):
            kept[:] = kept or [optimizer.step]
            return plain(model, optimizer)(x)

        step = run.wrap(step, model, optimizer)
        for _ in range(3):
            run.note(step(torch.randn(3, 8)))
            with around():
                kept[0]()
            run.note(state_of(model, optimizer))

    equal_both_ways(scenario)


def test_a_method_that_the_function_keeps_steps_in_later_calls():
    def scenario(run: Run):
        model, optimizer = model_and_optimizer()
        kept = []

        def step(x):
            kept[:] = kept or [optimizer.step]
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            kept[0]()
            return loss.detach()

        step = run.wrap(step, model, optimizer)
        for _ in range(4):
            run.note(step(torch.randn(3, 8)), state_of(model, optimizer))

    run = equal_both_ways(scenario)
    assert run.eager == 0, run.why


def test_an_attribute_of_a_method_is_seen_in_the_function():
    def scenario(run: Run):
        model, optimizer = model_and_optimizer()

        def step(x):
            run.note(getattr(optimizer.step, "mark", None))
            return plain(model, optimizer)(x)

        step = run.wrap(step, model, optimizer)
        own = type(optimizer).step
        try:
            for own.mark in range(3):
                run.note(step(torch.randn(3, 8)))
        finally:
            del own.mark

    equal_both_ways(scenario)
