"""Plans in a store: found again, and planned anew where it holds something else than planning would give."""

import json
import resource

import pytest
import torch
from torch import nn

import lowtide
from lowtide._base.cache_directory import CacheDirectory
from lowtide._compile import plan_cache
from lowtide._compile.plan_cache import PlanCache
from lowtide._store.directory import DirectoryStore


@pytest.fixture(scope="module")
def graph():
    model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(6)])

    def function(x):
        loss = model(x).pow(2).mean()
        loss.backward()
        model.zero_grad()
        return loss.detach()

    return lowtide.capture(function, model=model, example=(torch.ones(256, 64),), device="A100")


@pytest.fixture
def planned(monkeypatch):
    """How often something was planned, not found."""
    calls = []
    plan_in_sight = plan_cache.plan_in_sight
    monkeypatch.setattr(
        plan_cache, "plan_in_sight", lambda *args, **kwargs: (calls.append(kwargs), plan_in_sight(*args, **kwargs))[1]
    )
    return calls


def needed(plan):
    return plan.resident_bytes + plan.arena_bytes


class Plans(PlanCache):
    """Plans in a directory, and what lies there."""

    def __init__(self, directory):
        self.directory = directory
        self.store = DirectoryStore(CacheDirectory(directory))
        super().__init__(self.store)

    def key_of(self, graph, *budgets):
        """The key of the plan within these budgets, which is made."""
        before = set(self.directory.iterdir())
        self.get_or_plan(graph, *budgets)
        (made,) = set(self.directory.iterdir()) - before
        return made.stem


def packed(plan):
    content = plan_cache._packed(plan)
    assert content is not None
    return content


def text_of(plan, folder):
    plan.save(folder / "plain.json")
    return (folder / "plain.json").read_text()


@pytest.fixture
def plans(tmp_path):
    return Plans(tmp_path / "plans")


@pytest.fixture(autouse=True)
def folder(tmp_path):
    (tmp_path / "plans").mkdir(mode=0o700)


def test_a_plan_is_made_once(plans, graph, planned):
    made, found = plans.get_or_plan(graph, 0.9, None), Plans(plans.directory).get_or_plan(graph, 0.9, None)
    assert len(planned) == 1
    assert made.offsets() == found.offsets()


