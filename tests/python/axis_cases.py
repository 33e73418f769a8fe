"""Random calls of every operator that has axes in the table of operators (src/ops)."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor

aten = torch.ops.aten


class Call(NamedTuple):
    """An operator and what it is called with."""

    target: torch._ops.OpOverload
    arguments: tuple[Any, ...]
    named: Mapping[str, Any] = MappingProxyType({})


class Maker:
    """Sizes and tensors of a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def size(self) -> int:
        return self.random.choice((1, 2, 3, 4, 6))

    def shape(self, least: int = 1, most: int = 4) -> tuple[int, ...]:
        return tuple(self.size() for _ in range(self.random.randint(least, most)))

    def one_of(self, *choices: Any) -> Any:
        return self.random.choice(choices)

    def flag(self) -> bool:
        return self.random.random() < 0.5

    def dim(self, rank: int) -> int:
        return self.random.randrange(-rank, rank)

    def dims(self, rank: int) -> list[int]:
        found = self.random.sample(range(rank), self.random.randint(1, rank))
        return [dim - rank if self.flag() else dim for dim in found]

    def floats(self, *shape: int) -> Tensor:
        """In one of several forms in memory."""
        made = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        form = self.random.randrange(4)
        if form == 1 and len(shape) > 1:
            return made.transpose(0, -1).contiguous().transpose(0, -1)
        if form == 2 and shape:
            return torch.cat([made, made], dim=-1).narrow(-1, made.shape[-1], made.shape[-1])
        return made

    def positive(self, *shape: int) -> Tensor:
        return self.floats(*shape).abs() + 0.5

    def integers(self, high: int, *shape: int) -> Tensor:
        return torch.randint(high, shape, generator=self.generator)

    def mask(self, *shape: int) -> Tensor:
        return self.floats(*shape) > 0

    def broadcast(self, shape: tuple[int, ...]) -> Tensor:
        """Something that broadcasts to `shape`: with sizes of 1, fewer dimensions, or strides of 0."""
        sizes = [1 if self.random.random() < 0.3 else size for size in shape]
        made = self.floats(*sizes[self.random.choice((0, 0, min(1, len(sizes)))) :])
        return made.expand(shape) if self.random.random() < 0.2 else made


CASES: dict[str, Callable[[Maker], Call]] = {}


def case(*names: str) -> Callable[[Callable[..., Call]], Callable[..., Call]]:
    """Of these operators. A function of two arguments has the name of the operator as the second."""

    def add(function: Callable[..., Call]) -> Callable[..., Call]:
        for name in names:
            several = function.__code__.co_argcount > 1
            CASES[name] = (lambda make, name=name: function(make, name)) if several else function
        return function

    return add


def default(name: str) -> torch._ops.OpOverload:
    return getattr(aten, name).default


UNARY = """abs acos asin atan ceil clone cos cosh erf erfc exp exp2 expm1 floor frac gelu hardsigmoid hardswish hardtanh
elu leaky_relu log log10 log1p log2 logical_not logit mish neg reciprocal relu round rsqrt sgn sigmoid sign silu sin
sinh softplus sqrt square tan tanh trunc zero ones_like zeros_like _to_copy"""
BACKWARD = """gelu_backward hardsigmoid_backward hardswish_backward mish_backward sigmoid_backward silu_backward
tanh_backward"""


@case(*UNARY.split())
def unary(make: Maker, name: str) -> Call:
    return Call(default(name), (make.positive(*make.shape()),))


@case(*BACKWARD.split())
def backward(make: Maker, name: str) -> Call:
    shape = make.shape()
    return Call(default(name), (make.floats(*shape), make.floats(*shape)))


@case("add", "atan2", "div", "maximum", "minimum", "mul", "rsub", "sub", "copy")
def binary(make: Maker, name: str) -> Call:
    shape = make.shape()
    if name in ("add", "mul", "sub", "div") and make.flag():
        target = getattr(aten, f"{name}_").Tensor  # in place
        return Call(target, (make.positive(*shape), make.broadcast(shape)))
    if name == "copy":
        return Call(aten.copy_.default, (make.floats(*shape), make.broadcast(shape)))
    packet = getattr(aten, name)
    target = packet.Tensor if "Tensor" in packet.overloads() else packet.default
    return Call(target, (make.positive(*shape), make.broadcast(shape)))


