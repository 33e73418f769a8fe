"""Addresses are reserved by need: under a limit on them, eager code has what it would have had."""

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys, torch, lowtide
from torch import nn
torch.set_num_threads(1)
kind, limit = sys.argv[1], 2**30
model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def function(x):
    optimizer.zero_grad()
    loss = model(x).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()
def used():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
function(torch.randn(4, 64))
resource.setrlimit(resource.RLIMIT_AS, (used() + limit, used() + limit))
before = used()
if kind == "compile":
    step = lowtide.compile(function, model=model, optimizer=optimizer, on_unsupported="raise")
    for rows in (4, 64, 4):
        step(torch.randn(rows, 64))
else:
    with lowtide.replay() as loop:
        for _ in range(6):
            function(torch.randn(4, 64))
            loop.settle()
    print(loop.stats())
print("taken", used() - before)
kept = []
try:
    while len(kept) < 64:
        kept.append(torch.empty(limit // 64, dtype=torch.uint8))
except RuntimeError:
    pass
assert len(kept) >= 48, len(kept)
"""


@pytest.mark.parametrize("kind", ["compile", "replay"])
def test_eager_code_has_its_addresses(kind):
    subprocess.run([sys.executable, "-c", SCRIPT, kind], check=True)


GROWTH = """
import torch, lowtide
from torch import nn
def pages():
    return int(open("/proc/self/statm").read().split()[0])
model = nn.Linear(64, 64)
def steps(rows):
    made = [lowtide.compile(lambda x: model(x).relu().sum(), model=model, on_unsupported="raise") for _ in range(2)]
    with torch.no_grad():
        for step in made:
            assert torch.equal(step(torch.ones(rows, 64)), model(torch.ones(rows, 64)).relu().sum())
    return made
small = steps(8)
before = pages()
for rows in (1 << 14, 1 << 16, 1 << 15):  # 4, 16 and 8 MiB for each of two results; all addresses stay
    large = steps(rows)
    assert pages() - before >= rows * 64 * 4 / 4096
    with torch.no_grad():
        assert torch.equal(small[0](torch.ones(8, 64)), model(torch.ones(8, 64)).relu().sum())
    for step in large:
        step.close()
assert pages() - before < 1 << 20 >> 2, pages() - before
"""


def test_an_arena_grows_in_place_and_gives_its_addresses_back():
    subprocess.run([sys.executable, "-c", GROWTH], check=True)
