"""A training run small enough for tests, in which optimiser, chance and data all matter.

Run as a program by ``ranks_running``: each rank plays the scenario named on its command line, and
rank 0 writes what it found as JSON.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

import railwright

TIMEOUT_S = 300
STEPS = 6
SAVED_STEP = 3


class Places:
    """Its place in the data: how many batches all ranks have had."""

    def __init__(self) -> None:
        self.position = 0

    def next(self) -> torch.Tensor:
        self.position += 1
        return torch.sin(torch.arange(32.0).reshape(4, 8) * (self.position + rank()))

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        self.position = state["position"]


class Run:
    """Model, optimiser and data, new; the model's weights depend on the seed."""

    def __init__(self, directory: Path, *, seed: int, is_sharded: bool = False) -> None:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 8))
        self.model = _spread(model, is_sharded=is_sharded)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.05)
        self.places = Places()
        self.checkpoints = railwright.Checkpointer(
            directory, self.model, self.optimizer, places=self.places
        )
        torch.manual_seed(seed + rank())

    def train(self, steps: int) -> list[float]:
        """The losses, summed over the ranks."""
        losses = []
        for _ in range(steps):
            inputs = self.places.next()
            loss = (self.model(inputs) - inputs).square().mean()
            self.optimizer.zero_grad()
            torch.autograd.backward(loss)
            self.optimizer.step()
            total = loss.detach().clone()
            if dist.is_initialized():
                dist.all_reduce(total)
            losses.append(total.item())
        return losses

    def contents(self) -> list[list[float]]:
        """All weights, and what the optimiser holds of each, whoever has them."""
        states = [state for _, state in sorted(self._states().items())]
        tensors = [*self.model.parameters(), *(t for state in states for t in state.values())]
        return [_whole(tensor).flatten().tolist() for tensor in tensors]

    def _states(self) -> dict[int, dict[str, torch.Tensor]]:
        numbers = {id(parameter): n for n, parameter in enumerate(self.model.parameters())}
        return {numbers[id(parameter)]: state for parameter, state in self.optimizer.state.items()}


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def equality(directory: Path, *, is_sharded: bool) -> dict[str, list[float]]:
    """Losses after SAVED_STEP: never interrupted, resumed, and resumed with something lost."""

    def run(seed: int) -> Run:
        return Run(directory, seed=seed, is_sharded=is_sharded)

    losses = {"uninterrupted": run(0).train(STEPS)[SAVED_STEP:]}
    interrupted = run(0)
    interrupted.train(SAVED_STEP)
    interrupted.checkpoints.save(SAVED_STEP)
    forgetting: dict[str, Callable[[Run], object]] = {
        "resumed": lambda _: None,
        "without optimizer": lambda resumed: resumed.optimizer.state.clear(),
        "without random numbers": lambda _: torch.manual_seed(99),
        "without data position": lambda resumed: setattr(resumed.places, "position", 0),
    }
    for name, forget in forgetting.items():
        resumed = run(7)
        assert resumed.checkpoints.load() == SAVED_STEP
        forget(resumed)
        losses[name] = resumed.train(STEPS - SAVED_STEP)
    return losses


def saved(directory: Path) -> list[list[float]]:
    """What a sharded run holds when it saves."""
    run = Run(directory, seed=0, is_sharded=True)
    run.train(SAVED_STEP)
    run.checkpoints.save(SAVED_STEP)
    return run.contents()


def loaded(directory: Path) -> dict[str, Any]:
    """What a sharded run holds when it has loaded; every rank's random number, drawn twice so."""
    run = Run(directory, seed=7, is_sharded=True)
    drawn = []
    for _ in range(2):
        assert run.checkpoints.load() == SAVED_STEP
        chance = [0.0] * dist.get_world_size()
        dist.all_gather_object(chance, torch.rand(1).item())
        drawn.append(chance)
    return {"contents": run.contents(), "chance": drawn}


SCENARIOS: Mapping[str, Callable[[Path], object]] = {
    "equality of DDP": lambda directory: equality(directory, is_sharded=False),
    "equality of FSDP": lambda directory: equality(directory, is_sharded=True),
    "saved": saved,
    "loaded": loaded,
}


def ranks_running(scenario: str, directory: Path, *, world_size: int) -> tuple[Any, str]:
    """What rank 0 found in the scenario, and what it wrote to stderr."""
    result = directory / f"{scenario}.json"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "worlds.tiny_training", scenario, str(directory), str(result)]
    shared = {
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(world_size),
    }
    processes = [
        subprocess.Popen(
            command,
            env=os.environ | shared | {"RANK": str(number)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(world_size)
    ]
    errors = _ended(processes)
    return json.loads(result.read_text()), errors[0]


def _ended(processes: Sequence[subprocess.Popen[str]]) -> list[str]:
    try:
        errors = [process.communicate(timeout=TIMEOUT_S)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert all(process.returncode == 0 for process in processes), "\n".join(errors)
    return errors


def _spread(model: nn.Module, *, is_sharded: bool) -> nn.Module:
    if is_sharded:
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        fully_shard(model, mesh=mesh)
        return model
    return DistributedDataParallel(model) if dist.is_initialized() else model


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def main() -> None:
    scenario, directory, result = sys.argv[1:]
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo")
    found = SCENARIOS[scenario](Path(directory))
    if dist.get_rank() == 0:
        Path(result).write_text(json.dumps(found))
    dist.destroy_process_group()
    sys.stderr.flush()
    # Python's own end races with gloo's threads, and torch then aborts (pytorch/pytorch#179291).
    os._exit(0)


if __name__ == "__main__":
    main()