@case("addcdiv", "addcmul")
def ternary(make: Maker, name: str) -> Call:
    shape = make.shape()
    return Call(default(name), (make.floats(*shape), make.broadcast(shape), make.positive(*shape)))


def with_shape(function: Callable[[Maker, tuple[int, ...]], Call]) -> Callable[[Maker], Call]:
    return lambda make: function(make, make.shape())


CASES |= {
    name: with_shape(function)
    for name, function in {
        "clamp": lambda m, s: Call(aten.clamp.default, (m.floats(*s), -0.5, 0.5)),
        "clamp_max": lambda m, s: Call(aten.clamp_max.default, (m.floats(*s), 0.1)),
        "clamp_min": lambda m, s: Call(aten.clamp_min.Tensor, (m.floats(*s), m.floats(*s))),
        "elu_backward": lambda m, s: Call(aten.elu_backward.default, (m.floats(*s), 1.0, 1, 1, False, m.floats(*s))),
        "fill": lambda m, s: Call(aten.fill_.Scalar, (m.floats(*s), 2.5)),
        "full_like": lambda m, s: Call(aten.full_like.default, (m.floats(*s), 2.5)),
        "hardtanh_backward": lambda m, s: Call(aten.hardtanh_backward.default, (m.floats(*s), m.floats(*s), -1, 1)),
        "leaky_relu_backward": lambda m, s: Call(
            aten.leaky_relu_backward.default, (m.floats(*s), m.floats(*s), 0.1, False)
        ),
        "lerp": lambda m, s: Call(aten.lerp.Scalar, (m.floats(*s), m.floats(*s), 0.3)),
        "masked_fill": lambda m, s: Call(
            m.one_of(aten.masked_fill, aten.masked_fill_).Scalar, (m.floats(*s), m.mask(*s), 2.0)
        ),
        "native_dropout_backward": lambda m, s: Call(
            aten.native_dropout_backward.default, (m.floats(*s), m.mask(*s), 2.0)
        ),
        "pow": lambda m, s: Call(aten.pow.Tensor_Scalar, (m.floats(*s), 3)),
        "softplus_backward": lambda m, s: Call(aten.softplus_backward.default, (m.floats(*s), m.floats(*s), 1, 20)),
        "threshold": lambda m, s: Call(aten.threshold.default, (m.floats(*s), 0.1, 0.0)),
        "threshold_backward": lambda m, s: Call(aten.threshold_backward.default, (m.floats(*s), m.floats(*s), 0)),
        "where": lambda m, s: Call(aten.where.self, (m.mask(*s), m.broadcast(s), m.floats(*s))),
    }.items()
}


@case("_softmax", "_log_softmax")
def softmax(make: Maker, name: str) -> Call:
    shape = make.shape()
    return Call(default(name), (make.floats(*shape), make.dim(len(shape)), False))


@case("_safe_softmax")
def safe_softmax(make: Maker) -> Call:
    shape = make.shape()
    return Call(aten._safe_softmax.default, (make.floats(*shape), make.dim(len(shape))))


@case("_softmax_backward_data", "_log_softmax_backward_data")
def softmax_backward(make: Maker, name: str) -> Call:
    shape = make.shape()
    dim = make.dim(len(shape))
    return Call(default(name), (make.floats(*shape), make.floats(*shape).softmax(dim), dim, torch.float64))


@case("native_layer_norm")
def layer_norm(make: Maker) -> Call:
    shape = make.shape(2)
    normalized = shape[make.random.randint(1, len(shape)) :] or shape[-1:]
    weight, bias = (make.floats(*normalized) if make.flag() else None for _ in range(2))
    return Call(aten.native_layer_norm.default, (make.floats(*shape), list(normalized), weight, bias, 1e-5))


@case("native_layer_norm_backward")
def layer_norm_backward(make: Maker) -> Call:
    shape = make.shape(2)
    normalized = list(shape[-make.random.randint(1, len(shape) - 1) :])
    x, weight, bias = make.floats(*shape), make.floats(*normalized), make.floats(*normalized)
    _, mean, scale = aten.native_layer_norm(x, normalized, weight, bias, 1e-5)
    mask = [True, make.flag(), make.flag()]
    arguments = (make.floats(*shape), x, normalized, mean, scale, weight, bias, mask)
    return Call(aten.native_layer_norm_backward.default, arguments)


