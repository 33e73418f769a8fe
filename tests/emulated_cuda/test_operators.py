"""Operators however they are called, and the state of random ones."""

import pytest
import torch
import torch.nn.functional as F

CUDA_KEY = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA)


def test_redispatch_to_the_key_is_computed(every_order):
    """As an executor calls operators: below autograd, straight to the key."""
    a, b = torch.rand(5, 6), torch.rand(6, 7)
    x, y = a.cuda(), b.cuda()
    made = torch.ops.aten.mm.default.redispatch(CUDA_KEY, x, y)
    assert torch.equal(made.cpu(), a @ b)
    out = torch.empty(5, 7, device="cuda")
    torch.ops.aten.mm.out.redispatch(CUDA_KEY, x, y, out=out)
    assert torch.equal(out.cpu(), a @ b)
    torch.ops.aten.add_.Tensor.redispatch(CUDA_KEY, x, x)
    assert torch.equal(x.cpu(), a + a)


def test_views_write_the_same_memory(every_order):
    a = torch.arange(24.0).view(4, 6)
    x = a.cuda()
    for t in (a, x):
        t.t()[1:3].mul_(3)
        t[2].copy_(t[0])
        t.view(-1)[::5] = 7
        torch.add(t[0], t[1], out=t[3])
    assert torch.equal(x.cpu(), a)
    resized = torch.empty(0, device="cuda")
    torch.mul(x, 2, out=resized)
    assert torch.equal(resized.cpu(), a * 2)


def test_lists_are_computed(every_order):
    a = [torch.rand(3), torch.rand(4, 2)]
    x = [t.cuda() for t in a]
    made = torch._foreach_mul(x, 2.0)
    torch._foreach_add_(x, made)
    assert all(torch.equal(p.cpu(), q * 3) for p, q in zip(x, a, strict=True))
    assert torch.equal(torch.stack(torch._foreach_norm(x)).cpu(), torch.stack(torch._foreach_norm([t * 3 for t in a])))


INDEX = torch.randint(8, (6, 8), generator=torch.Generator().manual_seed(1))
FUNCTIONS = {
    "sort": lambda x: x.sort(dim=1, descending=True).values,
    "topk": lambda x: x.topk(3).values,
    "cumsum": lambda x: x.cumsum(0),
    "gather": lambda x: x.gather(1, INDEX.to(x.device)),
    "scatter_add": lambda x: torch.zeros_like(x).scatter_add(1, INDEX.to(x.device), x),
    "index": lambda x: x[:, INDEX[0].to(x.device)],
    "index_of_the_host": lambda x: x[INDEX[0] % 6],
    "embedding": lambda x: F.embedding(INDEX.to(x.device) % 6, x),
    "softmax": lambda x: x.softmax(1) * x.log_softmax(0),
    "reductions": lambda x: x.var() + x.std(0) + x.norm() + x.prod(1).sum() + x.amax(0) + x.logsumexp(1).mean(),
    "where": lambda x: torch.where(x > 0.5, x, -x).masked_fill(x > 0.8, 2).tril(),
    "shapes": lambda x: torch.cat([x.roll(1, 0), x.flip(1), x.repeat(2, 1)]).unfold(1, 3, 2),
    "special": lambda x: x.erfinv() + x.lgamma() + x.exp2() + x.sinc() + F.logsigmoid(x) + F.mish(x),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x) + torch.cdist(x, x.flip(0)),
    "products": lambda x: torch.baddbmm(x[None], x[None, :, :6], x[None]) + torch.outer(x[0, :6], x[1]),
    "conv": lambda x: F.conv_transpose2d(F.conv2d(x[None, None], x[None, None, :3, :3]), x[None, None, :2, :2]),
    "conv3d": lambda x: F.conv3d(x.view(1, 1, 2, 4, 6), x.view(1, 1, 2, 4, 6)[..., :2, :2]),
    "pooling": lambda x: F.avg_pool1d(x, 2) + F.adaptive_max_pool1d(x, 4) + F.lp_pool1d(x, 2, 2),
    "resampling": lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear"),
    "padding": lambda x: F.pad(x[None], (1, 2), mode="reflect"),
    "losses": lambda x: (
        F.smooth_l1_loss(x, x.flip(0)) + F.kl_div(x, x, reduction="sum") + F.cross_entropy(x, INDEX[:, 0].to(x.device))
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_and_gradients_equal_the_cpu(name, every_order):
    a = torch.rand(6, 8, generator=torch.Generator().manual_seed(2)) * 0.9 + 0.05
    made = []
    for device in ("cpu", "cuda"):
        x = a.to(device).detach().requires_grad_()
        y = FUNCTIONS[name](x)
        (y * y).sum().backward()
        made.append((y.detach().cpu(), x.grad.cpu()))
    assert torch.equal(made[0][0], made[1][0])
    assert torch.equal(made[0][1], made[1][1])


def test_results_sized_by_values(every_order):
    a = torch.rand(50)
    x = a.cuda()
    assert torch.equal(torch.nonzero(x > 0.5).cpu(), torch.nonzero(a > 0.5))
    assert torch.equal(x[x > 0.5].cpu(), a[a > 0.5])
    assert torch.equal(torch.unique((x * 5).int()).cpu(), torch.unique((a * 5).int()))
    x[x > 0.5] = -1
    a[a > 0.5] = -1
    assert torch.equal(x.cpu(), a)
    assert x.sum().item() == a.sum().item()
    assert torch.equal(x, a.cuda()) and not torch.equal(x, (a + 1).cuda())


def test_redrawing_with_the_same_state_gives_the_same_numbers(every_order):
    x = torch.ones(1000, device="cuda")
    state = torch.cuda.get_rng_state()
    first, second = (torch.nn.functional.dropout(x, 0.3) for _ in range(2))
    torch.cuda.set_rng_state(state)
    assert torch.equal(first, torch.nn.functional.dropout(x, 0.3))
    assert not torch.equal(first, second)
    for draw in (torch.rand_like, torch.randn_like, torch.Tensor.bernoulli, torch.Tensor.exponential_):
        state = torch.cuda.get_rng_state()
        once, again = draw(x), draw(x)
        torch.cuda.set_rng_state(state)
        assert torch.equal(once, draw(x)), draw
        assert torch.equal(again, draw(x)), draw


def test_own_generators_and_the_one_of_the_cpu():
    torch.manual_seed(3)
    on_cpu = torch.rand(4)
    torch.manual_seed(3)
    generator = torch.Generator("cuda").manual_seed(8)
    x = torch.randn(100, device="cuda", generator=generator)
    torch.nn.functional.dropout(x, 0.5)
    assert torch.equal(torch.rand(4), on_cpu)  # draws of the device leave it alone
    assert torch.equal(x, torch.randn(100, device="cuda", generator=torch.Generator("cuda").manual_seed(8)))
    assert abs(x.mean().item()) < 0.4 and 0.7 < x.std().item() < 1.3


def test_modes_of_the_caller_do_not_reach_the_values(every_order):
    with torch.inference_mode():
        x = torch.rand(3, 3, device="cuda")
        y = x @ x
    with torch.autocast("cpu", torch.bfloat16):
        z = (x @ x).cpu()
    assert torch.equal(y.cpu(), z)
