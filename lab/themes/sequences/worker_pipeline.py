"""A pipeline of data in worker processes: a split, a collate function, pinned memory, prefetching."""
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, Subset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Sequences(Dataset):
    def __init__(self):
        rng = np.random.default_rng(0)
        self.items = [rng.normal(size=(rng.integers(3, 9), 4)).astype(np.float32) for _ in range(48)]
        self.labels = [int(item.sum() > 0) for item in self.items]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return {"x": torch.from_numpy(self.items[i]), "y": self.labels[i]}


def collate(samples):
    lengths = torch.tensor([len(s["x"]) for s in samples])
    x = torch.zeros(len(samples), int(lengths.max()), 4)
    for i, s in enumerate(samples):
        x[i, : len(s["x"])] = s["x"]
    return x, lengths, torch.tensor([s["y"] for s in samples])


data = Subset(Sequences(), range(0, 48))
loader = DataLoader(data, batch_size=12, shuffle=True, num_workers=2, collate_fn=collate, pin_memory=True, persistent_workers=True)
model = nn.ModuleDict({"lstm": nn.LSTM(4, 16, batch_first=True), "out": nn.Linear(16, 2)}).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
losses = []
if __name__ == "__main__":
    for epoch in range(4):
        for x, lengths, y in loader:
            x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
            h, _ = model["lstm"](x)
            last = h[torch.arange(len(x)), lengths - 1]
            loss = nn.functional.cross_entropy(model["out"](last), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    print(losses[0], losses[-1])