def image(make: Maker) -> tuple[int, ...]:
    return (make.size(), make.size(), *make.shape(0, 2))


@case("native_batch_norm")
def batch_norm(make: Maker) -> Call:
    shape = (make.size() + 1, make.size(), *make.shape(0, 2))
    channels = [make.positive(shape[1]) for _ in range(4)]
    return Call(aten.native_batch_norm.default, (make.floats(*shape), *channels, make.flag(), 0.1, 1e-5))


@case("native_batch_norm_backward")
def batch_norm_backward(make: Maker) -> Call:
    shape = (make.one_of(2, 3, 4, 6), make.size(), *make.shape(0, 2))
    channels = [make.positive(shape[1]) for _ in range(5)]
    arguments = (make.floats(*shape), make.floats(*shape), *channels, make.flag(), 1e-5, [True, True, make.flag()])
    return Call(aten.native_batch_norm_backward.default, arguments)


@case("native_group_norm")
def group_norm(make: Maker) -> Call:
    n, group, pixels = make.size(), make.size(), make.shape(0, 2)
    c = group * make.size()
    x, weights, area = make.floats(n, c, *pixels), [make.floats(c).contiguous() for _ in range(2)], 1
    for size in pixels:
        area *= size
    return Call(aten.native_group_norm.default, (x.contiguous(), *weights, n, c, area, group, 1e-5))


@case("native_group_norm_backward")
def group_norm_backward(make: Maker) -> Call:
    x, weight, bias, n, c, area, group, eps = group_norm(make).arguments
    _, mean, scale = aten.native_group_norm(x, weight, bias, n, c, area, group, eps)
    gradient = make.floats(*x.shape).contiguous()
    arguments = (gradient, x, mean, scale, weight, n, c, area, group, [True, True, make.flag()])
    return Call(aten.native_group_norm_backward.default, arguments)


@case("addmm", "addmv", "addbmm", "addr", "baddbmm", "bmm", "dot", "linear", "mm", "mv")
def product(make: Maker, name: str) -> Call:
    b, m, n, k = (make.size() for _ in range(4))
    f = make.floats
    left, right, rows, columns, vector = f(b, m, k), f(b, k, n), f(m, k), f(k, n), f(k)
    arguments = {
        "addmm": (make.broadcast((m, n)), rows, columns),
        "addmv": (make.broadcast((m,)), rows, vector),
        "addbmm": (make.broadcast((m, n)), left, right),
        "addr": (make.broadcast((m, n)), f(m), f(n)),
        "baddbmm": (make.broadcast((b, m, n)), left, right),
        "bmm": (left, right),
        "dot": (vector, f(k)),
        "linear": (f(*make.shape(0, 2), m, k), f(n, k), *make.one_of([f(n)], [None], [])),
        "mm": (rows, columns),
        "mv": (rows, vector),
    }[name]
    scaled = name.startswith(("add", "badd")) and make.flag()
    return Call(default(name), arguments, {"beta": 0.5, "alpha": 2.0} if scaled else {})


