"""A small language model in plain PyTorch, with GPT-2's structure and names: what dl4all is compared with."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.c_attn = nn.Linear(features, 3 * features)
        self.c_proj = nn.Linear(features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in self.c_attn(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        result: torch.Tensor = self.c_proj(y.transpose(1, 2).flatten(2))
        return result


class FeedForward(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(features, 4 * features)
        self.c_proj = nn.Linear(4 * features, features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))
        return result


class Block(nn.Module):
    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(features)
        self.attn = Attention(features, heads)
        self.ln_2 = nn.LayerNorm(features)
        self.mlp = FeedForward(features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.ln_1(x))
        result: torch.Tensor = x + self.mlp(self.ln_2(x))
        return result


class GPT(nn.Module):
    def __init__(self, vocab: int, steps: int, layers: int, heads: int, features: int) -> None:
        super().__init__()
        self.transformer = nn.Module()
        self.transformer.wte = nn.Embedding(vocab, features)
        self.transformer.wpe = nn.Embedding(steps, features)
        self.transformer.h = nn.Sequential(*(Block(features, heads) for _ in range(layers)))
        self.transformer.ln_f = nn.LayerNorm(features)
        self.lm_head = nn.Linear(features, vocab, bias=False)
        for parameter in self.parameters():
            if parameter.ndim == 2:
                nn.init.normal_(parameter, std=0.02)
        self.lm_head.weight = self.transformer.wte.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Scores of the next token, those of all places one below the other."""
        part: Any = self.transformer
        x = part.h(part.wte(tokens) + part.wpe.weight[: tokens.shape[1]])
        result: torch.Tensor = self.lm_head(part.ln_f(x)).flatten(0, 1)
        return result
