"""The training steps that MAGIS is evaluated on (ASPLOS 2024, Table 2), as graphs whose operators may run in parts.

    graph = workloads.graph_of(workloads.named("resnet50"), "A100")
    python -m bench.fission.workloads DIR [--small] [--device NAME ...] [NAME ...]

The command writes each as a graph file and prints a row: how large it is, how long it takes by the device's rooflines
(`lowtide._lower.rooflines`), which operators cannot run in parts along the batch, in how many parts the others can, and
how much longer the step takes if all of them run in 4 and in 16 (`lowtide._lower.part_rooflines`).

As in that paper's released code, the loss is the sum of (y - target)^2, nothing is dropped out, SGD has no momentum,
attention is written out and language models end with their last hidden state, without a head for the vocabulary. TF32
where tensors are float32. Otherwise models are as their authors describe them: the released code leaves out batch
normalization and embeddings and takes ReLU in transformers. `resnet50_plain` is ResNet-50 without batch normalization.
Two more are for the speed of searches: a GPT-2 of some 268 operators, whose weights are not updated, and BERT-large.

`--small` are the same models, narrow and short, for tests.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import nn

import lowtide
from bench import zoo
from bench.fission.batch_axes import BatchAxes
from bench.lib.markdown import header, line
from bench.lib.progress import each
from bench.zoo.btlm import BTLM, EMBEDDING_SCALE
from bench.zoo.graphs import MIB, OPTIMIZERS, zeroed_after
from bench.zoo.tasks import Batch, train_step
from lowtide._base.graph_file import GraphFile

DEVICES = ("A100", "RTX 3090")
SMALL_BATCH = 8


class HiddenBTLM(BTLM):
    """Without the product by the embedding in the end."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) * EMBEDDING_SCALE
        bias = self._attention_bias(tokens.shape[1])
        for block in self.blocks:
            x = block(x, bias)
        y: torch.Tensor = self.norm(x)
        return y


def without_norms(model: nn.Module) -> nn.Module:
    """The same model, its batch normalizations left out."""
    for module in model.modules():
        for name, child in module.named_children():
            if isinstance(child, nn.BatchNorm2d):
                setattr(module, name, nn.Identity())
    return model


def _whole(model: nn.Module) -> nn.Module:
    return model


@dataclass(frozen=True)
class Workload:
    """A model of the zoo, and how it is trained. `extent` is the image's side or the sequence's length."""

    name: str
    row: str  # of the zoo
    batch: int
    extent: int
    changes: Mapping[str, Any] = field(default_factory=dict)  # from the row's full size
    trained: Callable[[nn.Module], nn.Module] = _whole  # which part of the model
    make: Callable[..., nn.Module] | None = None  # instead of the row's
    dtype: torch.dtype = torch.float32
    vocabulary: int | None = None  # instead of the row's
    is_updated: bool = True  # otherwise the step ends with gradients
    is_given_mask: bool = False  # of what attention may see; otherwise transformers makes one for each sequence


_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_FEW = {"n_embd": 256, "n_layer": 4, "n_head": 4}
_BERT, _GPT = attrgetter("bert"), attrgetter("transformer")

WORKLOADS = (
    Workload("resnet50", "resnet50", 64, 224),
    Workload("resnet50_plain", "resnet50", 64, 224, trained=without_norms),
    Workload("bert_base", "bert_base", 32, 512, trained=_BERT),
    Workload("vit_base", "vit_base", 64, 224),
    Workload("unet", "unet", 32, 256),
    Workload("unet_plus_plus", "unet_plus_plus", 16, 256),
    Workload("gpt_neo_1.3b", "gpt_neo_1.3b", 32, 512, trained=_GPT, dtype=torch.bfloat16, is_given_mask=True),
    Workload("btlm_3b", "btlm_3b", 32, 512, make=HiddenBTLM, dtype=torch.bfloat16),
    Workload("gpt_268", "gpt2", 32, 256, _FEW, _GPT, vocabulary=1024, is_updated=False, is_given_mask=True),
    Workload("bert_large", "bert_base", 64, 512, _LARGE, _BERT),
)


def named(name: str) -> Workload:
    return next(workload for workload in WORKLOADS if workload.name == name)


def graph_of(workload: Workload, device: str | None, *, small: bool = False, times: int = 1) -> lowtide.Graph:
    """Of one step, at `times` its batch; with axes if there is a device."""
    model, batch = _made(workload, small=small, times=times)
    optimizer = OPTIMIZERS["sgd"](model.parameters())

    def gradients(batch: Batch) -> torch.Tensor:
        found = loss(model, batch)
        found.backward()  # type: ignore[no-untyped-call]
        return found.detach()

    with tf32():
        return lowtide.capture(
            zeroed_after(train_step(loss)(model, optimizer), optimizer) if workload.is_updated else gradients,
            model=model,
            optimizer=optimizer if workload.is_updated else None,
            example=(batch,),
            device=device,
            least_part_bytes=None if device is None else 0,
        )


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """How far all that the model says is from the targets."""
    ys = outputs(_said(model, batch))
    losses = [((y - batch[f"target{index}"]) ** 2).sum() for index, y in enumerate(ys)]
    return losses[0] if len(losses) == 1 else torch.stack(losses).sum()