def convolution_arguments(make: Maker) -> tuple[Any, ...]:
    """Input, weight, bias, and the rest up to the number of groups."""
    spatial = make.random.randint(1, 2)
    groups, transposed = make.one_of(1, 1, 2, 3), make.flag()
    n, c, o = make.size(), groups * make.one_of(1, 2, 4), groups * make.one_of(1, 2, 4)
    kernel = [make.one_of(1, 3) for _ in range(spatial)]
    x = make.floats(n, c, *(make.one_of(3, 4, 6) for _ in range(spatial)))
    weight = make.floats(*((c, o // groups) if transposed else (o, c // groups)), *kernel)
    bias = make.floats(o) if make.flag() else None
    stride, padding = [make.one_of(1, 2)] * spatial, [make.one_of(0, 1)] * spatial
    return x, weight, bias, stride, padding, [1] * spatial, transposed, [0] * spatial, groups


@case("convolution")
def convolution(make: Maker) -> Call:
    return Call(aten.convolution.default, convolution_arguments(make))


@case("convolution_backward")
def convolution_backward(make: Maker) -> Call:
    x, weight, bias, *rest = convolution_arguments(make)
    y = aten.convolution(x, weight, bias, *rest)
    mask = [make.one_of(True, True, False), True, bias is not None]
    sizes = None if bias is None else list(bias.shape)
    return Call(aten.convolution_backward.default, (make.floats(*y.shape), x, weight, sizes, *rest, mask))


def rows(make: Maker, *shape: int) -> Tensor:
    return make.floats(*shape).contiguous()


def heads(make: Maker, b: int, h: int, length: int, e: int) -> Tensor:
    """Side by side in each row, as projections leave them."""
    return rows(make, b, length, h, e).transpose(1, 2)


def attention_arguments(make: Maker) -> tuple[Any, ...]:
    b, h, q, k, e = (make.size() for _ in range(5))
    query, key, value = (make.one_of(rows, heads)(make, b, h, length, 2 * e) for length in (q, k, k))
    mask = make.one_of(None, (q, k), (b, 1, q, k), (1, h, q, k), (b, h, q, k))
    causal = mask is None and make.flag()
    return query, key, value, 0.0, causal, None if mask is None else make.floats(*mask)


@case("_scaled_dot_product_flash_attention_for_cpu")
def attention(make: Maker) -> Call:
    *first, mask = attention_arguments(make)
    return Call(aten._scaled_dot_product_flash_attention_for_cpu.default, tuple(first), {"attn_mask": mask})


@case("_scaled_dot_product_flash_attention_for_cpu_backward")
def attention_backward(make: Maker) -> Call:
    query, key, value, drop, causal, mask = attention_arguments(make)
    out, logsumexp = aten._scaled_dot_product_flash_attention_for_cpu(query, key, value, drop, causal, attn_mask=mask)
    gradient = rows(make, *out.shape)
    arguments = (gradient, query, key, value, out, logsumexp, drop, causal)
    return Call(aten._scaled_dot_product_flash_attention_for_cpu_backward.default, arguments, {"attn_mask": mask})


def loss_arguments(make: Maker, pixels: tuple[int, ...]) -> tuple[Any, ...]:
    n, classes = make.size(), make.one_of(3, 4)
    scores = make.floats(n, classes, *pixels).contiguous().log_softmax(1)
    weight = make.positive(classes).contiguous() if make.flag() else None
    return scores, make.integers(classes, n, *pixels), weight, make.one_of(0, 1, 2), 0


@case("nll_loss_forward", "nll_loss2d_forward")
def loss(make: Maker, name: str) -> Call:
    return Call(default(name), loss_arguments(make, (make.size(), make.size()) if "2d" in name else ()))


@case("nll_loss_backward", "nll_loss2d_backward")
def loss_backward(make: Maker, name: str) -> Call:
    arguments = loss_arguments(make, (make.size(), make.size()) if "2d" in name else ())
    output, weight = default(name.replace("backward", "forward"))(*arguments)
    return Call(default(name), (make.floats(*output.shape).contiguous(), *arguments, weight))


REDUCTIONS = """all amax amin any argmax argmin count_nonzero kthvalue linalg_vector_norm logsumexp max mean median min
nansum norm prod std std_mean sum var var_mean"""
REDUCED_ONE = "argmax argmin kthvalue max median min prod"


def dims_overload(name: str, kinds: tuple[str, ...]) -> torch._ops.OpOverload:
    packet = getattr(aten, name)
    return getattr(packet, next(kind for kind in kinds if kind in packet.overloads()))


@case(*REDUCTIONS.split())
def reduction(make: Maker, name: str) -> Call:
    shape = make.shape()
    x = make.positive(*shape)
    if make.random.random() < 0.1 and name in ("sum", "mean", "max", "std", "any", "prod", "nansum"):
        return Call(dims_overload(name, ("default",)), (x,))
    keep = {"keepdim": make.flag()} if name != "count_nonzero" else {}
    if name in REDUCED_ONE.split():
        between = (1,) if name == "kthvalue" else ()
        target = dims_overload(name, ("dim", "dim_int", "default"))
        return Call(target, (x, *between, make.dim(len(shape))), keep)
    order = (3,) if name in ("linalg_vector_norm", "norm") else ()
    kinds = ("correction", "dim_IntList", "ScalarOpt_dim", "dims", "dim", "default")
    return Call(dims_overload(name, kinds), (x, *order, make.dims(len(shape))), keep)


def other_dims(target: torch._ops.OpOverload) -> Callable[[Maker], Call]:
    """Calls with a tensor and a dimension."""

    def call(make: Maker) -> Call:
        shape = make.shape(2)
        return Call(target, (make.floats(*shape), make.dim(len(shape))))

    return call


CASES |= {
    "argsort": other_dims(aten.argsort.default),
    "cummax": other_dims(aten.cummax.default),
    "cummin": other_dims(aten.cummin.default),
    "cumprod": other_dims(aten.cumprod.default),
    "cumsum": other_dims(aten.cumsum.default),
    "logcumsumexp": other_dims(aten.logcumsumexp.default),
    "sort": other_dims(aten.sort.default),
}


@case("topk")
def topk(make: Maker) -> Call:
    shape = make.shape(2)
    return Call(aten.topk.default, (make.floats(*shape), 1, make.dim(len(shape))))


@case("glu", "glu_backward")
def glu(make: Maker, name: str) -> Call:
    shape = make.shape(2)
    dim = make.dim(len(shape))
    double = [2 * size if place == dim % len(shape) else size for place, size in enumerate(shape)]
    given = (make.floats(*shape),) if "backward" in name else ()
    return Call(default(name), (*given, make.floats(*double), dim))


@case("flip", "roll")
def flip(make: Maker, name: str) -> Call:
    shape = make.shape(2)
    dims = make.dims(len(shape))
    return Call(default(name), (make.floats(*shape), *([[1] * len(dims)] if name == "roll" else []), dims))


@case("cat", "stack")
def join(make: Maker, name: str) -> Call:
    shape = make.shape(2, 3)
    if name == "stack":
        return Call(aten.stack.default, ([make.floats(*shape), make.floats(*shape)], make.dim(len(shape) + 1)))
    dim = make.dim(len(shape))
    sizes = [[make.size() if place == dim % len(shape) else size for place, size in enumerate(shape)] for _ in range(3)]
    return Call(aten.cat.default, ([make.floats(*each) for each in sizes], dim))


@case("slice_backward", "select_backward", "slice_scatter", "unfold_backward")
def take_apart(make: Maker, name: str) -> Call:
    shape = make.shape(2, 3)
    dim = make.dim(len(shape))
    place, size = dim % len(shape), shape[dim]
    begin = make.random.randrange(size)
    part = (*shape[:place], size - begin, *shape[place + 1 :])
    if name == "select_backward":
        gradient = make.floats(*shape[:place], *shape[place + 1 :])
        return Call(aten.select_backward.default, (gradient, list(shape), dim, begin))
    if name == "unfold_backward":
        return Call(aten.unfold_backward.default, (make.floats(*part, begin + 1), list(shape), dim, begin + 1, 1))
    if name == "slice_backward":
        return Call(aten.slice_backward.default, (make.floats(*part), list(shape), dim, begin, size, 1))
    return Call(aten.slice_scatter.default, (make.floats(*shape), make.floats(*part), dim, begin, size))


@case("gather", "index_select", "index_add", "index_copy", "scatter", "scatter_add", "scatter_reduce")
def index(make: Maker, name: str) -> Call:
    shape = make.shape(2, 3)
    dim = make.dim(len(shape))
    place = dim % len(shape)
    longer = [size + (make.random.random() < 0.2) * make.size() for size in shape]  # where all is not alike, nor is cut
    longer[place] = 6
    x, of_dim = make.floats(*longer), make.integers(6, shape[dim])
    if name == "index_select":
        return Call(aten.index_select.default, (x, dim, of_dim))
    if name in ("index_add", "index_copy"):
        source = [*longer[:place], shape[dim], *longer[place + 1 :]]
        return Call(default(name), (x, dim, torch.arange(shape[dim]), make.floats(*source)))
    if name == "gather":
        return Call(aten.gather.default, (x, dim, make.integers(6, *shape)))
    picks = make.integers(6, *(shape if name != "scatter" else [1] * len(shape))).expand(shape).clone()
    if name == "scatter" and make.flag():
        return Call(aten.scatter.value, (x, dim, picks, 2.5))
    source = make.floats(*shape)
    if name == "scatter":  # several numbers for one place: any of them
        source = source.narrow(place, 0, 1).expand(shape).clone()
        return Call(aten.scatter.src, (x, dim, picks, source))
    if name == "scatter_reduce":
        return Call(aten.scatter_reduce.two, (x, dim, picks, source, make.one_of("sum", "amax", "mean")))
    return Call(aten.scatter_add.default, (x, dim, picks, source))


@case("constant_pad_nd")
def pad(make: Maker) -> Call:
    shape = make.shape(2, 4)
    pads = make.one_of([1, -1], [make.one_of(0, 0, 1) for _ in range(2 * make.random.randint(1, len(shape)))])
    return Call(aten.constant_pad_nd.default, (make.floats(*shape), pads, 0.5))


@case("tril", "triu")
def triangle(make: Maker, name: str) -> Call:
    return Call(default(name), (make.floats(*make.shape(2)), make.one_of(-1, 0, 1)))


@case("embedding")
def embedding(make: Maker) -> Call:
    return Call(aten.embedding.default, (make.floats(5, make.size()), make.integers(5, *make.shape(1, 3))))


@case("embedding_dense_backward")
def embedding_backward(make: Maker) -> Call:
    shape = make.shape(1, 3)
    arguments = (make.floats(*shape, make.size()), make.integers(5, *shape), 5, make.one_of(-1, 2), make.flag())
    return Call(aten.embedding_dense_backward.default, arguments)


LOSSES = "binary_cross_entropy binary_cross_entropy_with_logits huber_loss mse_loss smooth_l1_loss"


@case(*LOSSES.split(), *(f"{name}_backward" for name in LOSSES.split() if "logits" not in name))
def elementwise_loss(make: Maker, name: str) -> Call:
    shape = make.shape()
    reduction = make.one_of(0, 1, 2)
    gradient = [make.floats(*shape) if reduction == 0 else make.floats()] if "backward" in name else []
    x, target = make.floats(*shape).sigmoid(), make.floats(*shape).sigmoid()
    weights = [make.one_of(None, make.broadcast(shape)) for _ in range(2 if "logits" in name else 1)]
    between = weights if "entropy" in name else []
    after = [0.7] if "huber" in name or "smooth" in name else []
    return Call(default(name), (*gradient, x, target, *between, reduction, *after))


def sized(make: Maker, dims: int) -> list[int]:
    return [make.one_of(3, 4, 6) for _ in range(dims)]


def pixels_of(name: str) -> int:
    return next(count for count in (1, 2, 3) if f"{count}d" in name)


def images(make: Maker, pixels: int) -> Tensor:
    batch = (make.size(), make.size()) if make.random.random() < 0.8 else (make.size(),)
    return make.floats(*batch, *sized(make, pixels))


POOLS = "avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices"
ADAPTIVE = "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d"
PADS = "reflection_pad2d replication_pad2d"


@case(*POOLS.split(), *ADAPTIVE.split(), *PADS.split())
def pool(make: Maker, name: str) -> Call:
    pixels = pixels_of(name)
    numbers = {True: [2] * pixels, False: [1] * 2 * pixels}["pad" not in name]
    return Call(default(name), (images(make, pixels), numbers))


@case(*(f"{name}_backward" for name in [*POOLS.split(), *ADAPTIVE.split(), *PADS.split()]))
def pool_backward(make: Maker, name: str) -> Call:
    forward = pool(make, name.removesuffix("_backward"))
    results = forward.target(*forward.arguments)
    out, *indices = results if isinstance(results, tuple) else [results]
    x, numbers = forward.arguments
    pixels = pixels_of(name)
    settings = {
        "avg": [numbers, [], [0] * pixels, False, True, None],
        "max": [numbers, [], [0] * pixels, [1] * pixels, False],
        "ref": [numbers],
        "rep": [numbers],
    }.get(name[:3], [])
    return Call(default(name), (make.floats(*out.shape), x, *settings, *indices))


UPSAMPLED = """upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d
upsample_nearest3d upsample_trilinear3d"""


@case(*UPSAMPLED.split(), *(f"{name}_backward" for name in UPSAMPLED.split()))
def upsample(make: Maker, name: str) -> Call:
    pixels = pixels_of(name)
    shape, output = [make.size(), make.size(), *sized(make, pixels)], sized(make, pixels)
    corners = [] if "nearest" in name else [make.flag()]
    if "backward" not in name:
        return Call(default(name), (make.floats(*shape), output, *corners))
    return Call(default(name), (make.floats(*shape[:2], *output), output, shape, *corners))


@case("grid_sampler_2d", "grid_sampler_2d_backward")
def grid_sampler(make: Maker, name: str) -> Call:
    n, c, h, w = (make.size() for _ in range(4))
    x, grid = make.floats(n, c, 4, 3), make.floats(n, h, w, 2).tanh()
    if "backward" not in name:
        return Call(default(name), (x, grid, 0, 0, False))
    return Call(default(name), (make.floats(n, c, h, w), x, grid, 0, 0, False, [True, True]))


@case("empty", "full", "ones", "zeros", "new_empty", "new_full", "new_ones", "new_zeros")
def create(make: Maker, name: str) -> Call:
    packet = getattr(aten, name)
    target = packet.default if "default" in packet.overloads() else packet.memory_format
    like = (make.floats(2),) if "new" in name else ()
    value = (2.5,) if "full" in name else ()
    return Call(target, (*like, list(make.shape()), *value), {"dtype": torch.float64})


CASES |= {
    name: with_shape(function)
    for name, function in {
        "empty_like": lambda m, s: Call(aten.empty_like.default, (m.floats(*s),)),
        "_prelu_kernel": lambda m, s: Call(aten._prelu_kernel.default, (m.floats(*s), m.floats(*s))),
        "_prelu_kernel_backward": lambda m, s: Call(
            aten._prelu_kernel_backward.default, (m.floats(*s), m.floats(*s), m.floats(*s))
        ),
        "hardshrink_backward": lambda m, s: Call(aten.hardshrink_backward.default, (m.floats(*s), m.floats(*s), 0.5)),
        "log_sigmoid_backward": lambda m, s: Call(
            aten.log_sigmoid_backward.default, (m.floats(*s), m.floats(*s), m.positive(*s))
        ),
        "log_sigmoid_forward": lambda m, s: Call(aten.log_sigmoid_forward.default, (m.floats(*s),)),
        "logit_backward": lambda m, s: Call(aten.logit_backward.default, (m.floats(*s), m.floats(*s).sigmoid())),
        "softshrink_backward": lambda m, s: Call(aten.softshrink_backward.default, (m.floats(*s), m.floats(*s), 0.5)),
    }.items()
}


@case("_fused_adam_", "_fused_adamw_", "_fused_sgd_")
def fused_update(make: Maker, name: str) -> Call:
    shapes = [make.shape()] * make.one_of(1, 1, 2)
    lists = [[make.positive(*shape).contiguous() for shape in shapes] for _ in range(3 if "sgd" in name else 4)]
    rate: Any = 0.1 if make.flag() else torch.tensor(0.1)
    target = getattr(getattr(aten, name), "default" if isinstance(rate, float) else "tensor_lr")
    named = {"lr": rate, "weight_decay": 0.1, "maximize": False}
    if "sgd" in name:
        named |= {"momentum": 0.9, "dampening": 0.0, "nesterov": False, "is_first_step": False}
        return Call(target, tuple(lists), named)
    steps = [torch.tensor(3.0) for _ in shapes]
    named |= {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": False}
    return Call(target, (*lists, [], steps), named)


LISTS: dict[str, Callable[[Maker], Call]] = {}
"""Operators without a row: what they do with each tensor of a list, another does."""


def lists_of(*names: str) -> None:
    def call(make: Maker, name: str) -> Call:
        shapes = [make.shape()] * make.one_of(1, 1, 2)
        packet, after = getattr(aten, f"_foreach_{name}"), make.one_of([2.5], [])
        arguments = [[make.positive(*shape) for shape in shapes] for _ in range(1 if after else 2)]
        return Call(packet.Scalar if after else packet.List, (*arguments, *after))

    for name in names:
        LISTS[f"_foreach_{name}"] = lambda make, name=name: call(make, name)


lists_of("add", "add_", "div_", "mul", "mul_", "sub_")
