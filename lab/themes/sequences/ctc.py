"""Speech-like recognition with connectionist temporal classification."""
import numpy as np
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
rng = np.random.default_rng(0)
T, N, F, V = 20, 4, 8, 6


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(F, 16, bidirectional=True)
        self.fc = nn.Linear(32, V)

    def forward(self, x):
        return self.fc(self.lstm(x)[0]).log_softmax(2)


model, criterion = Recognizer().to(device), nn.CTCLoss(blank=0, zero_infinity=True)
optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
patterns = rng.normal(size=(V, F)).astype(np.float32)
losses = []
for step in range(15):
    targets = rng.integers(1, V, (N, 5))
    x = np.repeat(patterns[targets], 4, axis=1) + 0.1 * rng.normal(size=(N, T, F)).astype(np.float32)
    inputs = torch.from_numpy(x.astype(np.float32)).permute(1, 0, 2).to(device)
    log_probs = model(inputs)
    input_lengths = torch.full((N,), T, dtype=torch.long)
    target_lengths = torch.full((N,), 5, dtype=torch.long)
    loss = criterion(log_probs, torch.from_numpy(targets).to(device), input_lengths, target_lengths)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses[0], losses[-1])
