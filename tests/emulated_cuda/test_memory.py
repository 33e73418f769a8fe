"""The caching allocator, on a device that is not there, and memory that the host cannot touch.

LOWTIDE_FULL=1 compares the requests of transformers too.
"""

import os
import subprocess
import sys

import emulated_cuda
import pytest
import torch

MODELS = ["mlp", "convnet", *(["bert", "gpt2"] if os.environ.get("LOWTIDE_FULL") == "1" else [])]


def run(code, values=True, **environment):
    prelude = f"import sys; sys.path[:0] = {sys.path!r}\nimport torch\n"
    prelude += "import emulated_cuda\n" if values else "torch.backends.cudnn.enabled = False\n"
    return subprocess.run(
        [sys.executable, "-c", prelude + code], env={**os.environ, **environment}, capture_output=True, text=True
    )


def test_the_device_is_there():
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    assert torch.cuda.get_device_name() == "Emulated CUDA"


def test_statistics_and_snapshots():
    def requested(which):
        return torch.cuda.memory_stats()[f"requested_bytes.all.{which}"]

    before = requested("current")
    torch.cuda.reset_peak_memory_stats()
    x = torch.empty(1 << 20, device="cuda")
    assert requested("current") - before == requested("peak") - before == 4 << 20
    torch.cuda.memory._record_memory_history()
    y = torch.empty(1 << 18, device="cuda")
    snapshot = torch.cuda.memory._snapshot()
    torch.cuda.memory._record_memory_history(enabled=None)
    assert any(e["action"] == "alloc" and e["addr"] == y.data_ptr() for t in snapshot["device_traces"] for e in t)
    assert any(s["address"] <= x.data_ptr() < s["address"] + s["total_size"] for s in snapshot["segments"])


def test_workspaces_are_allocated():
    """CUDA's own kernels run: a product's workspace of cuBLAS is seen."""
    code = """
x = torch.rand(64, 64, device="cuda")
torch.cuda.reset_peak_memory_stats()
y = x @ x
print(torch.cuda.memory_allocated())
"""
    assert int(run(code).stdout) > 8 << 20


@pytest.mark.parametrize("model", MODELS)
def test_values_change_no_request(model):
    """The allocator's trace of a training is the same with and without values, to the byte."""
    code = f"""
import models
torch.cuda.memory._record_memory_history(context=None, stacks="python")
models.train(models.{model}, "cuda", dropout=0.1)
trace = torch.cuda.memory._snapshot()["device_traces"][0]
print([(e["action"], e["size"], e["addr"] - trace[0]["addr"]) for e in trace])
"""
    with_values, without = run(code), run(code, values=False)
    assert with_values.stdout.count("alloc") > 100, with_values.stderr
    assert with_values.stdout == without.stdout


def test_running_out_of_memory():
    with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate 30"):
        torch.empty(30 << 30, dtype=torch.uint8, device="cuda")
    code = "torch.empty(200 << 20, dtype=torch.uint8, device='cuda'); print(torch.cuda.mem_get_info()[1])"
    assert "OutOfMemoryError" in run(code, EMULATED_CUDA_MEMORY=str(100 << 20)).stderr
    assert run(code, EMULATED_CUDA_MEMORY=str(300 << 20)).stdout == f"{300 << 20}\n"


def test_expandable_segments():
    code = """
x = [torch.full((3 << 20,), float(i), device="cuda") for i in range(8)]
del x[::2]
torch.cuda.empty_cache()
y = torch.ones(20 << 20, device="cuda")
segments = torch.cuda.memory_snapshot()
print([t[0].item() for t in x], y.sum().item(), any(s["is_expandable"] for s in segments))
"""
    made = run(code, PYTORCH_ALLOC_CONF="expandable_segments:True")
    assert made.stdout == f"[1.0, 3.0, 5.0, 7.0] {float(20 << 20)} True\n", made.stderr


def test_a_host_read_of_device_memory_faults():
    read = "import ctypes; x = torch.ones(4{}); print(ctypes.string_at(x.data_ptr(), 16) == b'\\0\\0\\x80\\x3f' * 4)"
    assert run(read.format("")).stdout == "True\n"
    assert run(read.format(", device='cuda'")).returncode == -11


def test_copies_of_every_kind(every_order):
    a = torch.rand(30, 20)
    pinned = a.pin_memory()
    assert pinned.is_pinned() and not a.is_pinned()
    for source in (a, pinned):
        for non_blocking in (False, True):
            x = source.to("cuda", non_blocking=non_blocking)
            assert torch.equal(x.to("cpu"), a)
            assert torch.equal(x.t().to("cpu"), a.t())
            assert torch.equal(x.to("cpu", torch.float64), a.double())
            back = torch.empty_like(pinned, pin_memory=True)
            back.copy_(x, non_blocking=non_blocking)
            torch.cuda.current_stream().synchronize()
            assert torch.equal(back, a)
            assert torch.equal(x[1:7, 3].clone().cpu(), a[1:7, 3])


def test_freed_memory_is_poisoned():
    x = torch.ones(1000, device="cuda")
    address = x.data_ptr()
    assert emulated_cuda.device_bytes(x)[:4] == b"\0\0\x80\x3f"
    del x
    y = torch.empty(1000, device="cuda")
    assert y.data_ptr() == address and bool(y.isnan().all())


def test_large_memory_costs_the_host_nothing_before_it_is_used():
    code = """
import resource
x = torch.empty(20 << 30, dtype=torch.uint8, device="cuda")
x[:1000].fill_(1)
del x
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 20)
"""
    assert int(run(code).stdout) < 4


def test_a_missing_function_aborts_with_its_name():
    made = run("torch.backends.cudnn.enabled = True\ntorch.nn.Conv2d(3, 3, 3).cuda()(torch.rand(1, 3, 8, 8).cuda())")
    assert made.returncode == -6 and "cudnnCreate is not written" in made.stderr


def test_a_kernel_of_no_operator_aborts():
    code = """
import ctypes
from emulated_cuda import _runtime
_runtime.cudaLaunchKernel(None, *[0] * 8)
"""
    made = run(code)
    assert made.returncode == -6 and "is launched by no operator" in made.stderr
