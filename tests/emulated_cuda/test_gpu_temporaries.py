"""Requests inside operators are those that PyTorch's own operators make on the device."""

import pytest
import torch

from lowtide._base.schemas import positional
from lowtide._capture.recorder import Ref, Where
from lowtide._lower.gpu_memory import blas_workspaces
from lowtide._lower.gpu_temporaries import requested_inside
from lowtide._lower.gpus import DEVICES
from lowtide._lower.lowering import Operator
from test_memory import run as run_apart

L4 = DEVICES["L4"]
aten = torch.ops.aten
half = torch.bfloat16

pytestmark = pytest.mark.usefixtures("bytes_stay")


def empty(*sizes, dtype=torch.float32):
    return torch.zeros(sizes, dtype=dtype, device="cuda")


def heads(batch, heads, rows, width, dtype):
    return empty(batch, rows, heads, width, dtype=dtype).transpose(1, 2)


def ref(value):
    if isinstance(value, torch.Tensor):
        return Ref(0, value.dtype, tuple(value.shape), value.stride(), value.storage_offset())
    return [ref(item) for item in value] if isinstance(value, (list, tuple)) else value


def run(target, *arguments, **named):
    """The requests of a call beside its results, in order; the most of them at once; and what is said of the call."""
    torch.cuda.memory._record_memory_history(context=None, stacks="python", max_entries=100_000)
    try:
        out = target(*arguments, **named)
        trace = torch.cuda.memory._snapshot()["device_traces"][0]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    results = [out] if isinstance(out, torch.Tensor) else out
    made = [tensor.untyped_storage().data_ptr() for tensor in results if isinstance(tensor, torch.Tensor)]
    places = {entry["addr"]: index for index, entry in enumerate(trace) if entry["action"] == "alloc"}
    of_results = {places[address] for address in made if address in places}  # the last request that was served there
    requests, now, most = [], 0, 0
    for index, entry in enumerate(trace):
        if entry["action"] == "alloc" and index not in of_results:
            requests.append(entry["size"])
            now += entry["size"]
        elif entry["action"] == "free_completed":
            now -= entry["size"]
        most = max(most, now)
    given = [ref(argument) for argument in positional(target, arguments, named)]
    operator = Operator(target, given, ref(list(results)), [True] * len(results), [], Where("", ""))
    before, between, after, _ = requested_inside(operator, L4)
    return requests, most, [*before, *between, *after]


@pytest.mark.parametrize("dtype", [torch.float32, half])
@pytest.mark.parametrize(
    ("sizes", "over"),
    [
        ((2048, 768), [0]), ((2048, 2304), [0]), ((8192, 5025), [0]), ((2, 64, 256, 256), [0, 2, 3]),
        ((4, 12, 64, 64), [-1]), ((64, 1000, 10), [1]), ((2048, 12, 64), [0]), ((4, 512, 768), [0, 1]),
        ((4, 512, 768), [0]), ((2048, 766), [0]), ((2048, 767), [0]), ((8, 3, 512, 512), [2, 3]), ((300, 1), [0]),
        ((1, 1), [0]), ((100_000,), [0]), ((1000, 8), [0]),
    ],
)  # fmt: skip
def test_sums(sizes, over, dtype):
    x = empty(*sizes, dtype=dtype)
    for target in (aten.sum.dim_IntList, aten.mean.dim):
        requests, _, said = run(target, x, over, True)
        assert requests == said
    requests, _, said = run(aten.sum.default, x.transpose(0, -1))
    assert requests == said


def test_operands_that_are_copied():
    x, indices = empty(40, 30, 20), torch.zeros(4, 50, dtype=torch.long, device="cuda")
    mean = empty(40, 30, 1)
    wide = torch.zeros(50, dtype=torch.long, device="cuda").expand(4, 50)
    for target, arguments in [
        (aten._softmax_backward_data.default, (x, x, -1, torch.float32)),
        (aten.native_layer_norm_backward.default,
         (empty(30, 40, 20).transpose(0, 1), x, [20], mean, mean, empty(20), empty(20), [True] * 3)),
        (aten.embedding.default, (empty(7, 20), indices)),
        (aten.embedding.default, (empty(7, 20), wide)),
        (aten.embedding_dense_backward.default, (empty(4, 50, 20), wide, 7, -1, False)),
        (aten.binary_cross_entropy_with_logits.default, (x, x)),
    ]:  # fmt: skip
        requests, _, said = run(target, *arguments)
        assert requests == said, target


