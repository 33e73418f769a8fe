"""Operators as on a GPU: which ones are captured, what that changes, and that nothing of it stays."""

import threading
from collections import Counter
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import lowtide
from lowtide import _core
from lowtide._capture import weightless
from lowtide._lower.capture import capture_both
from lowtide._lower.gpu_operators import gpu_operators
from lowtide._lower.gpus import DEVICES

EFFICIENT = "aten._scaled_dot_product_efficient_attention"
FLASH = "aten._scaled_dot_product_flash_attention"
L4, A100 = DEVICES["L4"], DEVICES["A100"]
LAYERS, HEADS, BATCH, LENGTH, WIDTH = 2, 4, 8, 256, 128
SCORES = 4 * BATCH * HEADS * LENGTH * LENGTH


def gpt2(transformers) -> nn.Module:
    sizes = {"n_layer": LAYERS, "n_head": HEADS, "n_embd": WIDTH, "n_positions": LENGTH, "vocab_size": 500}
    config = transformers.GPT2Config(**sizes, use_cache=False, attn_implementation="sdpa")
    model = transformers.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"
    return model


def bert(transformers) -> nn.Module:
    sizes = {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "hidden_size": WIDTH, "intermediate_size": 512}
    config = transformers.BertConfig(**sizes, vocab_size=500, attn_implementation="sdpa")
    model = transformers.BertForMaskedLM(config)
    model.loss_type = "ForMaskedLM"
    return model


