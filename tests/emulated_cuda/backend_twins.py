"""A model compiled with `backend="lowtide"` on emulated CUDA, and its eager twin there: what both do is compared."""

import copy
import gc

import torch

from lowtide._backend import entry
from lowtide._backend.region import Region


def left(model, given):
    """All that there is now, on the CPU."""
    gradients = [parameter.grad for parameter in model.parameters()]
    tensors = [*given, *model.parameters(), *model.buffers(), *gradients, torch.cuda.get_rng_state()]
    return [tensor.detach().cpu() if tensor is not None else None for tensor in tensors]


def same(one, other):
    """Bit for bit, NaN included."""
    if one is None or other is None:
        return one is other
    as_bytes = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return one.dtype == other.dtype and one.shape == other.shape and torch.equal(*as_bytes)


def close_all():
    """Gives the memory of all regions back: PyTorch keeps compiled functions here and there, after a reset too."""
    torch._dynamo.reset()
    gc.collect()
    for region in [found for found in gc.get_objects() if type(found) is Region]:
        for sized in region.sizes():
            for planned in [*sized.retired, *([sized.planned] if sized.planned else [])]:
                for program in planned.programs:
                    program.runtime.close()


class Twins:
    """`make` gives a model, a batch and the loss of both."""

    backend = staticmethod(entry.lowtide)  # by the function: its name is the wheel's

    def __init__(self, make, dynamic=None, **options):
        torch._dynamo.reset()
        gc.collect()
        torch.manual_seed(0)
        model, batch, self.loss_of = make()
        self.models = [model.train().cuda(), copy.deepcopy(model).cuda()]
        self.batch = [tensor.cuda() for tensor in batch]
        self.given = {"on_unsupported": "raise", **options}
        compiled = torch.compile(self.models[1], backend=self.backend, options=self.given, dynamic=dynamic)
        self.calls = [self.models[0], compiled]
        self.optimizers = [torch.optim.SGD(model.parameters(), 0.1, momentum=0.9) for model in self.models]
        self.seed = 0

    def both(self, do):
        """Does it in eager and compiled, from the same random state: every bit must be the same."""
        self.seed += 1
        found = []
        for model, call, optimizer in zip(self.models, self.calls, self.optimizers, strict=True):
            torch.manual_seed(self.seed)
            given = do(call, optimizer)
            found.append(left(model, given))
        assert len(found[0]) == len(found[1]) and all(map(same, *found))

    def train(self, times=1):
        """Some steps of both."""
        for _ in range(times):
            self.both(self.step)

    def step(self, call, optimizer):
        """A step of training."""
        optimizer.zero_grad()
        loss = self.loss_of(call, *self.batch)
        loss.backward()
        optimizer.step()
        return [loss]

    def regions(self):
        """Those of the compiled one."""
        return list(entry._together[id(self.given)].regions)

    def plans(self):
        """Theirs, for all forms of inputs."""
        return [sized.planned for region in self.regions() for sized in region.sizes() if sized.planned is not None]

    def were_planned(self):
        """Whether all passes were, with all that they asked for."""
        regions = self.regions()
        return all(r.planned_passes and not r.eager_passes and not r.misses for r in regions) and bool(regions)
