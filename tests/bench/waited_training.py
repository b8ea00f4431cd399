"""A training script whose devices are waited out and whose traffic is real: one process a node.

Run in each node's namespace as `python -m bench.waited_training NODE PLAN`. It trains in each of
the plan's orders of nodes, one after the other, and is told of an order by its rank alone. Stages
take micro-batches one forward, one backward (Narayanan et al., 2021); at the end of a step replicas
sum up what they have. What a device would compute is waited for; what nodes would send is sent, by
torch.distributed with gloo. Rank 0 prints a line of JSON for each order.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

DEADLINE = timedelta(seconds=300)
FIRST_PORT = 29_500
PIECES = 4
"""Buckets that gradients are summed up in."""
DEVICE = threading.Event()
"""In place of an accelerator, which is not there: it is waited for as long as one would compute."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one node does in a step: seconds of a micro-batch and of the end, bytes handed on to
    the next stage for each micro-batch, bytes that replicas sum up."""

    stages: list[int]
    replicas: dist.ProcessGroup
    micro_batches: int
    forward_s: float
    backward_s: float
    end_s: float
    handed_on: int
    summed: int

    def run(self) -> None:
        """The whole of it."""
        stage = self.stages.index(dist.get_rank())
        early = min(self.micro_batches, len(self.stages) - 1 - stage)
        sent: list[Any] = []
        for _ in range(early):
            self._forward(stage, sent)
        for at in range(self.micro_batches):
            if at < self.micro_batches - early:
                self._forward(stage, sent)
            self._backward(stage, sent)
        for each in sent:
            each.wait()
        gradients = torch.zeros(self.summed // 4 // PIECES)
        for _ in range(PIECES):
            dist.all_reduce(gradients, group=self.replicas)
        DEVICE.wait(self.end_s)

    def _forward(self, stage: int, sent: list[Any]) -> None:
        if stage > 0:
            dist.recv(self._activations(), self.stages[stage - 1])
        DEVICE.wait(self.forward_s)
        if stage < len(self.stages) - 1:
            sent.append(dist.isend(self._activations(), self.stages[stage + 1]))

    def _backward(self, stage: int, sent: list[Any]) -> None:
        if stage < len(self.stages) - 1:
            dist.recv(self._activations(), self.stages[stage + 1])
        DEVICE.wait(self.backward_s)
        if stage > 0:
            sent.append(dist.isend(self._activations(), self.stages[stage - 1]))

    def _activations(self) -> torch.Tensor:
        return torch.zeros(self.handed_on, dtype=torch.uint8)


def main() -> None:
    node, plan = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
    torch.set_num_threads(1)
    for number, nodes in enumerate(plan["orders"]):
        if node in nodes:
            steps_s = _trained(plan, nodes, nodes.index(node), FIRST_PORT + number)
            if nodes[0] == node:
                print(json.dumps({"order": number, "steps_s": steps_s}), flush=True)


def _trained(plan: dict[str, Any], nodes: list[str], rank: int, port: int) -> list[float]:
    """Seconds of each step but the first, which makes the connections."""
    store = f"tcp://{plan['addresses'][nodes[0]]}:{port}"
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=len(nodes), timeout=DEADLINE
    )
    step = _step(plan, rank)
    took_s = []
    for _ in range(1 + plan["steps"]):
        dist.barrier()
        began_s = time.monotonic()
        step.run()
        dist.barrier()
        took_s.append(time.monotonic() - began_s)
    dist.destroy_process_group()
    return took_s[1:]


def _step(plan: dict[str, Any], rank: int) -> Step:
    (stages,) = (group for group in plan["pipelines"] if rank in group)
    replicas, _ = dist.new_subgroups_by_enumeration(plan["replicas"])
    assert isinstance(replicas, dist.ProcessGroup), f"rank {rank} is in none of the groups"
    is_last = rank == stages[-1]
    micro_batch = plan["micro_batch"]
    # Going back takes twice as long as going forward.
    seconds = micro_batch["seconds"] + (micro_batch["last_stage_s"] if is_last else 0.0)
    return Step(
        stages=stages,
        replicas=replicas,
        micro_batches=micro_batch["count"],
        forward_s=seconds / 3,
        backward_s=seconds * 2 / 3,
        end_s=plan["end_s"],
        handed_on=micro_batch["bytes"],
        summed=plan["summed_bytes"],
    )


if __name__ == "__main__":
    main()
