"""Models that transformers defines: each from its own configuration, with changes for a smaller one."""

from __future__ import annotations

from typing import Any

import transformers
from torch import nn


def resnet50(classes: int, **changes: Any) -> nn.Module:
    return transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=classes, **changes))


def vit_base(classes: int, attention: str, **changes: Any) -> nn.Module:
    config = transformers.ViTConfig(num_labels=classes, attn_implementation=attention, **changes)
    return transformers.ViTForImageClassification(config)


def bert_base(classes: int, attention: str, **changes: Any) -> nn.Module:
    config = transformers.BertConfig(vocab_size=classes, attn_implementation=attention, **changes)
    return transformers.BertForMaskedLM(config)


def roberta_base(classes: int, attention: str, **changes: Any) -> nn.Module:
    sizes = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5, **changes}
    config = transformers.RobertaConfig(vocab_size=classes, attn_implementation=attention, **sizes)
    return transformers.RobertaForMaskedLM(config)


def xlm_r_base(classes: int, attention: str, **changes: Any) -> nn.Module:
    sizes = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5, **changes}
    config = transformers.XLMRobertaConfig(vocab_size=classes, attn_implementation=attention, **sizes)
    return transformers.XLMRobertaForMaskedLM(config)


def t5_base(classes: int, attention: str, **changes: Any) -> nn.Module:
    sizes = {"d_model": 768, "d_ff": 3072, "num_layers": 12, "num_heads": 12, **changes}
    config = transformers.T5Config(
        vocab_size=classes, attn_implementation=attention, decoder_start_token_id=0, use_cache=False, **sizes
    )
    return transformers.T5ForConditionalGeneration(config)


def gpt2(classes: int, attention: str, **changes: Any) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=classes, attn_implementation=attention, bos_token_id=0, eos_token_id=0, use_cache=False, **changes
    )
    model = transformers.GPT2LMHeadModel(config)
    model.loss_type = "ForCausalLM"  # what it takes anyway, after a warning
    return model


def gpt_neo(classes: int, **changes: Any) -> nn.Module:
    config = transformers.GPTNeoConfig(vocab_size=classes, bos_token_id=0, eos_token_id=0, use_cache=False, **changes)
    return transformers.GPTNeoForCausalLM(config)
