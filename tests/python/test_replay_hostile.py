"""Eager loops that do what no recording foresees: no crash, no changed value, bounded memory."""

import copy
import gc
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

import lowtide
from lowtide import _torch


def model_of(width: int = 32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(16, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
    )


def inputs_of(sizes: Sequence[int]) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    return [torch.randn(size, 16, generator=random) for size in sizes]


class Training:
    """A loop in parts, so that a test can do things in between."""

    def __init__(self) -> None:
        self.model = model_of()
        self.optimizer = torch.optim.Adam(self.model.parameters())
        torch.manual_seed(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.optimizer.zero_grad()
        return self.model(x)

    def finish(self, out: torch.Tensor) -> torch.Tensor:
        loss = out.square().mean()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return self.finish(self.forward(x))

    def result(self) -> list[torch.Tensor]:
        return [parameter.detach().clone() for parameter in self.model.parameters()]


def eager_and_replayed(run: Callable[[Training, lowtide.Replay | None], list[torch.Tensor]]) -> lowtide.ReplayStats:
    """Runs it both ways; whatever it gives must be the same, and so must the parameters."""
    plain = Training()
    expected = run(plain, None)
    watched = Training()
    with lowtide.replay() as replay:
        found = run(watched, replay)
    stats = replay.stats()
    for a, b in zip([*expected, *plain.result()], [*found, *watched.result()], strict=True):
        assert torch.equal(a, b)
    return stats


def settle(replay: lowtide.Replay | None) -> None:
    if replay is not None:
        replay.settle()


def test_a_tensor_is_kept_from_every_seventh_iteration() -> None:
    def run(training: Training, replay: lowtide.Replay | None) -> list[torch.Tensor]:
        kept = []
        for number, x in enumerate(inputs_of([64] * 100)):
            out = training.forward(x)
            if number % 7 == 6:
                kept.append(out.detach())
                kept.append(training.model[0](x).detach())
            else:
                training.model[0](x)
            training.finish(out)
            settle(replay)
        return kept

    stats = eager_and_replayed(run)
    assert stats.escaped > 0
    assert stats.hits > 0.8 * (stats.hits + stats.misses)


def test_kept_tensors_leave_the_arena_bounded() -> None:
    training = Training()
    kept: list[torch.Tensor] = []
    with lowtide.measure() as used, lowtide.replay() as replay:
        sizes = []
        for number, x in enumerate(inputs_of([64] * 200)):
            training.step(x)
            replay.settle()
            if number % 7 == 6:
                kept.append(training.model(x).detach())
            sizes.append(used.current_bytes - sum(tensor.nbytes for tensor in kept))
        assert max(sizes[100:]) <= max(sizes[:100]) + (16 << 10)
        values = [tensor.clone() for tensor in kept]
    after = used.current_bytes
    assert all(torch.equal(a, b) for a, b in zip(kept, values, strict=True)), "what is kept outlives the replay"
    bytes_kept = sum(tensor.nbytes for tensor in kept)
    kept.clear()
    gc.collect()
    assert _torch.eager_replay().blocks_left_behind == 0
    assert after >= bytes_kept


def test_shapes_are_random_for_a_thousand_iterations() -> None:
    random = torch.Generator().manual_seed(3)
    sizes = torch.randint(1, 200, (1000,), generator=random).tolist()

    def run(training: Training, replay: lowtide.Replay | None) -> list[torch.Tensor]:
        return [training.step(x) for x in inputs_of(sizes)]

    plain = Training()
    expected = run(plain, None)
    watched = Training()
    with lowtide.measure() as used, lowtide.replay() as replay:
        found = run(watched, replay)
        assert used.arena_bytes <= 2 * max(packed.arena_bytes for packed in replay.profiles())
        assert len(replay.profiles()) <= 16 * 8
    stats = replay.stats()
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
    assert stats.profiles <= 16
    assert stats.hits > 0.9 * (stats.hits + stats.misses), "smaller ones fit where the largest did"


def test_an_exception_in_the_middle_of_an_iteration() -> None:
    def run(training: Training, replay: lowtide.Replay | None) -> list[torch.Tensor]:
        for number, x in enumerate(inputs_of([64] * 30)):
            try:
                out = training.forward(x)
                if number % 5 == 4:
                    raise ValueError("in the middle")
                training.finish(out)
            except ValueError:
                pass
            settle(replay)
        return []

    stats = eager_and_replayed(run)
    assert stats.hits > 0


def test_an_exception_leaves_the_replay() -> None:
    training = Training()
    hooks = len(torch.nn.modules.module._global_forward_pre_hooks)
    with pytest.raises(ValueError, match="out"), lowtide.replay():
        for x in inputs_of([64] * 10):
            training.step(x)
        raise ValueError("out")
    assert len(torch.nn.modules.module._global_forward_pre_hooks) == hooks
    with lowtide.replay() as replay:
        for x in inputs_of([64] * 10):
            training.step(x)
            replay.settle()
    assert replay.stats().hits > 0, "another one can begin"


def test_regions_are_nested_and_entered_twice() -> None:
    def run(training: Training, replay: lowtide.Replay | None) -> list[torch.Tensor]:
        for number, x in enumerate(inputs_of([64] * 20)):
            if replay is None:
                training.step(x)
                continue
            with lowtide.replay() as inner, inner.paused() if number % 3 == 0 else inner:
                training.step(x)
                assert inner.stats().iterations == replay.stats().iterations
            with pytest.raises(RuntimeError, match="entered already"):
                replay.__enter__()
            replay.settle()
        return []

    assert eager_and_replayed(run).hits > 0


def test_another_thread_may_not_replay_as_well() -> None:
    training, other = Training(), Training()
    found: list[str] = []

    def elsewhere() -> None:
        with pytest.warns(UserWarning, match="another thread"), lowtide.replay() as replay:
            for x in inputs_of([64] * 5):
                other.step(x)
                replay.step()
        found.append(f"{replay.stats().hits} hits")

    inputs = inputs_of([64] * 15)
    with lowtide.replay() as replay:
        for number, x in enumerate(inputs):
            training.step(x)
            replay.settle()
            if number == 9:
                thread = threading.Thread(target=elsewhere)
                thread.start()
                thread.join()
    assert found == ["0 hits"]
    assert replay.stats().misses == 0
    assert replay.stats().other_threads > 0


def test_tensors_are_released_by_another_thread() -> None:
    def run(training: Training, replay: lowtide.Replay | None) -> list[torch.Tensor]:
        losses = []
        for x in inputs_of([64] * 40):
            out = training.forward(x)
            box = [out * 2, out + 1]
            thread = threading.Thread(target=box.clear)
            losses.append(training.finish(out).clone())
            thread.start()
            thread.join()
            settle(replay)
        return losses

    stats = eager_and_replayed(run)
    assert stats.hits > 0


class Numbers(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((16,), float(index)).sin() * 2


def test_a_loader_with_two_workers_is_forked() -> None:
    def run(training: Training, replay: lowtide.Replay | None) -> list[torch.Tensor]:
        losses = []
        for _ in range(2):
            for x in DataLoader(Numbers(), batch_size=8, num_workers=2, multiprocessing_context="fork"):
                losses.append(training.step(x).clone())
                settle(replay)
        return losses

    stats = eager_and_replayed(run)
    assert stats.misses <= 1, "the loader draws a seed when it begins again"
    assert stats.replayed >= 19


@contextmanager
def forked() -> Iterator[bool]:
    """The same block in a child, which must end well, and in the parent: whether it is the child."""
    child = os.fork()
    if child == 0:
        try:
            yield True
        except BaseException:
            os._exit(1)
        os._exit(0)
    yield False
    assert os.waitpid(child, 0)[1] == 0


def test_a_child_in_the_middle_of_an_iteration_makes_ordinary_requests() -> None:
    training = Training()
    with lowtide.replay() as replay:
        for x in inputs_of([64] * 6):
            training.step(x)
            replay.settle()
        out = training.forward(x)
        before = out.tolist()
        with forked() as is_child:
            assert out.tolist() == before
            if is_child:
                del out
                with lowtide.replay() as own:  # that of the parent is not the child's
                    for _ in range(8):
                        training.step(x)
                        own.settle()
                assert own.stats().hits > 0
        assert out.tolist() == before
        training.finish(out)
    assert replay.stats().hits > 0


def test_spilled_tensors_of_a_child_are_its_own(tmp_path: os.PathLike[str]) -> None:
    with lowtide.replay(spill=tmp_path):
        written, freed = torch.ones(1 << 16), torch.ones(1 << 16)
        with forked() as is_child:
            if is_child:
                assert written.sum() == freed.sum() == 1 << 16
                written.zero_()
                del freed
        assert written.sum() == freed.sum() == 1 << 16
    with forked() as is_child:  # the replay is over, the tensors are not
        if is_child:
            written.zero_()
    assert written.sum() == 1 << 16
    del written, freed


def test_a_replay_that_is_left_on_another_thread() -> None:
    training = Training()
    replay = lowtide.replay()
    with ThreadPoolExecutor(1) as other:
        other.submit(replay.__enter__).result()
        with pytest.warns(UserWarning, match="left on another thread"):
            replay.__exit__(None, None, None)
        with pytest.warns(UserWarning, match="another thread is in"), lowtide.replay() as second:
            training.step(inputs_of([8])[0])
        assert second.stats().hits == 0
        other.submit(_torch.eager_replay().stop).result()
    assert eager_and_replayed(lambda training, _: [training.step(x) for x in inputs_of([8] * 5)]).iterations > 0


def test_packing_that_cannot_begin_leaves_iterations_ordinary(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    stats = eager_and_replayed(lambda training, _: [training.step(x) for x in inputs_of([8] * 5)])
    assert stats.hits == 0 and stats.iterations > 0


def test_an_error_at_the_end_leaves_nothing_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(lowtide.Replay, "stats", fail)
        with pytest.raises(KeyboardInterrupt), lowtide.replay():
            Training().step(inputs_of([8])[0])
    stats = eager_and_replayed(lambda training, _: [training.step(x) for x in inputs_of([8] * 5)])
    assert stats.iterations > 0


def test_compiled_functions_inside() -> None:
    def run(training: Training, replay: lowtide.Replay | None) -> list[torch.Tensor]:
        @torch.compile(backend="eager", fullgraph=True)
        def loss_of(x: torch.Tensor) -> torch.Tensor:
            return training.model(x).square().mean()

        for x in inputs_of([8] * 6):
            training.optimizer.zero_grad()
            loss_of(x).backward()
            training.optimizer.step()
        return []

    eager_and_replayed(run)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_inside() -> None:
    rows = torch.nested.nested_tensor([x[:2] for x in inputs_of([4, 5])])
    layer = nn.Linear(16, 8)
    expected = layer(rows).unbind()
    with lowtide.replay():
        for _ in range(3):
            assert all(torch.equal(a, b) for a, b in zip(expected, layer(rows).unbind(), strict=True))


def test_models_are_copied_and_saved_inside(tmp_path: os.PathLike[str]) -> None:
    training = Training()
    with lowtide.replay() as replay:
        for x in inputs_of([64] * 8):
            training.step(x)
            replay.settle()
            average = copy.deepcopy(training.model)
            torch.save(training.model, os.path.join(tmp_path, "model.pt"))
    loaded = torch.load(os.path.join(tmp_path, "model.pt"), weights_only=False)
    for a, b, c in zip(training.result(), average.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(a, b) and torch.equal(a, c)


def test_a_learning_rate_that_changes_and_a_frozen_layer() -> None:
    def run(training: Training, replay: lowtide.Replay | None) -> list[torch.Tensor]:
        scheduler = torch.optim.lr_scheduler.StepLR(training.optimizer, 5)
        for number, x in enumerate(inputs_of([64] * 30)):
            if number == 12:
                training.model[0].requires_grad_(False)
            training.step(x)
            scheduler.step()
            settle(replay)
        return []

    assert eager_and_replayed(run).hits > 0


def test_an_iteration_that_cannot_be_packed_uses_ordinary_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise MemoryError("no room to pack")

    monkeypatch.setattr("lowtide._replay.profiles.pack_beside", refuse)
    training = Training()
    with pytest.warns(UserWarning, match="no room to pack"), lowtide.replay() as replay:
        for x in inputs_of([64] * 12):
            training.step(x)
            replay.settle()
    assert (replay.stats().hits, replay.stats().profiles) == (0, 0)


def test_an_iteration_for_which_there_is_no_arena_uses_ordinary_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("the system refuses")

    monkeypatch.setattr(_torch.EagerReplay, "set_arena", refuse)
    training = Training()
    with pytest.warns(UserWarning, match="has no arena.*the system refuses"), lowtide.replay() as replay:
        for x in inputs_of([64] * 12):
            training.step(x)
            replay.settle()
    assert (replay.stats().hits, replay.stats().profiles) == (0, 0)
