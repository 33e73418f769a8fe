"""Times from published peaks: the arithmetic by hand, and operations as PyTorch counts them."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import lowtide
from bench import zoo
from lowtide._base.graph_file import GraphFile
from lowtide._capture.tape import capture_step
from lowtide._guards.surroundings import Surroundings
from lowtide._lower import rooflines
from lowtide._lower.gpus import DEVICES, LAUNCH_NS, device_named
from lowtide._lower.lowering import lower
from lowtide._lower.rooflines import bytes_moved, operations, time_ns
from step_models import MODELS, OPTIMIZERS, plain_step

A100 = DEVICES["A100"]


@pytest.fixture(autouse=True)
def precisions():
    settings = torch.backends.cuda.matmul, torch.backends.cudnn.conv
    before = [setting.fp32_precision for setting in settings]
    yield
    for setting, precision in zip(settings, before, strict=True):
        setting.fp32_precision = precision


def operators_of(function, *tensors, model=None):
    """The operators of `function` on these tensors, as a step is lowered."""
    model = model or torch.nn.Module()
    tape = capture_step(function, Surroundings(function, model, []), model, [], tensors, {})
    return lower(tape, {}).operators


def operator_of(function, *tensors):
    (operator,) = operators_of(function, *tensors)
    return operator


def work_of(function, *shapes):
    """Operations of `function` on parameters of these shapes and of its backward pass, without what has none."""
    model = torch.nn.ParameterList([torch.randn(shape) for shape in shapes])
    operators = operators_of(lambda: function(*model).sum().backward(), model=model)
    return [work for work in map(operations, operators) if work]


@pytest.mark.parametrize(("dtype", "peak"), [("float32", 19.5e12), ("bfloat16", 312e12), ("float16", 312e12)])
def test_a_product_of_matrices(dtype, peak):
    a, b = (torch.empty(1024, 1024, dtype=getattr(torch, dtype)) for _ in range(2))
    mm = operator_of(torch.mm, a, b)
    assert operations(mm) == 2 * 1024**3
    assert bytes_moved(mm) == 3 * 1024 * 1024 * a.element_size()
    # 2^31 / 19.5e12 is 110.1 us, and 12 MiB at 2.039e12 are 6.2 us; in half precision 6.9 us and 3.1 us.
    assert time_ns(mm, A100) == LAUNCH_NS + -(-(2**31) * 10**9 // int(peak))


def test_a_thin_product_is_bound_by_memory():
    mm = operator_of(torch.mm, torch.empty(1, 4096), torch.empty(4096, 4096))
    # 64 MiB of weights, and 16 KiB in and out, at 2.039e12: 32.93 us. The 2^25 operations take 1.7 us.
    assert bytes_moved(mm) == 2**26 + 2 * 2**14
    assert time_ns(mm, A100) == LAUNCH_NS + 32_929


def test_tf32_is_used_where_pytorch_would():
    mm = operator_of(torch.mm, torch.empty(1024, 1024), torch.empty(1024, 1024))
    conv = operator_of(torch.conv2d, torch.empty(8, 64, 32, 32), torch.empty(64, 64, 3, 3))
    # 2 * 8 * 30 * 30 * 64 * 64 * 9 = 530,841,600
    assert operations(conv) == 530_841_600
    plain, tensor_cores = (-(-(2**31) * 10**9 // peak) for peak in (195 * 10**11, 156 * 10**12))
    assert time_ns(mm, A100) == LAUNCH_NS + plain
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert time_ns(mm, A100) == LAUNCH_NS + tensor_cores
    # 530,841,600 operations: 3.40 us at 156e12, 27.22 us at 19.5e12. The 4 million bytes take 2.0 us.
    torch.backends.cudnn.conv.fp32_precision = "tf32"
    assert time_ns(conv, A100) == LAUNCH_NS + 3_403
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    assert time_ns(conv, A100) == LAUNCH_NS + 27_223


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("transposed", [False, True])
def test_either_gradient_of_a_convolution_takes_as_much_as_it_does(groups, transposed):
    convolve = torch.conv_transpose2d if transposed else torch.conv2d
    work = work_of(lambda x, weight: convolve(x, weight, groups=groups), (2, 8, 10, 10), (8, 8 // groups, 3, 3))
    pixels = 100 if transposed else 64  # each of the 2 * 8 planes' pixels meets 9 weights of 8 / groups channels
    forward = 2 * 2 * pixels * 8 * (8 // groups) * 9
    assert work == [forward, 2 * forward]


def test_attention_counts_on_cpu_too():
    work = work_of(torch.nn.functional.scaled_dot_product_attention, *[(2, 4, 16, 8)] * 3)
    product = 2 * (2 * 4) * 16 * 16 * 8
    assert work == [2 * product, 5 * product]


def test_a_recurrent_layer_multiplies_each_row_by_both_matrices():
    rnn = torch.nn.LSTM(12, 20)
    operators = operators_of(lambda x: rnn(x)[0].sum().backward(), torch.randn(7, 3, 12), model=rnn)
    forward = 2 * (7 * 3) * (4 * 20 * 12 + 4 * 20 * 20)
    assert [work for work in map(operations, operators) if work] == [forward, 2 * forward]


# function, tensors, bytes by hand
POINTWISE = [
    ("add", lambda a, b: a + b, [(64, 32), (64, 32)], 3 * 8192),
    ("the same twice", lambda a: a + a, [(64, 32)], 2 * 8192),
    ("a row for all", lambda a, b: a + b, [(64, 32), (32,)], 2 * 8192 + 128),
    ("an expanded row", lambda a: a.expand(64, 32).contiguous(), [(1, 32)], 128 + 8192),
    ("half of it", lambda a: a[:32] * 2, [(64, 32)], 2 * 4096),
    ("in place", lambda a: a.mul_(2), [(64, 32)], 2 * 8192),
    ("sum", lambda a: a.sum(), [(64, 32)], 8192 + 4),
    ("cat", lambda a, b: torch.cat([a, b]), [(64, 32), (32, 32)], 2 * (8192 + 4096)),
    ("picked rows", lambda a: a[torch.zeros(4, dtype=torch.int64)], [(64, 32)], 32 + 512 + 4 * 8 + 512),
    ("nothing", lambda a: torch.empty_like(a), [(64, 32)], 0),
]


@pytest.mark.parametrize(("function", "shapes", "moved"), [row[1:] for row in POINTWISE], ids=[r[0] for r in POINTWISE])
def test_bytes_of_windows(function, shapes, moved):
    operators = operators_of(function, *(torch.empty(shape) for shape in shapes))
    assert sum(map(bytes_moved, operators)) == moved
    for operator in operators:
        moves = bytes_moved(operator)
        assert operations(operator) == 0
        expected = LAUNCH_NS + -(-moves // 2039) if moves else 0  # 2,039 bytes in a nanosecond
        assert time_ns(operator, A100) == expected


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "resnet50"])
def test_operations_of_a_step_are_those_that_pytorch_counts(name, fake, monkeypatch):
    job = zoo.build(name, fake=fake, attention="eager")
    optimizer = torch.optim.Adam(job.model.parameters())
    step = job.train_step(job.model, optimizer)
    counted = []
    monkeypatch.setattr(rooflines, "operations", lambda operator: counted.append(operations(operator)) or counted[-1])
    graph = lowtide.capture(step, model=job.model, optimizer=optimizer, example=(job.batch,), device="H100")
    assert len(counted) == graph.num_ops
    real = zoo.build(name, attention="eager")
    with FlopCounterMode(display=False) as counter:
        real.train_step(real.model, torch.optim.Adam(real.model.parameters()))(real.batch)
    assert sum(counted) == counter.get_total_flops() > 0


@pytest.mark.parametrize("model", MODELS)
def test_only_times_differ(model):
    graphs = []
    for device in (None, "l4", "L4", "A100"):
        module = MODELS[model][0]()
        optimizer = OPTIMIZERS["adam"](module.parameters())
        batch = MODELS[model][1]()
        step = plain_step(module, optimizer)
        graph = lowtide.capture(step, model=module, optimizer=optimizer, example=(batch,), device=device)
        graphs.append(GraphFile(graph))
    times = [[op.pop("time_ns", 0) for op in graph.ops] for graph in graphs]
    assert all(graph.ops == graphs[0].ops and graph.values == graphs[0].values for graph in graphs)
    none, lower_case, l4, a100 = times
    assert not any(none) and lower_case == l4
    assert all(isinstance(t, int) and (t > LAUNCH_NS or t == 0) for t in l4 + a100)
    assert sum(l4) > sum(a100)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("a100", "A100"), ("A100-80GB", "A100"), ("NVIDIA A100-SXM4-80GB", "A100"), ("a100-40gb", "A100-40"),
        ("h100", "H100"), ("H100 80GB", "H100"), ("4090", "RTX 4090"), ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("rtx_3090", "RTX 3090"), ("Tesla T4", "T4"), ("AMD Instinct MI300X", "MI300X"), ("l4", "L4"),
    ],
)  # fmt: skip
def test_devices_go_by_the_names_that_users_type(said, name):
    assert device_named(said) is DEVICES[name]


def test_an_unknown_device_is_refused_with_those_there_are():
    model = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match=r"no device is called 'B300'; there are A100, A100-40, H100, H200, B200, L4"):
        lowtide.capture(lambda x: model(x), model=model, example=(torch.randn(1, 2),), device="B300")