@pytest.mark.parametrize("kind", ["bytes", "share", "time", "time alone"])
def test_a_plan_that_does_not_keep_the_budgets_is_made_anew(plans, graph, planned, kind):
    free = lowtide.plan(graph)
    eager = graph.resident_bytes + graph.program_peak_bytes
    least = (graph.resident_bytes + free.arena_bytes * 3 // 5) / eager
    large, small = {
        "bytes": ((needed(free), None), (int(least * eager), None)),
        "share": ((1.0, None), (least, None)),
        "time": ((int(least * eager), 10 * free.time_ns), (needed(free), free.time_ns)),
        "time alone": ((None, 10 * free.time_ns), (None, free.time_ns)),
    }[kind]
    keys = [plans.key_of(graph, *budgets) for budgets in (large, small)]
    honest = plans.get_or_plan(graph, *small)
    plans.store.put(keys[1], plans.store.get(keys[0]))  # a plan that verify accepts
    found = plans.get_or_plan(graph, *small)
    assert len(planned) == 3
    assert (found.order, found.offsets()) == (honest.order, honest.offsets())
    plans.get_or_plan(graph, *small)
    assert len(planned) == 3, "and the entry is right again"


def permuted(stored):
    """The same plan, its blocks the other way round."""
    last = len(stored["blocks"]) - 1
    stored["blocks"].reverse()
    for step in stored["steps"]:
        for operands in ("reads", "writes"):
            step[operands] = [last - block for block in step.get(operands, [])]


def far_away(stored):
    """Correct in every figure, and larger than any memory."""
    stored["figures"]["arena"] += 1 << 50
    for block in stored["blocks"]:
        if "offset" in block:
            block["offset"] += 1 << 50


@pytest.mark.parametrize("change", [permuted, far_away])
def test_a_plan_of_another_form_is_made_anew(plans, graph, planned, change, tmp_path):
    budgets = (None, 2 * lowtide.plan(graph).time_ns)
    key = plans.key_of(graph, *budgets)
    honest = plans.get_or_plan(graph, *budgets)
    stored = json.loads(text_of(honest, tmp_path))
    change(stored)
    (tmp_path / "changed.json").write_text(json.dumps(stored))
    lowtide.verify(graph, lowtide.Plan.load(tmp_path / "changed.json"))
    plans.store.put(key, (tmp_path / "changed.json").read_bytes())
    found = plans.get_or_plan(graph, *budgets)
    assert len(planned) == 2
    assert found.offsets() == honest.offsets()


def test_a_plan_with_a_tier_is_made_anew(plans, graph, planned):
    """Verify accepts one, and a step that has no tier cannot run it."""
    key = plans.key_of(graph, 0.9, None)
    away = lowtide.plan(graph, memory_budget=0.9, link="1TB/s")
    assert any(away.block_tiers())
    lowtide.verify(graph, away)
    plans.store.put(key, packed(away))
    assert not any(plans.get_or_plan(graph, 0.9, None).block_tiers())
    assert len(planned) == 2


def test_a_plan_that_hands_out_too_early_is_made_anew(plans, planned, tmp_path):
    """Verify accepts one, and a step refuses it."""
    builder = lowtide._core.GraphBuilder()
    given, kept = (builder.buffer(64, resident=True, initial=True, role="input", name=name) for name in ("x", "y"))
    made = builder.buffer(64, resident=False, initial=False, role="gradient", name="g")
    content = [builder.value(buffer, "float32", [16]) for buffer in (given, kept)]
    builder.op("make", content[:1], [made])
    builder.op("update", content[1:], [kept], mutating=True)
    builder.op("lowtide.hand_out.default", [builder.value(made, "float32", [16])], [])
    graph = builder.build()
    key = plans.key_of(graph, 1.0, None)
    stored = json.loads(text_of(plans.get_or_plan(graph, 1.0, None), tmp_path))
    (last,) = (step for step in stored["steps"] if step["op"] == 2)
    stored["steps"].remove(last)
    stored["steps"].insert(len(stored["steps"]) - 1, last)
    (tmp_path / "changed.json").write_text(json.dumps(stored))
    changed = lowtide.Plan.load(tmp_path / "changed.json")
    lowtide.verify(graph, changed)
    assert changed.order[-1] != 2
    plans.store.put(key, packed(changed))
    assert plans.get_or_plan(graph, 1.0, None).order[-1] == 2
    assert len(planned) == 2


@pytest.mark.parametrize("content", [b"", b"{", b"\x28\xb5\x2f\xfd", b"\xff" * 100, b"[" * 100_000])
@pytest.mark.parametrize("whole", [True, False])
def test_a_damaged_entry_is_made_anew(plans, graph, planned, content, whole):
    key = plans.key_of(graph, 0.9, None)
    if whole:
        plans.store.put(key, content)
    else:
        (plans.directory / f"{key}.entry").write_bytes(content)
    plans.get_or_plan(graph, 0.9, None)
    assert len(planned) == 2
    plans.get_or_plan(graph, 0.9, None)
    assert len(planned) == 2, "and the entry is right again"


def test_what_is_wrong_is_dropped(plans, graph, monkeypatch):
    key = plans.key_of(graph, 0.6, None)
    too_large = packed(lowtide.plan(graph))
    monkeypatch.setattr(plan_cache, "_packed", lambda plan: None)
    for content in (b"nonsense", too_large):
        plans.store.put(key, content)
        plans.get_or_plan(graph, 0.6, None)
        assert plans.store.get(key) is None


def test_what_decompresses_to_too_much_is_made_anew(plans, graph, planned):
    """A frame of 16 GiB in half a megabyte: no more is read than a small multiple of the file's size."""
    key = plans.key_of(graph, 0.9, None)
    assert len(bomb(16 * 2**30)) < plan_cache._MOST_BYTES
    plans.store.put(key, bomb(16 * 2**30))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    plans.get_or_plan(graph, 0.9, None)
    assert len(planned) == 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 2**10, "KiB"


def bomb(size):
    """A frame of zstd whose blocks say only how often a byte is repeated."""
    blocks = size // 2**17
    header = b"\x28\xb5\x2f\xfd" + bytes([0b11100000]) + size.to_bytes(8, "little")
    most = 2**17  # bytes of a block
    block = ((most << 3) | 0b010).to_bytes(3, "little") + b" "
    last = ((most << 3) | 0b011).to_bytes(3, "little") + b" "
    return header + block * (blocks - 1) + last


def test_what_is_larger_than_any_plan_is_not_even_read(plans, graph, planned, monkeypatch):
    key = plans.key_of(graph, 0.9, None)
    least = len(packed(plans.get_or_plan(graph, 0.9, None)))
    assert least * 20 < plan_cache._MOST_BYTES
    plans.store.put(key, bytes(2**20 + 1000 * graph.num_ops))
    with monkeypatch.context() as patch:
        patch.setattr(plan_cache.tempfile, "NamedTemporaryFile", lambda: pytest.fail("it is read"))
        plans.get_or_plan(graph, 0.9, None)
    assert len(planned) == 2


KEYS = [
    (0.9, None, 64, "exact"),
    (0.8, None, 64, "exact"),
    (10**9, None, 64, "exact"),
    (0.9, 10**9, 64, "exact"),
    (0.9, None, 128, "exact"),
    (0.9, None, 64, "any"),
]


def test_all_that_decides_a_plan_is_in_its_key(plans, graph, monkeypatch):
    """The times of operators and the alignment are what a device is to a plan."""
    slower = slowed(graph, plans.directory.parent)
    made = {plans.key_of(graph, *options) for options in KEYS} | {plans.key_of(slower, *KEYS[0])}
    monkeypatch.setattr(plan_cache, "__version__", "another")
    made.add(plans.key_of(graph, *KEYS[0]))
    assert len(made) == len(KEYS) + 2


def slowed(graph, folder):
    """The same graph, one of whose operators takes a nanosecond more."""
    graph.save(folder / "graph.json")
    stored = json.loads((folder / "graph.json").read_text())
    stored["ops"][0]["time_ns"] = stored["ops"][0].get("time_ns", 0) + 1
    (folder / "graph.json").write_text(json.dumps(stored))
    return lowtide.Graph.load(folder / "graph.json")
