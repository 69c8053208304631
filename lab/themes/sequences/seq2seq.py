"""Sequence to sequence with attention: an encoder and a decoder of GRUs, teacher forcing, padded batches."""
import random
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence, pack_padded_sequence, pad_packed_sequence

torch.manual_seed(0)
random.seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
V, H = 12, 24


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.gru = nn.Embedding(V, H, padding_idx=0), nn.GRU(H, H, batch_first=True)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(self.embedding(x), lengths, batch_first=True, enforce_sorted=False)
        out, hidden = self.gru(packed)
        return pad_packed_sequence(out, batch_first=True)[0], hidden


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.gru = nn.Embedding(V, H), nn.GRUCell(2 * H, H)
        self.score, self.out = nn.Linear(H, H, bias=False), nn.Linear(H, V)

    def forward(self, token, hidden, memory):
        weights = torch.bmm(memory, self.score(hidden).unsqueeze(2)).squeeze(2).softmax(-1)
        context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
        hidden = self.gru(torch.cat([self.embedding(token), context], 1), hidden)
        return self.out(hidden), hidden


encoder, decoder = Encoder().to(device), Decoder().to(device)
params = list(encoder.parameters()) + list(decoder.parameters())
optimizer = torch.optim.Adam(params, lr=0.01)
rng = np.random.default_rng(0)
losses = []
for step in range(12):
    words = [torch.from_numpy(rng.integers(2, V, rng.integers(3, 7))) for _ in range(8)]
    lengths = torch.tensor([len(w) for w in words])
    source = pad_sequence(words, batch_first=True).to(device)
    target = pad_sequence([w.flip(0) for w in words], batch_first=True).to(device)
    memory, hidden = encoder(source, lengths.cpu())
    hidden, token, loss = hidden[0], torch.ones(8, dtype=torch.long, device=device), 0.0
    for t in range(target.size(1)):
        logits, hidden = decoder(token, hidden, memory)
        loss = loss + F.cross_entropy(logits, target[:, t], ignore_index=0)
        token = target[:, t] if random.random() < 0.7 else logits.argmax(1)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, 1.0)
    optimizer.step()
    losses.append(loss.item() / target.size(1))
print(losses[0], losses[-1])
