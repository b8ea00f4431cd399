"""Train a small transformer on sentences, in data parallel (DDP, gloo, CPU).

If it is killed at any step and started again, it prints the same losses as without the failure.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import railwright

WORDS = ["seven", "wizards", "jump", "over", "a", "lazy", "box", "while", "the", "fox", "naps"]
SENTENCES = [" ".join(WORDS[i:] + WORDS[:i]) + ". " for i in range(len(WORDS))]
TEXT = torch.tensor(list("".join(SENTENCES * 12).encode()))


class Batches:
    """Windows of the text; all ranks together move through it, ``position`` windows so far."""

    def __init__(self, batch: int, length: int) -> None:
        self.batch, self.length, self.position = batch, length, 0

    def next(self) -> torch.Tensor:
        mine = self.position + dist.get_rank() * self.batch + torch.arange(self.batch)
        self.position += dist.get_world_size() * self.batch
        starts = mine * 7919 % (len(TEXT) - self.length)
        return TEXT[starts[:, None] + torch.arange(self.length + 1)]

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = state["position"]


class Transformer(nn.Module):
    """Predicts each next byte."""

    def __init__(self, width: int, layers: int, length: int) -> None:
        super().__init__()
        self.bytes = nn.Embedding(128, width)
        self.places = nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, 128)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.shape[1]
        hidden = self.bytes(text) + self.places(torch.arange(length))
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        logits: torch.Tensor = self.head(hidden)
        return logits


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--checkpoint-every", type=int, default=10)
    parser.add_argument("--checkpoint-dir", default="checkpoints")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=48)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--min-step-seconds", type=float, default=0.0, help="paces a demo")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    # Without this, DDP sorts its buckets anew after the first step, and sums over three ranks and
    # more then round otherwise after a restart than without one.
    model = DistributedDataParallel(
        Transformer(args.width, args.layers, args.length), find_unused_parameters=True
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    batches = Batches(args.batch, args.length)
    torch.manual_seed(dist.get_rank())

    checkpoints = railwright.Checkpointer(args.checkpoint_dir, model, optimizer, data=batches)
    reported = time.monotonic()
    for step in range(checkpoints.load() + 1, args.steps + 1):
        started = time.monotonic()
        text = batches.next()
        logits = model(text[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

        mean = loss.detach() / dist.get_world_size()
        dist.all_reduce(mean)
        now = time.monotonic()
        samples_per_s = args.batch * dist.get_world_size() / (now - reported)
        railwright.report(step, mean, total_steps=args.steps, samples_per_s=samples_per_s)
        reported = now
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
