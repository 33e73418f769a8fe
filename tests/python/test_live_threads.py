"""Live steps and other threads: deferral is this thread's alone."""

import threading

import pytest
import torch
from torch import nn

import lowtide
from both_ways import frozen, perceptron, plain


@pytest.mark.parametrize("compiled_too", [False, True])
def test_another_thread_trains_another_model_meanwhile(compiled_too: bool) -> None:
    def train(seed: int, compiled: bool, results: dict[int, object]) -> None:
        generator = torch.Generator().manual_seed(seed)
        model = perceptron()
        with torch.no_grad():
            for p in model.parameters():
                p.copy_(torch.randn(p.shape, generator=generator) * 0.1)
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        step = plain(model, optimizer)
        if compiled:
            step = lowtide.compile(step, model=model, optimizer=optimizer)
        losses = [step(torch.randn(12, 8, generator=generator)) for _ in range(40)]
        results[seed] = frozen((losses, list(model.parameters())))

    expected: dict[int, object] = {}
    for seed in (1, 2):
        train(seed, False, expected)
    own_call = nn.Module.__call__
    results: dict[int, object] = {}
    other = threading.Thread(target=train, args=(2, compiled_too, results))
    other.start()
    train(1, True, results)
    other.join(60)
    assert results == expected
    assert nn.Module.__call__ is own_call


def test_another_thread_reads_the_parameters_meanwhile() -> None:
    model = perceptron()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    compiled = lowtide.compile(plain(model, optimizer), model=model, optimizer=optimizer)
    stop, failures, looks = threading.Event(), [], []

    def watch() -> None:
        try:
            while not stop.is_set():
                with torch.no_grad():
                    looks.append(model(torch.ones(1, 8)).sum().item() + sum(p.sum().item() for p in model.parameters()))
        except Exception as error:
            failures.append(error)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(20):
        compiled(torch.randn(12, 8))
    stop.set()
    watcher.join(60)
    assert not failures
    assert looks
