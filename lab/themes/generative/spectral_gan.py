"""A GAN whose critic has spectral normalization, hinge losses, the types of tensors of old scripts."""
import numpy as np
import torch
import torch.nn as nn
from torch.nn.utils import spectral_norm

torch.manual_seed(0)
cuda = True if torch.cuda.is_available() else False
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
G = nn.Sequential(nn.Linear(8, 32 * 4), nn.Unflatten(1, (32, 2, 2)), nn.BatchNorm2d(32), nn.ReLU(), nn.ConvTranspose2d(32, 1, 4, stride=4), nn.Tanh())
D = nn.Sequential(spectral_norm(nn.Conv2d(1, 16, 4, stride=2, padding=1)), nn.LeakyReLU(0.2), nn.Flatten(), spectral_norm(nn.Linear(256, 1)))
if cuda:
    G.cuda()
    D.cuda()
opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.0, 0.9))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.0, 0.9))
real_images = np.tanh(np.random.default_rng(0).normal(size=(32, 1, 8, 8)).cumsum(-1)).astype(np.float32)
losses = []
for step in range(10):
    real = torch.autograd.Variable(torch.from_numpy(real_images).type(Tensor))
    z = Tensor(np.random.default_rng(step).normal(0, 1, (32, 8)))
    loss_d = torch.relu(1 - D(real)).mean() + torch.relu(1 + D(G(z).detach())).mean()
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
    loss_g = -D(G(z)).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    losses.append(loss_d.item())
print(losses[0], losses[-1])
