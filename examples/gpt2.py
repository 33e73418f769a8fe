"""GPT-2 in training: does it fit on a GPU that is not here?

    lowtide fit examples/gpt2.py:training --device L4

`training` is ordinary code. `lowtide fit` calls it where nothing takes memory, so it needs no weights.
"""

from typing import Any

import torch
import transformers


def training() -> dict[str, Any]:
    """The step, the model, the optimizer, and the step's arguments for a batch and a length."""
    config = transformers.GPT2Config(use_cache=False, attn_implementation="sdpa")
    model = transformers.GPT2LMHeadModel(config).train()
    model.loss_type = "ForCausalLM"  # what it takes anyway, after a warning
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step(tokens: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    def example(batch: int, length: int = 1024) -> tuple[torch.Tensor]:
        if length > config.n_positions:
            raise ValueError(f"GPT-2 has {config.n_positions} positions")
        return (torch.zeros(batch, length, dtype=torch.long),)

    return {"function": step, "model": model, "optimizer": optimizer, "example": example, "batch": 8}
