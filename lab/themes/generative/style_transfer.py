"""Style transfer: the pixels of an image are trained to have the Gram matrices of another one."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def gram(x):
    b, c, h, w = x.size()
    features = x.view(b * c, h * w)
    return torch.mm(features, features.t()).div(b * c * h * w)


cnn = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, padding=1))
cnn = cnn.to(device).eval()
for p in cnn.parameters():
    p.requires_grad_(False)
content, style = torch.rand(1, 3, 24, 24, device=device), torch.rand(1, 3, 24, 24).to(device)
with torch.no_grad():
    target_content, target_style = cnn(content), gram(cnn(style))
image = content.clone().requires_grad_(True)
optimizer = torch.optim.LBFGS([image], max_iter=4)
losses = []
for step in range(3):
    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        optimizer.zero_grad()
        out = cnn(image)
        loss = F.mse_loss(out, target_content) + 1e4 * F.mse_loss(gram(out), target_style)
        loss.backward()
        losses.append(loss.item())
        return loss

    optimizer.step(closure)
print(losses[0], losses[-1])