@pytest.mark.parametrize(
    ("indices", "rows", "width"), [(2000, 5000, 64), (4096, 5000, 768), (16384, 300, 64), (16384, 30000, 100)]
)
def test_gradients_of_embeddings(indices, rows, width):
    places = torch.zeros(indices, dtype=torch.long, device="cuda")
    _, most, said = run(aten.embedding_dense_backward.default, empty(indices, width), places, rows, -1, False)
    assert most <= sum(said) <= 1.02 * most


@pytest.mark.parametrize(("rows", "width"), [(2048, 768), (131072, 256), (70000, 64)])
def test_gradients_of_layer_norm(rows, width):
    x, mean, weight = empty(rows, width), empty(rows, 1), empty(width)
    target = aten.native_layer_norm_backward.default
    _, most, said = run(target, x, x, [width], mean, mean, weight, weight, [True] * 3)
    assert most <= sum(said) <= 1.01 * most


@pytest.mark.parametrize("dtype", [torch.float32, half])
@pytest.mark.parametrize(
    "sizes", [(4, 12, 512, 512, 64), (4, 12, 100, 100, 64), (2, 3, 100, 300, 96), (2, 3, 512, 512, 128),
              (2, 3, 512, 384, 256), (2, 3, 16, 16, 16)],
    ids=str,
)  # fmt: skip
def test_gradients_of_attention(sizes, dtype):
    batch, count, rows, columns, width = sizes
    query, key = heads(batch, count, rows, width, dtype), heads(batch, count, columns, width, dtype)
    out, log, seed, offset = aten._scaled_dot_product_efficient_attention(query, key, key, None, True, 0.1)
    target = aten._scaled_dot_product_efficient_attention_backward.default
    wanted = [True, True, True, False]
    _, most, said = run(target, query, query, key, key, None, out, log, seed, offset, 0.1, wanted, False)
    small = 2 * batch * count * rows * width * 4  # what is not there at once: the product and the parts
    assert most <= sum(said) <= 1.6 * most + small
    if dtype == half:
        made = aten._scaled_dot_product_flash_attention(query, key, key, 0.1)
        target = aten._scaled_dot_product_flash_attention_backward.default
        requests, _, said = run(target, query, query, key, key, *made[:6], 0.1, False, *made[6:8])
        assert requests == said


@pytest.mark.parametrize("wants_input", [True, False])
@pytest.mark.parametrize(
    ("x", "weight", "stride", "padding", "groups"),
    [
        ((2, 3, 64, 64), (8, 3, 7, 7), 2, 3, 1), ((2, 8, 20, 20), (4, 8, 1, 1), 1, 0, 1),
        ((2, 8, 20, 20), (4, 8, 1, 1), 2, 0, 1), ((2, 8, 20, 20), (8, 1, 3, 3), 1, 1, 8),
        ((2, 3, 8, 16, 16), (4, 3, 3, 3, 3), 1, 1, 1),
    ],
)  # fmt: skip
def test_convolutions_without_cudnn(x, weight, stride, padding, groups, wants_input):
    dimensions = len(x) - 2
    image, kernel = empty(*x), empty(*weight)
    how = [stride] * dimensions, [padding] * dimensions, [1] * dimensions, False, [0] * dimensions, groups
    out = aten.convolution(image, kernel, None, *how)
    requests, _, said = run(aten.convolution.default, image, kernel, None, *how)
    assert requests == said
    wanted = [wants_input, True, True]
    _, most, said = run(aten.convolution_backward.default, out, image, kernel, [weight[0]], *how, wanted)
    assert abs(sum(said) - most) <= 512, "a bias has little"


@pytest.mark.parametrize("chosen", [None, ":4096:8", ":16:8:4096:1"])
def test_workspaces_of_cublas(chosen, monkeypatch):
    """PyTorch reads the environment once."""
    if chosen:
        monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", chosen)
    made = run_apart('x = torch.rand(64, 64, device="cuda"); y = x @ x; print(torch.cuda.memory_allocated())', False)
    assert int(made.stdout) == 2 * 64 * 64 * 4 + sum(blas_workspaces(L4)), made.stderr
