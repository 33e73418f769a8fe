"""The end of a program: nothing of Lowtide's is left behind, and nothing is said about it."""

import subprocess
import sys

# Each holder is a way from the model to its compiled step. Programs hold tensors where no garbage collector sees them,
# so that such a circle is there to the end.
HOLDERS = """
import builtins, sys
import torch, lowtide

lowtide._core.set_leak_warnings(True)
torch.set_num_threads(1)

def train(hold):
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    compiled = lowtide.compile(step, model=model, optimizer=optimizer)
    compiled(torch.randn(4, 8))
    assert compiled.stats()["captures"] == 1
    hold(model, compiled)

kept = []
train(lambda model, step: setattr(model.weight, "step", step))
train(lambda model, step: model.weight.register_hook(lambda gradient: step and None))
train(lambda model, step: model.weight.register_post_accumulate_grad_hook(lambda weight: step))
train(lambda model, step: model.register_forward_hook(lambda *of: step and None))
train(lambda model, step: kept.append((model, step)))
train(lambda model, step: setattr(builtins, "step", step))

def of_graph(model, step):
    loss = model(torch.randn(4, 8)).sum()
    loss.grad_fn.metadata["step"] = step
    kept.append(loss)

train(of_graph)
"""


def test_steps_that_tensors_refer_to_are_let_go_of() -> None:
    done = subprocess.run([sys.executable, "-c", HOLDERS + "sys.exit(3)"], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (3, "")


def test_what_the_user_holds_to_the_very_end_is_not_complained_about() -> None:
    script = """
import threading
from lowtide import _core
held = _core.GraphBuilder().build()
threading.Thread(target=lambda graph: threading.Event().wait(), args=(held,), daemon=True).start()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
