"""The bindings of the core: what Python sees of graphs, plans and errors."""

import pickle
import subprocess
import sys

import pytest

import lowtide
from lowtide import _core, errors


def training_step() -> _core.GraphBuilder:
    """x, w -> h (relu in place) -> loss; then w is updated in place."""
    b = _core.GraphBuilder()
    x = b.buffer(256, resident=True, initial=True, role="input", name="x")
    w = b.buffer(4096, resident=True, initial=True, role="parameter", name="w")
    h = b.buffer(1024, resident=False, initial=False, role="activation", name="h")
    g = b.buffer(4096, resident=False, initial=False, role="gradient", name="g")
    loss = b.buffer(4, resident=True, initial=False, role="output", name="loss")
    xv = b.value(x, "float32", [8, 8])
    wv = b.value(w, "float32", [32, 32])
    b.op("aten::mm", [xv, wv], [h], workspace=512, time_ns=10, source="train.py:3", module="net.linear")
    b.op("aten::relu_", [b.value(h, "float32", [16, 16])], [h], time_ns=1)
    hv = b.value(h, "float32", [16, 16])
    b.op("aten::sum", [hv], [loss], time_ns=2)
    b.op("aten::mm_backward", [hv, wv], [g], time_ns=20, source="train.py:5")
    b.op("aten::sub_", [wv, b.value(g, "float32", [32, 32])], [w], time_ns=3)
    return b


def test_bound_over_all_orders() -> None:
    """Two branches, each a large buffer and then a small one: one after the other they need 1024 + 64 + 64."""
    b = _core.GraphBuilder()
    large = [b.buffer(1024, resident=False, initial=False, role="activation", name="") for _ in range(2)]
    small = [b.buffer(64, resident=False, initial=False, role="activation", name="") for _ in range(2)]
    for made in large:
        b.op("make", [], [made])
    for made, left in zip(large, small, strict=True):
        b.op("reduce", [b.value(made, "", [])], [left])
    b.op("join", [b.value(left, "", []) for left in small], [])
    graph = b.build()
    assert graph.program_peak_bytes == 2 * 1024 + 64
    best = _core.plan(graph)
    assert (best.peak_bytes, best.bound_bytes, best.gap) == (1024 + 64 + 64, 1024 + 64 + 64, 0)
    assert best.order in ([0, 2, 1, 3, 4], [1, 3, 0, 2, 4])
    program = _core.plan(graph, order="program")
    assert program.bound_bytes <= best.bound_bytes and program.gap > 0


def test_graph() -> None:
    graph = training_step().build()
    assert (graph.num_ops, graph.num_buffers, graph.num_versions) == (5, 5, 7)
    assert graph.resident_bytes == 256 + 4096 + 4
    assert graph.program_peak_bytes == 1024 + 4096
    assert graph.operand_bound_bytes == 1024 + 4096
    assert graph.op_name(0) == "aten::mm"
    assert graph.op_source(0) == "train.py:3"
    assert graph.op_module(0) == "net.linear"
    assert (graph.buffer_name(2), graph.buffer_size(2)) == ("h", 1024)
    assert "train.py:5" in graph.summary()
    with pytest.raises(IndexError, match="op 5 of 5"):
        graph.op_name(5)


def test_plan() -> None:
    graph = training_step().build()
    plan = _core.plan(graph)
    _core.verify(graph, plan)
    assert plan.order == [0, 1, 2, 3, 4]
    assert plan.peak_bytes == plan.arena_bytes == plan.bound_bytes == 5120
    assert plan.resident_bytes == 4356
    assert plan.fragmentation == 0.0
    assert plan.time_ns == 36
    assert plan.block_buffers() == [0, 1, 2, 3, 4]
    assert [plan.step_blocks(step) for step in (0, 4)] == [[0, 1, 2], [1, 3, 1]]
    assert plan.offsets() == [-1, -1, 0, 1024, -1]
    assert plan.begins() == [0, 0, 0, 3, 0]
    assert plan.ends() == [5, 5, 4, 5, 5]
    assert plan.buffer_offset(0) is None
    assert plan.buffer_offset(3) == 1024
    assert plan.buffer_life(3) == (3, 5)
    assert plan.workspace_offset(0) == plan.workspace_offsets()[0] == 1024
    assert "layout first_fit" in plan.summary()


