"""One run of `step_swap` in a process of its own: a GPT-2 that is never whole in memory, trained from a file.

    python -m bench.step.swap_run LAYERS VOCABULARY BUDGET STEPS LENGTH FOLDER

A line on standard error says how far it is; the figures are a line of JSON on standard output.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn
from transformers.models.gpt2.modeling_gpt2 import GPT2Block

import lowtide

WIDTH = 1600
HEADS = 25
PAGE = 4096


class PeakOfProcess:
    """The most memory that the process has had, looked at 20 times a second."""

    def __init__(self) -> None:
        self.bytes = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self.bytes = max(self.bytes, PAGE * int(Path("/proc/self/statm").read_text().split()[1]))
            time.sleep(0.05)


def build(layers: int, vocabulary: int, folder: str) -> nn.Module:
    """Layer by layer: each goes to the file before the next is made."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=vocabulary, n_embd=WIDTH, n_layer=0, n_head=HEADS, attn_implementation="sdpa", bos_token_id=0,
        eos_token_id=0, use_cache=False,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"
    lowtide.put_away(model, folder)
    config.n_layer = layers
    for index in range(layers):
        block = GPT2Block(config, layer_idx=index)
        block.apply(model._init_weights)
        lowtide.put_away(block, folder)
        model.transformer.h.append(block)
        say(f"built {index + 1} of {layers} layers")
    return model.train()


def checksum(model: nn.Module) -> int:
    """Of all bits of all parameters."""
    whole = 0
    for parameter in model.parameters():
        bits = parameter.detach().view(torch.int32).to(torch.int64)
        whole = (whole * 1_000_003 + int(bits.sum()) + int(bits[..., ::7].sum())) % (1 << 61)
    return whole


def moved_bytes(step: Any) -> tuple[int, int]:
    """What the plan stores and loads."""
    plan, graph = step.plan, step.graph
    buffers, tiers = plan.block_buffers(), plan.block_tiers()
    stored = loaded = 0
    for source, _, _, _ in plan.transfers():
        size = graph.buffer_size(buffers[source])
        stored, loaded = (stored + size, loaded) if tiers[source] == 0 else (stored, loaded + size)
    return stored, loaded


def say(text: str) -> None:
    print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def main(layers: int, vocabulary: int, budget: str, steps: int, length: int, folder: str) -> None:
    peak = PeakOfProcess()
    model = build(layers, vocabulary, folder)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)

    def train(ids: torch.Tensor) -> torch.Tensor:
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    step = lowtide.compile(train, model=model, optimizer=optimizer, memory_budget=budget, swap=folder)
    batches = torch.Generator().manual_seed(1)
    rows = []
    for index in range(steps):
        say(f"step {index + 1} of {steps} within {budget}")
        ids = torch.randint(vocabulary, (1, length), generator=batches)
        loss = step(ids)
        stored, loaded = moved_bytes(step)
        link = step._swap.link
        variant = step._current.current
        rows.append(
            {
                "loss": loss.item(),
                "seconds": step._seconds[-1],
                "compute_seconds": sum(variant.profiles[op].time_ns for op in step.plan.order) / 1e9,
                "transfer_seconds": stored / link.store_rate + loaded / link.load_rate,
                "planned_seconds": step.plan.time_ns / 1e9,
                "stored_bytes": stored,
                "loaded_bytes": loaded,
                "arena_bytes": step.plan.arena_bytes,
                "resident_bytes": step.plan.resident_bytes,
                "process_bytes": peak.bytes,
            }
        )
    say("")
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(json.dumps({"parameters": parameters, "budget": budget, "rows": rows, "checksum": checksum(model)}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
