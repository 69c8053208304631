"""PointNet: shared perceptrons over points, a maximum over them, a learned transform."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
rng = np.random.default_rng(0)
points = rng.normal(size=(32, 64, 3)).astype("float32")
points[::2] /= np.linalg.norm(points[::2], axis=-1, keepdims=True)
labels = np.arange(32) % 2


class TNet(nn.Module):
    def __init__(self, k=3):
        super().__init__()
        self.k = k
        self.conv = nn.Conv1d(k, 32, 1)
        self.bn = nn.BatchNorm1d(32)
        self.fc = nn.Linear(32, k * k)

    def forward(self, x):
        h = F.relu(self.bn(self.conv(x)))
        h = torch.max(h, 2, keepdim=True)[0].view(-1, 32)
        iden = torch.eye(self.k).view(1, -1).repeat(x.size(0), 1)
        if x.is_cuda:
            iden = iden.cuda()
        return (self.fc(h) + iden).view(-1, self.k, self.k)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.t = TNet()
        self.conv1, self.conv2 = nn.Conv1d(3, 32, 1), nn.Conv1d(32, 64, 1)
        self.bn1, self.bn2 = nn.BatchNorm1d(32), nn.BatchNorm1d(64)
        self.head = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 2))

    def forward(self, x):
        x = torch.bmm(x.transpose(2, 1), self.t(x)).transpose(2, 1)
        x = F.relu(self.bn1(self.conv1(x)))
        return F.log_softmax(self.head(self.bn2(self.conv2(x)).max(dim=2).values), dim=1)


net = PointNet()
if torch.cuda.is_available():
    net.cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=20, gamma=0.5)
losses = []
for step in range(12):
    x, y = torch.from_numpy(points).transpose(2, 1), torch.from_numpy(labels)
    if torch.cuda.is_available():
        x, y = x.cuda(), y.cuda()
    optimizer.zero_grad()
    pred = net(x)
    loss = F.nll_loss(pred, y)
    loss.backward()
    optimizer.step()
    scheduler.step()
    losses.append(loss.item())
print(losses[0], losses[-1])
