"""Small models to train: each gives a model, a batch and the loss of both, from the current seed."""

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, LENGTH, BATCH = 100, 16, 4


def mlp(dropout=0.0):
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Dropout(dropout), nn.LayerNorm(256), nn.Linear(256, 10))
    return model, (torch.randn(32, 64), torch.randint(10, (32,))), _classify


def convnet(dropout=0.0):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.Conv2d(8, 16, 3, stride=2), nn.GroupNorm(2, 16), nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(dropout), nn.Linear(16, 10),
    )  # fmt: skip
    return model, (torch.randn(BATCH, 3, 16, 16), torch.randint(10, (BATCH,))), _classify


def bert(dropout=0.0, attention="eager"):
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128,
        max_position_embeddings=32, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        attn_implementation=attention,
    )  # fmt: skip
    return BertForMaskedLM(config), _tokens(), _model_loss


def gpt2(dropout=0.0, attention="eager"):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=2, n_positions=32, resid_pdrop=dropout, embd_pdrop=dropout,
        attn_pdrop=dropout, attn_implementation=attention, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return GPT2LMHeadModel(config), _tokens(), _model_loss


def train(make, device, optimizer=torch.optim.AdamW, steps=3, dtype=torch.float32, **options):
    """Losses of some steps, and the parameters, buffers and gradients after them, on the CPU."""
    torch.manual_seed(0)
    model, batch, loss_of = make(**options)
    model.train().to(device, dtype)
    batch = [t.to(device, dtype) if t.is_floating_point() else t.to(device) for t in batch]
    update = optimizer(model.parameters())
    losses = []
    for _ in range(steps):
        update.zero_grad()
        loss = loss_of(model, *batch)
        loss.backward()
        update.step()
        losses.append(loss.detach())
    left = [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters() if p.grad is not None)]
    return [loss.item() for loss in losses], [t.detach().cpu() for t in left]


def _classify(model, x, y):
    return F.cross_entropy(model(x), y)


def _tokens():
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH))
    return tokens, tokens.clone()


def _model_loss(model, tokens, labels):
    return model(input_ids=tokens, labels=labels).loss
