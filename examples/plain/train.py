"""Fit a line with two ranks or one. Any torchrun script runs like this one, without changes."""

import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    weights = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    for step in range(1, int(os.environ.get("STEPS", "100")) + 1):
        inputs = torch.randn(32, 4)
        loss = nn.functional.mse_loss(model(inputs), inputs @ weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step={step} loss={loss.item():.6f}")
    # Lets gloo's threads drop their tensors: else torch may abort at exit (pytorch/pytorch#179291).
    time.sleep(0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