def _said(model: nn.Module, batch: Batch) -> Any:
    masks = {"attention_mask": batch["mask"]} if "mask" in batch else {}
    return model(batch["x"], **masks)


def outputs(said: Any) -> list[torch.Tensor]:
    """Most models give one tensor, U-Net++ several masks."""
    if isinstance(said, (list, torch.Tensor)):
        return list(said) if isinstance(said, list) else [said]
    return [said.logits if hasattr(said, "logits") else said.last_hidden_state]


@contextlib.contextmanager
def tf32() -> Iterator[None]:
    """Products of float32 as PyTorch would compute them on a GPU when it is told that TF32 will do."""
    settings: Any = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)  # type: ignore[attr-defined]
    before = [setting.fp32_precision for setting in settings]
    try:
        for setting in settings:
            setting.fp32_precision = "tf32"
        yield
    finally:
        for setting, precision in zip(settings, before, strict=True):
            setting.fp32_precision = precision


def _made(workload: Workload, *, small: bool, times: int) -> tuple[nn.Module, Batch]:
    """The model and a batch, without content."""
    row = zoo.row_of(workload.row)
    size = row.small if small else row.full
    classes = size.classes if small else workload.vocabulary or size.classes
    options: dict[str, Any] = {**size.changes, **({} if small else workload.changes), "classes": classes}
    if len(row.attentions) > 1:
        options["attention"] = "eager"
    extent = row.small.extent if small else workload.extent
    count = times * (SMALL_BATCH if small else workload.batch)
    with zoo._no_content():
        with zoo._default(workload.dtype):
            model = workload.trained((workload.make or row.make)(**options)).train()
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        example = row.task.make_batch(torch.Generator(), count, extent, classes or 0)
        batch = {"x": example["input_ids"] if "input_ids" in example else example["x"]}
        if workload.is_given_mask:
            batch["mask"] = torch.empty(1, 1, extent, extent, dtype=workload.dtype)
        with torch.no_grad():
            said = outputs(_said(model, batch))
        return model, batch | {f"target{index}": torch.empty_like(y) for index, y in enumerate(said)}


COLUMNS = (
    "step", "device", "ops", "operands MiB", "resident", "eager", "step ms", "with axes", "along the batch", "whole",
    "parts", "in 4", "in 16", "seconds",
)  # fmt: skip


def file_name(workload: Workload, device: str) -> str:
    return f"{workload.name}-{device.replace(' ', '').lower()}.json.zst"


def write(workload: Workload, device: str, folder: Path, *, small: bool) -> list[object]:
    """The graph file, and a row of the table."""
    begin = time.perf_counter()
    graph = graph_of(workload, device, small=small)
    graph.save(folder / file_name(workload, device))
    seconds = time.perf_counter() - begin
    file = GraphFile(graph)
    axes = BatchAxes(graph, file, graph_of(workload, None, small=small, times=2))
    step_ns = sum(op.get("time_ns", 0) for op in file.ops)
    sizes = (axes.operand_bytes, graph.resident_bytes, graph.eager_bytes)
    shares = (axes.bytes_with_axes, axes.bytes_along_batch)
    return [
        workload.name, device, graph.num_ops, *(f"{size / MIB:.1f}" for size in sizes), f"{step_ns / 1e6:.1f}",
        *(f"{share / axes.operand_bytes:.1%}" for share in shares),
        ", ".join(f"{name} {count}" for name, count in axes.whole().items()) or "none",
        " ".join(map(str, axes.extra_ns)),
        *(f"{axes.extra_ns[count] / step_ns:+.1%}" if count in axes.extra_ns else "-" for count in (4, 16)),
        f"{seconds:.0f}",
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes what is asked for."""
    parser = argparse.ArgumentParser(
        "bench.fission.workloads", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [workload.name for workload in WORKLOADS]
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(names)}; all if none")
    parser.add_argument("--device", action="append", metavar="NAME", help=f"{' and '.join(DEVICES)} if none")
    parser.add_argument("--small", action="store_true", help="few layers and small sizes")
    options = parser.parse_intermixed_args(arguments)
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    options.folder.mkdir(parents=True, exist_ok=True)
    print(header(COLUMNS))
    for name in each(options.names or names, "workloads"):
        for device in options.device or DEVICES:
            print(line(write(named(name), device, options.folder, small=options.small)), flush=True)


if __name__ == "__main__":
    main()
