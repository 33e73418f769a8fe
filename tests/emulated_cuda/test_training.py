"""Eager training: the numbers of the CPU bit for bit where nothing is random, repeatable where something is."""

import functools

import models
import pytest
import torch

MODELS = {"mlp": models.mlp, "convnet": models.convnet, "bert": models.bert, "gpt2": models.gpt2}
OPTIMIZERS = {
    "adamw": torch.optim.AdamW,
    "adamw_foreach": functools.partial(torch.optim.AdamW, foreach=True),
    "adamw_fused": functools.partial(torch.optim.AdamW, fused=True),
    "sgd": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9),
}


def same(a, b):
    return a[0] == b[0] and all(map(torch.equal, a[1], b[1]))


@pytest.mark.parametrize("name", MODELS)
def test_training_equals_the_cpu(name, every_order):
    assert same(models.train(MODELS[name], "cpu"), models.train(MODELS[name], "cuda"))


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers_equal_the_cpu(optimizer):
    on_cpu, on_cuda = (models.train(models.convnet, d, OPTIMIZERS[optimizer]) for d in ("cpu", "cuda"))
    assert same(on_cpu, on_cuda)


@pytest.mark.parametrize("name", MODELS)
def test_dropout_repeats_with_its_seed(name, every_order):
    first = models.train(MODELS[name], "cuda", dropout=0.2)
    assert same(first, models.train(MODELS[name], "cuda", dropout=0.2))
    assert first[0] != models.train(MODELS[name], "cuda")[0]


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_fused_attention_is_near_the_cpu(name):
    """The CPU's fused attention adds in another order."""
    on_cpu, on_cuda = (models.train(MODELS[name], d, attention="sdpa") for d in ("cpu", "cuda"))
    assert on_cuda[0] == pytest.approx(on_cpu[0], rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["efficient", "flash"])
def test_fused_attention_draws_dropout_again_in_backward(dtype):
    """With the value matrix as identity the output shows what was dropped, and so does the gradient of the values."""
    torch.cuda.manual_seed(5)
    q, k = (torch.randn(1, 2, 32, 32, device="cuda", dtype=dtype) for _ in range(2))
    v = torch.eye(32, device="cuda", dtype=dtype).expand(1, 2, 32, 32).clone().requires_grad_()
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    assert "Efficient" in str(out.grad_fn) or "Flash" in str(out.grad_fn)
    dropped = out == 0
    assert 0.4 < dropped.float().mean().item() < 0.6
    row = torch.zeros_like(out)
    row[..., 3, :] = 1
    out.backward(row)
    assert torch.equal(v.grad[..., 0] == 0, dropped[..., 3, :])


@pytest.mark.parametrize("name", MODELS)
def test_low_precision_trains(name):
    on_cpu, on_cuda = (models.train(MODELS[name], d, dtype=torch.bfloat16)[0] for d in ("cpu", "cuda"))
    assert on_cuda == pytest.approx(on_cpu, rel=0.05)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
@pytest.mark.parametrize("bias", [True, False])
def test_recurrent_cells_are_near_the_cpu(kind, bias):
    """The CPU adds biases in another order."""
    torch.manual_seed(0)
    model, x = kind(8, 16, num_layers=2, bias=bias), torch.randn(5, 3, 8)
    made = {}
    for device in ("cpu", "cuda"):
        model.to(device).zero_grad(set_to_none=True)
        out, _ = model(x.to(device))
        out.square().sum().backward()
        made[device] = [out.detach().cpu(), *(p.grad.cpu().clone() for p in model.parameters())]
    for a, b in zip(made["cpu"], made["cuda"], strict=True):
        torch.testing.assert_close(a, b)


def test_autocast_with_a_scaler_trains():
    torch.manual_seed(0)
    model, (x, y), loss_of = models.mlp()
    model.cuda()
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = loss_of(model, x.cuda(), y.cuda())
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] < 3
