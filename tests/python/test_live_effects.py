"""What a step does in Python besides its tensor work, where modules and optimizers do it: seen when eager shows it."""

import asyncio
import contextlib
import copy
import io
import logging
import sys
import traceback
import warnings

import pytest
import torch
from torch import nn

import lowtide
from both_ways import equal_both_ways, perceptron, state_of
from lowtide._live.stand_in import StandInUsedError

LOG = logging.getLogger("a_script")


def train(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


# -- modules -----------------------------------------------------------------------------------------------------------


class Talking(nn.Linear):
    def forward(self, x):
        print("a batch of", len(x), sep=" ")
        print("to stderr", end="", file=sys.stderr, flush=True)
        warnings.warn(f"{tuple(x.shape)} is small", stacklevel=1)
        warnings.warn(UserWarning("as it is"))  # noqa: B028
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("for nobody", stacklevel=1)
        LOG.warning("%d rows", len(x))
        return super().forward(x)


def heard(capsys, caplog, caught):
    said = [(str(w.message), w.category, w.filename, w.lineno) for w in caught if "lowtide" not in str(w.message)]
    logged = [(record.name, record.levelno, record.getMessage()) for record in caplog.records]
    caplog.clear()
    return (*capsys.readouterr(), said, logged)


@pytest.mark.parametrize("departs", [False, True])
def test_modules_are_heard_at_every_call(departs, capsys, caplog):
    def scenario(run):
        model = Talking(8, 4)
        optimizer = torch.optim.Adam(model.parameters())

        def function(x):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            if departs:
                assert loss.grad_fn is not None
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = run.wrap(function, model, optimizer)
        for rows in (3, 3, 5, 3, 3):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                step(torch.randn(rows, 8))
            run.note(*heard(capsys, caplog, caught))

    run = equal_both_ways(scenario)
    assert (run.planned > 0) != departs


@pytest.mark.parametrize("say", [print, lambda x: LOG.warning("%s", x)], ids=["print", "log"])
def test_a_module_that_shows_values_runs_eager(say, capsys, caplog):
    class Showing(nn.Linear):
        def forward(self, x):
            out = super().forward(x)
            say(out.sum())
            return out

    def scenario(run):
        model = Showing(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = run.wrap(lambda x: train(model, optimizer, x), model, optimizer)
        for _ in range(3):
            step(torch.ones(3, 8))
            run.note(*heard(capsys, caplog, []))

    assert "shows the values" in equal_both_ways(scenario).said[0]


def test_functions_warn_at_every_call_and_raise_where_warnings_are_errors():
    def scenario(run):
        model = nn.Linear(8, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def function(x, y):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = run.wrap(function, model, optimizer)
        for action in ("always", "always", "always", "ignore", "error", "always"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter(action, UserWarning)
                try:
                    run.note(step(torch.ones(3, 8), torch.ones(3)))
                except UserWarning as error:
                    run.note(str(error))
            run.note([(str(w.message), w.filename, w.lineno) for w in caught if "target" in str(w.message)])
            run.note(state_of(model, optimizer))

    assert equal_both_ways(scenario).planned > 3


@pytest.mark.parametrize(
    ("value", "is_planned"),
    [(None, True), ("a", True), ((1, 2), True), ([1, {"a": 2}], True), (torch.float32, True), (3, False)],
    ids=str,
)
def test_attributes_that_modules_set_are_there(value, is_planned):
    class Setting(nn.Linear):
        last = None

        def forward(self, x):
            self.made = copy.deepcopy(value)
            self.last = value
            self.weight.tag = "a weight"
            return super().forward(x)

    def scenario(run):
        model = Setting(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def function(x):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            run.note(repr(model.made), repr(model.last), model.weight.tag)
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = run.wrap(function, model, optimizer)
        for call in range(4):
            if call == 2:
                del model.made
            run.note(step(torch.randn(3, 8)), repr(vars(model).get("made", "nothing")), repr(model.last))
            if isinstance(value, list):
                model.made.append(3)  # what is made at the next call is another list
                run.note(model.made, model.last is value)
                del model.made, model.last

    run = equal_both_ways(scenario)
    assert (run.planned > 0) == is_planned


def test_attributes_that_follow_the_shapes_of_batches():
    class Shaped(nn.Linear):
        shape = None

        def forward(self, x):
            self.shape = tuple(x.shape)
            return super().forward(x)

    def scenario(run):
        model = Shaped(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = run.wrap(lambda x: (train(model, optimizer, x), model.shape), model, optimizer)
        for rows in (3, 5, 3, 3, 5):
            run.note(step(torch.randn(rows, 8)), model.shape)

    equal_both_ways(scenario)


def test_a_module_that_reads_what_it_prints(capsys):
    class Counting(nn.Linear):
        def forward(self, x):
            with contextlib.redirect_stdout(io.StringIO()) as text:
                print("abc")
            return super().forward(x) * len(text.getvalue())

    def scenario(run):
        model = Counting(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = run.wrap(lambda x: train(model, optimizer, x), model, optimizer)
        for _ in range(3):
            run.note(step(torch.ones(3, 8)))

    equal_both_ways(scenario)
    assert "abc" not in capsys.readouterr().out


def test_modules_that_go_by_the_level_of_a_logger(caplog):
    class Debugged(nn.Linear):
        def forward(self, x):
            LOG.debug("a batch")
            out = super().forward(x)
            return out * 2 if LOG.isEnabledFor(logging.DEBUG) else out

    def scenario(run):
        model = Debugged(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = run.wrap(lambda x: train(model, optimizer, x), model, optimizer)
        for level in (logging.INFO, logging.INFO, logging.DEBUG, logging.DEBUG, logging.INFO, logging.DEBUG):
            LOG.setLevel(level)
            run.note(step(torch.ones(3, 8)), [record.getMessage() for record in caplog.records])
        logging.disable(logging.DEBUG)
        run.note(step(torch.ones(3, 8)), len(caplog.records))
        logging.disable(logging.NOTSET)
        caplog.clear()

    try:
        assert equal_both_ways(scenario).eager == 0
    finally:
        LOG.setLevel(logging.NOTSET)


@pytest.mark.parametrize("is_lazy", [True, False])
def test_buffers_that_a_module_registers_as_it_runs(is_lazy):
    class Caching(nn.Linear):
        def forward(self, x):
            if not is_lazy or not hasattr(self, "scale"):
                self.register_buffer("scale", torch.full((4,), 0.5))
            return super().forward(x) * self.scale

    def scenario(run):
        model = Caching(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = run.wrap(lambda x: train(model, optimizer, x), model, optimizer)
        for _ in range(4):
            run.note(step(torch.randn(3, 8)), state_of(model, optimizer))

    equal_both_ways(scenario)


@pytest.mark.parametrize("make", [type, lambda x: x.untyped_storage()], ids=["class", "storage"])
def test_what_modules_keep_of_a_tensor_is_not_that_of_a_fake(make):
    class Keeping(nn.Linear):
        kept = None

        def forward(self, x):
            out = super().forward(x)
            self.kept = make(out)
            return out

    def scenario(run):
        model = Keeping(8, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        step = run.wrap(lambda x: train(model, optimizer, x), model, optimizer)
        for _ in range(3):
            run.note(step(torch.randn(3, 8)), str(model.kept))

    equal_both_ways(scenario)


def test_rules_say_once_what_they_say(capsys):
    class Talks(CountsInGroups):
        @torch.no_grad()
        def step(self, closure=None):
            print("a step")
            warnings.warn("of a rule", stacklevel=1)
            super().step()

    def scenario(run):
        model = perceptron()
        optimizer = Talks(model.parameters())
        step = run.wrap(lambda x: train(model, optimizer, x), model, optimizer)
        for _ in range(4):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                step(torch.randn(3, 8))
            run.note(capsys.readouterr().out, [str(w.message) for w in caught if "of a rule" in str(w.message)])

    equal_both_ways(scenario)


# -- optimizers --------------------------------------------------------------------------------------------------------


class CountsInGroups(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1, "k": 0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["k"] += 1
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"] / group["k"])


class CountsItself(CountsInGroups):
    count = 0

    @torch.no_grad()
    def step(self, closure=None):
        self.count = self.count + 1
        super().step()
        return self.count


class Counted(torch.optim.SGD):
    """The update is PyTorch's own."""

    def __init__(self, parameters):
        super().__init__(parameters, 0.1)
        self.count = 0

    def step(self, closure=None):
        super().step()
        self.count += 1
        return self.count


class Notes(torch.optim.SGD):
    def __init__(self, parameters):
        super().__init__(parameters, 0.1)
        self.notes = []

    @property
    def count(self):
        return len(self.notes)

    def step(self, closure=None):
        self.notes.append(len(self.notes))
        super().step()


TABLE = {"n": 0}


def note_elsewhere():
    TABLE["n"] += 1


class NotesElsewhere(torch.optim.SGD):
    """Nothing of its own changes."""

    def __init__(self, parameters):
        super().__init__(parameters, 0.1)
        TABLE["n"] = 0

    @property
    def count(self):
        return TABLE["n"]

    def step(self, closure=None):
        super().step()
        note_elsewhere()


class SetsByName(CountsInGroups):
    count = 0

    @torch.no_grad()
    def step(self, closure=None):
        setattr(self, "cou" + "nt", self.count + 1)
        super().step()


def hooked(parameters):
    optimizer = torch.optim.SGD(parameters, 0.1)
    optimizer.count = 0
    optimizer.register_step_post_hook(lambda one, *_: setattr(one, "count", one.count + 1))
    return optimizer


def wrapped(parameters):
    optimizer = torch.optim.SGD(parameters, 0.1)
    optimizer.count, own = 0, optimizer.step

    def step(*args):
        optimizer.count += 1
        return own(*args)

    optimizer.step = step
    return optimizer


@pytest.mark.parametrize("zeroes_at_the_end", [False, True])
@pytest.mark.parametrize(
    "make", [CountsInGroups, CountsItself, Counted, Notes, NotesElsewhere, SetsByName, hooked, wrapped]
)
def test_what_a_step_counts_is_seen_behind_it(make, zeroes_at_the_end):
    def scenario(run):
        model = perceptron()
        optimizer = make(model.parameters())

        def function(x):
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            counted = optimizer.param_groups[0].get("k", 0), getattr(optimizer, "count", 0)
            optimizer.zero_grad()
            run.note(counted)
            return loss.detach() * (1 + sum(counted))

        def at_first(x):
            optimizer.zero_grad()
            result = train(model, optimizer, x)
            return result, getattr(optimizer, "count", None), [group["lr"] for group in optimizer.param_groups]

        step = run.wrap(function if zeroes_at_the_end else at_first, model, optimizer)
        for _ in range(4):
            run.note(step(torch.randn(3, 8)), state_of(model, optimizer))

    equal_both_ways(scenario)


@pytest.mark.parametrize("make", [Counted, CountsItself])
def test_what_a_step_returns_is_what_eager_returns(make):
    def scenario(run):
        model = perceptron()
        optimizer = make(model.parameters())

        def function(x):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            return loss.detach(), optimizer.step()

        step = run.wrap(function, model, optimizer)
        for _ in range(3):
            run.note(step(torch.randn(3, 8)))

    assert "step() returns" in equal_both_ways(scenario).said[0]


def test_state_that_a_script_has_kept():
    def scenario(run):
        model = perceptron()
        optimizer = torch.optim.Adam(model.parameters())
        kept = []

        def function(x):
            result = train(model, optimizer, x)
            if not kept:
                kept.append(optimizer.state[model[0].weight])
            run.note(kept[0]["step"].item(), kept[0]["exp_avg"].sum(), float(kept[0]["exp_avg_sq"].max()))
            return result

        step = run.wrap(function, model, optimizer)
        for _ in range(4):
            run.note(step(torch.randn(3, 8)))

    assert equal_both_ways(scenario).planned > 0


def test_gradients_keep_the_graphs_that_backward_makes():
    def scenario(run):
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def function(x):
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward(create_graph=True)
            optimizer.step()
            return loss.detach()

        step = run.wrap(function, model, optimizer)
        for _ in range(3):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                step(torch.randn(3, 8))
            gradient = model[0].weight.grad
            run.note(gradient, gradient.requires_grad, gradient.is_leaf, type(gradient.grad_fn).__name__)

    equal_both_ways(scenario)


@pytest.mark.parametrize("departs", [False, True])
def test_optimizers_that_step_in_hooks_of_gradients(departs):
    def scenario(run):
        model = perceptron()
        optimizers = {p: torch.optim.SGD([p], 0.1) for p in model.parameters()}

        def update(p):
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(update)

        def function(x):
            loss = model(x).pow(2).mean()
            assert not departs or loss.grad_fn is not None
            loss.backward()
            return loss.detach()

        step = run.wrap(function, model, list(optimizers.values()))
        for _ in range(4):
            run.note(step(torch.randn(3, 8)), state_of(model))

    equal_both_ways(scenario)


# -- exceptions --------------------------------------------------------------------------------------------------------


class Stop(BaseException):
    pass


@pytest.mark.parametrize("where", ["forward", "backward", "step"])
@pytest.mark.parametrize("error", [SystemExit, asyncio.CancelledError, GeneratorExit, Stop])
def test_exceptions_that_are_no_errors_leave_what_was_done(error, where):
    def scenario(run):
        model = perceptron()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        calls = []

        def function(x):
            calls.append(1)
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            if where == "forward" and len(calls) > 1:
                raise error(3)
            loss.backward()
            if where == "backward" and len(calls) > 1:
                raise error(3)
            optimizer.step()
            if where == "step" and len(calls) > 1:
                raise error(3)
            return loss.detach()

        step = run.wrap(function, model, optimizer)
        for _ in range(3):
            try:
                run.note(step(torch.randn(3, 8)))
            except error:
                run.note("stopped")
            run.note(state_of(model, optimizer))

    equal_both_ways(scenario)


def failing():
    """A step function that fails when its program has run, with its model and optimizer."""
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def function(x):
        optimizer.zero_grad()
        out = model(x)
        loss = out.pow(2).mean()
        loss.backward()
        optimizer.step()
        raise ValueError(loss.item())

    return function, {"model": model, "optimizer": optimizer}


def test_a_post_mortem_says_which_variables_were_not_kept():
    function, owned = failing()
    step = lowtide.compile(function, **owned)
    with pytest.raises(ValueError) as caught:
        step(torch.ones(3, 8))
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "out = tensor(..., shape=(3, 4), dtype=torch.float32, not kept by the planned step" in shown


def test_variables_that_were_not_kept_are_not_used_in_silence():
    inner, owned = failing()

    def function(x):
        try:
            return inner(x)
        except ValueError as error:
            frame = error.__traceback__.tb_next.tb_frame
        return frame.f_locals["out"].detach().sum()

    step = lowtide.compile(function, **owned)
    for _ in range(2):
        with pytest.raises(StandInUsedError):
            step(torch.ones(3, 8))
