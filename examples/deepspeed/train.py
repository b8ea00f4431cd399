"""Train a small network on sentences with DeepSpeed: ZeRO stage 2, on GPUs, or on CPU with gloo.

If it is killed at any step and started again, it prints the same losses as without the failure.
"""

import argparse
import time
from typing import Any

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

import railwright

WORDS = ["seven", "wizards", "jump", "over", "a", "lazy", "box", "while", "the", "fox", "naps"]
SENTENCES = [" ".join(WORDS[i:] + WORDS[:i]) + ". " for i in range(len(WORDS))]
TEXT = torch.tensor(list("".join(SENTENCES * 12).encode()))
CONTEXT = 8


class Batches:
    """Windows of the text; all ranks together move through it, ``position`` windows so far."""

    def __init__(self, batch: int) -> None:
        self.batch, self.position = batch, 0

    def next(self) -> torch.Tensor:
        mine = self.position + dist.get_rank() * self.batch + torch.arange(self.batch)
        self.position += dist.get_world_size() * self.batch
        starts = mine * 7919 % (len(TEXT) - CONTEXT)
        return TEXT[starts[:, None] + torch.arange(CONTEXT + 1)]

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Shard:
    """What ZeRO keeps on this rank alone: its part of the optimizer's state and of the weights that
    the optimizer updates."""

    def __init__(self, zero: Any) -> None:
        self.zero = zero

    def state_dict(self) -> dict[str, Any]:
        weights = [part.detach() for part in self.zero.single_partition_of_fp32_groups]
        return {"optimizer": self.zero.optimizer.state_dict(), "weights": weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.zero.optimizer.load_state_dict(state["optimizer"])
        parts = self.zero.single_partition_of_fp32_groups
        for part, saved in zip(parts, state["weights"], strict=True):
            part.data.copy_(saved)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint-every", type=int, default=10)
    parser.add_argument("--checkpoint-dir", default="checkpoints")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--min-step-seconds", type=float, default=0.0, help="paces a demo")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    # On CPU, DeepSpeed would compile an extension for sums within a node, for minutes. gloo sums.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed()
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Embedding(128, args.width),
        nn.Flatten(),
        nn.Linear(CONTEXT * args.width, 4 * args.width),
        nn.ReLU(),
        nn.Linear(4 * args.width, 128),
    )
    engine, zero, _, _ = deepspeed.initialize(
        model=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=3e-3),
        config={
            "train_micro_batch_size_per_gpu": args.batch,
            # The default buckets take 2 GB on each rank, whatever the size of the model.
            "zero_optimization": {"stage": 2, "reduce_bucket_size": 1_000_000},
        },
    )
    batches = Batches(args.batch)

    checkpoints = railwright.Checkpointer(
        args.checkpoint_dir, model, shard=Shard(zero), data=batches
    )
    for step in range(checkpoints.load() + 1, args.steps + 1):
        started = time.monotonic()
        text = batches.next().to(engine.device)
        loss = nn.functional.cross_entropy(engine(text[:, :-1]), text[:, -1])
        engine.backward(loss)
        engine.step()

        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        railwright.report(step, mean, total_steps=args.steps)
        if dist.get_rank() == 0:
            print(f"step={step} loss={mean.item()!r}")
        if step % args.checkpoint_every == 0:
            checkpoints.save(step)
        time.sleep(max(0.0, started + args.min_step_seconds - time.monotonic()))
    # Lets gloo's threads drop their tensors: else torch may abort at exit (pytorch/pytorch#179291).
    time.sleep(0.1)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