def test_a_plan_takes_what_its_search_is_asked_for() -> None:
    graph = training_step().build()
    aligned = lowtide.plan(graph, alignment=4096)
    assert aligned.alignment_bytes == 4096
    assert {offset % 4096 for offset in aligned.offsets() if offset >= 0} == {0}
    alone = lowtide.plan(graph)
    together = lowtide.plan(graph, threads=2, effort=2, time_limit=60.0)
    assert (together.order, together.offsets()) == (alone.order, alone.offsets())
    for asked in ({"alignment": 0}, {"effort": -1.0}, {"threads": 0}, {"time_limit": float("nan")}):
        with pytest.raises(ValueError, match=next(iter(asked))):
            lowtide.plan(graph, **asked)


def test_budget_is_hard() -> None:
    graph = training_step().build()
    needed = 5120 + 4356
    assert _core.plan(graph, memory_budget=needed).arena_bytes == 5120
    assert _core.plan(graph, memory_budget=1.0).arena_bytes == 5120
    for budget in (needed - 1, 0.9):
        with pytest.raises(errors.InfeasibleError, match="E301") as raised:
            _core.plan(graph, memory_budget=budget)
        assert raised.value.code == "E301"
        assert raised.value.bound_bytes == needed
        assert raised.value.step == 3
        assert raised.value.culprits == [("g", 4096), ("h", 1024)]
    with pytest.raises(errors.InfeasibleError, match=r"E302.*35 ns.*36 ns"):
        _core.plan(graph, latency_budget_ns=35)


@pytest.mark.parametrize(
    "error",
    [
        errors.CaptureError("no graph"),
        errors.InvalidGraphError("E104: stale", code="E104"),
        errors.InfeasibleError("E301: too little", code="E301", bound_bytes=8, step=3, culprits=[("h", 8)]),
        errors.LimitError("E403: too long", code="E403", best=7),
        errors.MemoryGuardError("overrun", kind="overrun", suspects=["mm"]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_reach_other_processes(error: errors.LowtideError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)
    assert again.code == ("" if error.code == "" else str(error)[:4])


def test_stale_read_is_refused() -> None:
    b = training_step()
    w = 1
    fresh = b.value(w, "float32", [32, 32])
    b.op("aten::add_", [fresh], [w])
    with pytest.raises(errors.InvalidGraphError, match=r"'w'.*overwritten") as raised:
        b.op("aten::mul", [fresh], [])
    assert raised.value.code == "E104"


def test_plan_of_another_graph_is_refused() -> None:
    plan = _core.plan(training_step().build())
    other = training_step()
    other.op("aten::sync", [], [])
    with pytest.raises(errors.InvalidPlanError, match="made for another graph") as raised:
        _core.verify(other.build(), plan)
    assert raised.value.code == "E225"


def test_unknown_names() -> None:
    graph = training_step().build()
    with pytest.raises(ValueError, match=r"'fastest'.*program"):
        _core.plan(graph, order="fastest")
    with pytest.raises(ValueError, match="greedy_by_size"):
        _core.plan(graph, layout="fastest")
    with pytest.raises(ValueError, match="no role 'weights'"):
        _core.GraphBuilder().buffer(1, resident=False, initial=False, role="weights", name="w")


def test_algorithms_are_listed() -> None:
    assert "program" in dict(_core.order_algorithms())
    assert "greedy_by_size" in dict(_core.layout_algorithms())


def test_amounts() -> None:
    assert _core.parse_bytes("6GiB") == 6 << 30
    assert _core.parse_duration_ns("1.5s") == 1_500_000_000
    assert _core.format_bytes(6 << 30) == "6.00 GiB"
    with pytest.raises(ValueError, match="'6 G'"):
        _core.parse_bytes("6 G")


def test_hidden_writes() -> None:
    row, relu = _core.op_row("aten::native_batch_norm"), _core.op_row("aten::relu")
    assert (row.hidden_writes_condition, row.hidden_writes) == (5, [3, 4])
    assert (relu.hidden_writes_condition, relu.hidden_writes) == (None, [])
    assert row.hidden_writes_are_optional and not relu.hidden_writes_are_optional
    assert relu.result_over == [0] and _core.op_row("aten::mm").result_over == []
    assert _core.op_row("aten::empty").moves_no_bytes and not relu.moves_no_bytes
    assert _core.op_row("aten::index").reads_what_it_picks
    names = [row.name for row in _core.op_rows()]
    assert len(names) == len(set(names)), "one row for each operator"


def test_importing_lowtide_does_not_import_torch() -> None:
    code = "import lowtide, sys; assert 'torch' not in sys.modules; lowtide.measure; assert 'torch' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
