"""The examples of `lowtide.adapt`: a plain loop, Hugging Face's Trainer, Lightning, and models of transformers."""

from __future__ import annotations

import copy
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

import lowtide
from adapt_models import assert_same_bits, trained

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str) -> Any:
    return runpy.run_path(str(EXAMPLES / name))["main"]()


def assert_adapted(adapter: lowtide.Adapter) -> None:
    stats = adapter.stats()
    assert stats["batches"] == 40
    assert stats["over_budget"] == 0
    assert 0 < stats["dropped_share"] < 1
    assert stats["mean_error"] < 0.01


def test_plain_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    run("adapt.py")
    shown = capsys.readouterr().out
    assert "the longest batch needs at least" in shown
    assert "over_budget          0\n" in shown
    assert (tmp_path / "adapt.svg").read_text().startswith("<svg")


def test_trainer() -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    assert_adapted(run("adapt_trainer.py").adapter)


def test_lightning() -> None:
    pytest.importorskip("pytorch_lightning")
    assert_adapted(run("adapt_lightning.py").adapter)


def small(kind: str) -> Any:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=100, n_positions=128, n_embd=32, n_layer=4, n_head=2)
        return transformers.GPT2LMHeadModel(config)
    if kind == "t5":
        config = transformers.T5Config(
            vocab_size=100, d_model=32, d_kv=16, d_ff=64, num_layers=3, num_heads=2, decoder_start_token_id=0
        )
        return transformers.T5ForConditionalGeneration(config)
    config = transformers.BertConfig(
        vocab_size=100, hidden_size=32, num_hidden_layers=4, num_attention_heads=2, intermediate_size=64
    )
    return transformers.BertForMaskedLM(config)


def texts(kind: str, count: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)

    def tokens() -> torch.Tensor:
        length = int(torch.randint(20, 100, (), generator=generator))
        return torch.randint(100, (3, length), generator=generator)

    batches = []
    for _ in range(count):
        ids = tokens()
        batches.append({"input_ids": ids, "labels": tokens() if kind == "t5" else ids})
    return batches


@pytest.mark.parametrize("kind", ["bert", "gpt2", "t5"])
def test_models_of_transformers(kind: str) -> None:
    def loss(model: Any, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        return model(**batch).loss

    model = small(kind)
    plain = copy.deepcopy(model)
    batches = texts(kind, 24)
    use_cache = model.config.use_cache
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        longest = {name: torch.zeros(3, 99, dtype=torch.long) for name in batches[0]}
        least = adapter.preflight(longest)
    assert model.config.use_cache == use_cache
    state = 2 * sum(p.numel() * 4 for p in model.parameters())
    with lowtide.adapt(model, memory_budget=int((least + state) * 1.1)) as adapter:
        ours = trained(model, batches, loss)
        adapter.end()
        stats = adapter.stats()
        assert {record.blocks for record in adapter.history.records} == {6 if kind == "t5" else 4}
    assert stats["over_budget"] == 0 and 0 < stats["dropped_share"] < 1
    assert stats["mean_error"] < 0.01
    assert_same_bits(ours, trained(plain, batches, loss))


def test_a_cache_that_is_asked_for_keeps_the_block() -> None:
    model = small("gpt2")
    with lowtide.adapt(model, memory_budget="1GiB") as adapter:
        with pytest.warns(UserWarning, match="train with use_cache=False"):
            model(**texts("gpt2", 1)[0], use_cache=True).loss.backward()
        adapter.end()
        assert adapter.history.records[-1].blocks == 0
