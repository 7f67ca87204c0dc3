"""A script that knows nothing of other processes, as for a single GPU."""

import time

import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    model(torch.ones(8, 4)).sum().backward()
    optimizer.step()
    time.sleep(0.05)
