"""Scripts that name their device once: `torch.set_default_device("cuda")`, or `with torch.device("cuda")`."""

import contextlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lowtide

STEPS = 10


@pytest.fixture(autouse=True)
def _quiet(monkeypatch, tmp_path):
    monkeypatch.setenv("LOWTIDE_QUIET", "1")
    monkeypatch.setenv("LOWTIDE_CACHE", str(tmp_path))


@contextlib.contextmanager
def default_cuda():
    torch.set_default_device("cuda")
    try:
        yield
    finally:
        torch.set_default_device(None)


class Noisy(nn.Module):
    """Makes tensors that say nothing of a device."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(32, 64), nn.Linear(64, 4)

    def forward(self, x):
        kept = torch.ones(64)
        kept[::7] = 0
        return self.last(F.dropout(torch.relu(self.first(x)), 0.1) * kept + 0.01 * torch.randn(64))


def train(compiled, around, inside=contextlib.nullcontext):
    """What some steps leave behind."""
    torch.manual_seed(0)
    with around():
        model = Noisy()
        model.cuda()
        optimizer = torch.optim.AdamW(model.parameters())

        def step(x, y):
            optimizer.zero_grad()
            with inside():
                loss = F.cross_entropy(model(x), y) + torch.zeros(1).sum() * torch.rand(())
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = lowtide.compile(step, model=model, optimizer=optimizer) if compiled else step
        batch = torch.randn(16, 32, device="cuda"), torch.randint(4, (16,), device="cuda")
        losses = [run(*batch) for _ in range(STEPS)]
        state = [value for values in optimizer.state.values() for value in values.values()]
        found = [tensor.detach().cpu() for tensor in [*losses, *model.parameters(), *state]]
        draw = torch.rand(3, device="cuda").cpu(), torch.rand(3, device="cpu")
        stats = run.stats() if compiled else {}
        if compiled:
            run.close()
    return [*found, *draw], stats


KINDS = {
    "set for all": (default_cuda, contextlib.nullcontext),
    "around all": (lambda: torch.device("cuda"), contextlib.nullcontext),
    "within the step": (contextlib.nullcontext, lambda: torch.device("cuda")),
    "both": (default_cuda, lambda: torch.device("cuda:0")),
}


@pytest.mark.parametrize("kind", KINDS)
def test_trains_as_in_eager(kind, every_order):
    expected, _ = train(False, *KINDS[kind])
    found, stats = train(True, *KINDS[kind])
    assert len(expected) == len(found) and all(map(torch.equal, expected, found))
    assert (stats["calls"], stats["eager_calls"]) == (STEPS, 0)


def test_another_default_is_another_capture():
    model = nn.Linear(8, 8).cuda()
    step = lowtide.compile(lambda x: (model(x) + torch.ones(8).sum().item()).sum(), model=model)
    x = torch.randn(2, 8, device="cuda")
    with torch.no_grad():
        for _ in range(2):
            for device in ("cuda", "cpu"):
                with torch.device(device):
                    assert torch.equal(step(x), (model(x) + torch.ones(8).sum().item()).sum())
    step.close()