def step_of(model: nn.Module, optimizer: torch.optim.Optimizer):
    def step(tokens: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def names_of(graph: _core.Graph) -> Counter[str]:
    return Counter(graph.op_name(op) for op in range(graph.num_ops))


@pytest.mark.parametrize("make", [gpt2, bert])
def test_transformers(make, tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    with weightless.building():
        model = make(transformers).train()
        tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long)
    optimizer = torch.optim.AdamW(model.parameters())
    peaks = {}
    for flavour, operators in (("cpu", nullcontext()), ("gpu", gpu_operators([optimizer], L4))):
        with operators:
            plain, planned, _ = capture_both(
                step_of(model, optimizer), model, [optimizer], (tokens,), L4, keep_grads=False
            )
        names = names_of(planned)
        fused = (names[f"{EFFICIENT}.default"], names[f"{EFFICIENT}_backward.default"])
        assert fused == ((LAYERS, LAYERS) if flavour == "gpu" else (0, 0))
        dropouts = 2 * LAYERS + 1  # two in each layer beside attention's own, one behind the embedding
        assert names["aten.native_dropout.default"] == (dropouts if flavour == "gpu" else 0)
        assert names["aten.bernoulli_.float"] == (0 if flavour == "gpu" else dropouts + LAYERS)
        parameters = len(list(model.parameters()))
        assert names["aten._foreach_sqrt.default"] == (parameters if flavour == "gpu" else 0)
        plan = lowtide.plan(planned)
        lowtide.verify(planned, plan)
        planned.save(tmp_path / "graph.json")
        assert names_of(lowtide.Graph.load(tmp_path / "graph.json")) == names
        peaks[flavour] = _core.run_eager(plain).peak_live_bytes, plan.resident_bytes + plan.arena_bytes
    for cpu, gpu in zip(peaks["cpu"], peaks["gpu"], strict=True):
        # Scores after softmax, their mask and their product are held for each layer, or none of them.
        assert cpu - gpu == pytest.approx(3 * LAYERS * SCORES, rel=0.1)
    assert optimizer.param_groups[0]["foreach"] is None


class Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "aten":
            self.seen.append(str(func).removesuffix(".default"))
        return func(*args, **(kwargs or {}))


def asked_for(function) -> list[str]:
    with FakeTensorMode(), Names() as names:
        function()
    return names.seen


half, single = torch.bfloat16, torch.float32


@pytest.mark.parametrize(
    ("shape", "dtype", "options", "fused"),
    [
        ((2, 4, 16, 64), single, {}, EFFICIENT),
        ((2, 4, 16, 64), single, {"is_causal": True, "dropout_p": 0.1}, EFFICIENT),
        ((2, 4, 16, 64), half, {"is_causal": True}, FLASH),
        ((2, 4, 16, 20), half, {}, FLASH),
        ((2, 4, 16, 264), half, {}, EFFICIENT),  # flash has heads of up to 256
        ((2, 4, 16, 200), half, {}, EFFICIENT),  # and cannot be differentiated on an L4 if they are as wide as this
        ((2, 4, 16, 256), half, {}, FLASH),
        ((2, 4, 16, 256), half, {"dropout_p": 0.1}, EFFICIENT),
        ((2, 4, 16, 6), single, {}, None),  # 24 bytes are no whole vectors
        ((2, 4, 16, 64), torch.float64, {}, None),
        ((4, 16, 64), single, {}, None),
    ],
)
def test_attention(shape, dtype, options, fused) -> None:
    def attend() -> None:
        x = torch.empty(shape, dtype=dtype, requires_grad=True)
        result = F.scaled_dot_product_attention(x, x, x, **options)
        assert result.shape == x.shape and result.dtype == dtype
        result.sum().backward()
        assert x.grad is not None and x.grad.shape == x.shape

    with gpu_operators([], L4):
        seen = asked_for(attend)
    taken = {name for name in seen if "scaled_dot_product" in name}
    assert taken == ({fused, f"{fused}_backward"} if fused else set())
    assert ("aten.bmm" in seen) is (fused is None)


def test_wide_heads_on_other_devices_and_without_gradients() -> None:
    def attend(*, requires_grad: bool) -> None:
        x = torch.empty((2, 4, 16, 200), dtype=half, requires_grad=requires_grad)
        F.scaled_dot_product_attention(x, x, x)

    with gpu_operators([], A100):
        assert FLASH in asked_for(lambda: attend(requires_grad=True))
    with gpu_operators([], L4):
        assert FLASH in asked_for(lambda: attend(requires_grad=False))


def attend_with(mask: torch.Tensor) -> None:
    x = torch.empty(2, 4, mask.shape[-2], mask.shape[-1], 64, dtype=half)
    F.scaled_dot_product_attention(x[:, :, :, 0], x[:, :, 0], x[:, :, 0], attn_mask=mask)


@pytest.mark.parametrize("mask_dtype", [torch.bool, half])
def test_attention_with_a_mask(mask_dtype) -> None:
    def padded() -> None:
        attend_with(torch.ones(2, 1, 20, 20, dtype=mask_dtype))

    def sliced() -> None:
        attend_with(torch.ones(20, 20, dtype=mask_dtype)[:16, :16])

    def broadcast() -> None:
        attend_with(torch.ones(16, 1, dtype=mask_dtype).expand(16, 16))

    is_bool = mask_dtype == torch.bool
    with gpu_operators([], L4):
        seen = {function: Counter(asked_for(function)) for function in (padded, sliced, broadcast)}
    for function, names in seen.items():
        assert FLASH not in names and names[EFFICIENT] == (function is not broadcast)
        assert names["aten.where.self"] == is_bool, "it is added to scores"
    assert seen[padded]["aten.constant_pad_nd"] == 1
    assert seen[sliced]["aten.clone"] == (not is_bool), "the other one is a copy already"
    assert seen[broadcast]["aten.bmm"] == 2


def test_heads_that_share_keys() -> None:
    def attend() -> None:
        query, key = torch.empty(2, 8, 16, 64, dtype=half), torch.empty(2, 2, 16, 64, dtype=half)
        F.scaled_dot_product_attention(query, key, key, enable_gqa=True)

    with gpu_operators([], L4):
        assert FLASH in asked_for(attend)


def test_kernels_that_are_turned_off() -> None:
    def attend() -> None:
        x = torch.empty(2, 4, 16, 64, dtype=half)
        F.scaled_dot_product_attention(x, x, x)

    with gpu_operators([], L4), nn.attention.sdpa_kernel(nn.attention.SDPBackend.EFFICIENT_ATTENTION):
        assert EFFICIENT in asked_for(attend)
    with gpu_operators([], L4), nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        assert "aten.bmm" in asked_for(attend)


def test_a_step_with_flash_attention_is_planned() -> None:
    model = nn.MultiheadAttention(64, 4, dropout=0.1, dtype=half, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x, x, x, need_weights=False)[0].sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    with gpu_operators([optimizer], L4):
        graphs = capture_both(step, model, [optimizer], (torch.empty(2, 16, 64, dtype=half),), L4, keep_grads=False)
    for graph in (graphs.plain, graphs.planned):
        assert names_of(graph)[f"{FLASH}_backward.default"] == 1
        lowtide.verify(graph, lowtide.plan(graph))


def test_what_is_computed_meanwhile_is_as_ever() -> None:
    x = torch.randn(2, 4, 16, 64)

    def compute() -> list[torch.Tensor]:
        torch.manual_seed(0)
        return [F.dropout(x, 0.3), F.scaled_dot_product_attention(x, x, x, dropout_p=0.1)]

    wanted = compute()
    found: list[torch.Tensor] = []
    with gpu_operators([], L4), FakeTensorMode():
        thread = threading.Thread(target=lambda: found.extend(compute()))
        thread.start()
        thread.join()
    with gpu_operators([], L4):
        found += compute()
    assert all(map(torch.equal, [*wanted, *wanted], found)) and len(found) == 4
    assert "aten.native_dropout" not in asked_for(lambda: F.dropout(torch.empty(3), 0.3))


@pytest.mark.parametrize(
    ("options", "together"),
    [
        ({}, True),
        ({"foreach": False}, False),
        ({"fused": False}, False),
        ({"differentiable": True}, False),
        ({"lr": torch.tensor(0.1)}, False),
        ({"lr": torch.tensor(0.1), "capturable": True}, True),
    ],
)
def test_lists_of_parameters_unless_something_is_said(options: dict[str, object], together: bool) -> None:
    optimizer = torch.optim.Adam(nn.Linear(2, 2).parameters(), **options)
    before = dict(optimizer.param_groups[0])
    with gpu_operators([optimizer], L4):
        assert (optimizer.param_groups[0]["foreach"] is True) is together
    assert optimizer.param_groups[0]["foreach"] is before["foreach"]
