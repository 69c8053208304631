"""Mixed precision with a gradient scaler, and averaged weights (SWA)."""
import numpy as np
import torch
import torch.nn as nn
from torch.optim.swa_utils import AveragedModel, SWALR, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
use_cuda = torch.cuda.is_available()
device = torch.device("cuda" if use_cuda else "cpu")
rng = np.random.default_rng(0)
X = rng.normal(size=(64, 1, 8, 8)).astype(np.float32)
Y = (X.mean((1, 2, 3)) > 0).astype(np.int64)
loader = DataLoader(TensorDataset(torch.tensor(X), torch.tensor(Y)), batch_size=16, pin_memory=use_cuda)
model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 2)).to(device)
swa, optimizer = AveragedModel(model), torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
swa_scheduler = SWALR(optimizer, swa_lr=0.05, anneal_epochs=2)
scaler = torch.cuda.amp.GradScaler(enabled=use_cuda)
losses = []
for epoch in range(5):
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=use_cuda):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    if epoch > 1:
        swa.update_parameters(model)
        swa_scheduler.step()
update_bn(loader, swa, device=device)
print(losses[0], losses[-1])
