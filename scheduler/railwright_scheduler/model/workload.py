"""The workload of a job: model, parallelism and training recipe."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from enum import IntEnum, StrEnum

from railwright_scheduler.model.profile import Profile


class Precision(StrEnum):
    """Precision of matrix products."""

    SINGLE = "32-bit"
    HALF = "16-bit"
    FP8 = "8-bit"


class Sharding(IntEnum):
    """State that is sharded over data-parallel ranks (Rajbhandari et al., 2020)."""

    NONE = 0
    OPTIMIZER = 1
    GRADIENTS = 2
    PARAMETERS = 3


class Recompute(StrEnum):
    """What is computed again for the backward pass instead of kept (Korthikanti et al., 2022):
    attention, from queries, keys and values on, or all of each layer."""

    NONE = "None"
    ATTENTION = "Attention"
    LAYERS = "Layers"


class Attention(StrEnum):
    """How context-parallel ranks attend to a whole sequence: keys and values go around a ring, or
    each rank has all tokens of some heads meanwhile (DeepSpeed Ulysses)."""

    RING = "Ring"
    HEADS = "Ulysses"


class Optimizer(StrEnum):
    """Where the state of the optimizer is. The host updates the weights for a state that is in its
    memory or on its disks."""

    DEVICE = "Device"
    HOST = "Host"
    DISK = "Disk"


class Framework(StrEnum):
    """The framework in whose order ranks are numbered; Megatron Core has two orders, replicas or
    stages first."""

    MEGATRON = "Megatron"
    MEGATRON_PIPELINE_FIRST = "MegatronPipelineFirst"
    DEEPSPEED = "DeepSpeed"
    TORCH = "Torch"


@dataclass(frozen=True, slots=True)
class Routing:
    """Of ``experts`` each token goes to ``chosen``, on at most ``nodes`` where that is not 0."""

    experts: int
    chosen: int
    nodes: int = 0

    def reached(self, nodes: int, per_node: int) -> tuple[float, float]:
        """Nodes and ranks that have an expert of a token, on average, its own among them.

        Experts are spread evenly and equally likely. A node that is one of a few is so for its
        best expert, which is then one of the token's. As many nodes are allowed as it takes to
        choose from so many experts.
        """
        allowed = min(self.nodes, nodes) if self.nodes else nodes
        allowed = min(nodes, max(allowed, -(-self.chosen * nodes // self.experts)))
        pool = max(self.chosen, self.experts * allowed // nodes)
        ranks = self._hit(allowed * per_node, pool)
        limited = allowed < nodes
        return (min(allowed, self.chosen) if limited else self._hit(allowed, pool)), ranks

    def _hit(self, parts: int, pool: int) -> float:
        elsewhere = pool - pool // parts
        if elsewhere < self.chosen:
            return float(parts)
        missed = math.exp(_log_ways(elsewhere, self.chosen) - _log_ways(pool, self.chosen))
        return parts * (1 - missed)


def _log_ways(count: int, chosen: int) -> float:
    """Of how many ways there are to choose."""
    return math.lgamma(count + 1) - math.lgamma(chosen + 1) - math.lgamma(count - chosen + 1)


@dataclass(frozen=True, slots=True)
class Transformer:
    """A decoder. ``gated`` feed-forward layers have three matrices instead of two; ``biased``
    products add a vector, and norms one too; the output is ``tied`` to what tokens are looked up
    in; so many ``positions`` have a learned vector; of ``experts`` each token goes to ``chosen``,
    on ``chosen_nodes`` at most where that is not 0."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    feed_forward: int
    vocabulary: int
    gated: bool = False
    biased: bool = False
    tied: bool = False
    positions: int = 0
    experts: int = 0
    chosen: int = 0
    chosen_nodes: int = 0

    @property
    def routing(self) -> Routing:
        """Which experts a token goes to."""
        return Routing(self.experts, self.chosen, self.chosen_nodes)

    @property
    def attention_parameters(self) -> int:
        """Of one layer."""
        return self.hidden * self.head_size * 2 * (self.heads + self.kv_heads)

    @property
    def feed_forward_parameters(self) -> int:
        """Of one layer, or of one of its experts."""
        return (3 if self.gated else 2) * self.hidden * self.feed_forward


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Into how many parts each dimension is split.

    ``virtual`` are the pipeline's stages a rank, ``expert`` the parts that a layer's experts are
    split into, over the ranks of a stage. Of what is sharded there are ``replicas`` among the
    data-parallel ranks (HSDP). ``servers`` is the number of parameter servers, ranks of another
    role, which hold the parameters for all.
    """

    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    virtual: int = 1
    data: int = 1
    expert: int = 1
    replicas: int = 1
    servers: int = 0

    @property
    def stage(self) -> int:
        """Ranks of one stage of the pipeline."""
        return self.tensor * self.context * self.data

    @property
    def ranks(self) -> int:
        """How many devices compute."""
        return self.stage * self.pipeline


@dataclass(frozen=True, slots=True)
class Recipe:
    """The training recipe: sizes in sequences and tokens, and memory options of the framework.

    ``fused_attention``: scores are never written to memory. ``sequence_parallel``: between
    tensor-parallel products each rank has its part of the sequence. ``gradient_bytes`` of each
    gradient that is reduced. ``fused_loss``: the loss and its gradient come of fused kernels.
    ``overlap``: data-parallel traffic overlaps the backward pass, and sends of interleaved stages
    overlap another micro-batch. ``overlap_tensor``: tensor-parallel traffic overlaps its products,
    if each rank has its part of the sequence. ``overlap_experts``: tokens go to experts and back
    during another micro-batch's layers. ``forwarded``: they cross the network once for each node,
    whose ranks forward them.
    """

    sequence: int
    micro_batch: int
    global_batch: int
    precision: Precision = Precision.HALF
    recompute: Recompute = Recompute.NONE
    fused_attention: bool = True
    sequence_parallel: bool = False
    sharding: Sharding = Sharding.NONE
    gradient_bytes: int = 2
    fused_loss: bool = False
    overlap: bool = False
    overlap_tensor: bool = False
    overlap_experts: bool = False
    forwarded: bool = False
    attention: Attention = Attention.RING
    optimizer: Optimizer = Optimizer.DEVICE
    framework: Framework = Framework.MEGATRON

    @property
    def value_bytes(self) -> int:
        """Bytes of an activation between layers, and of a weight in communication."""
        return 4 if self.precision is Precision.SINGLE else 2

    @property
    def passes(self) -> int:
        """Through each layer, forward, backward and forward again."""
        return 3 if self.recompute is Recompute.LAYERS else 2

    @property
    def shares_handed(self) -> bool:
        """Whether tensor-parallel ranks each send a part of what goes to the next stage: where
        each has only its part of the sequence, or as Megatron and DeepSpeed do (Narayanan et al.,
        2021, 4.1); pipelines of PyTorch send all of it from each."""
        return self.sequence_parallel or self.framework is not Framework.TORCH

    def micro_batches(self, split: Parallelism) -> int:
        """How many pass through the pipeline in a step."""
        return self.global_batch // (self.micro_batch * split.data)

    def tokens(self, split: Parallelism) -> int:
        """Of one micro-batch on one rank, before tensor-parallel ranks share them."""
        return self.micro_batch * self.sequence // split.context

    def routed(self, split: Parallelism) -> int:
        """Tokens that one rank sends to experts: its part of those of its tensor-parallel group,
        or, with DeepSpeed, all of them."""
        shared = 1 if self.framework is Framework.DEEPSPEED else split.tensor
        return self.tokens(split) // shared


@dataclass(frozen=True, slots=True)
class Workload:
    """All that is known of what a job does in a step; ``profile``, if it was seen. An opaque
    workload has no ``model``, and of its recipe only the framework counts."""

    model: Transformer | None
    split: Parallelism
    recipe: Recipe
    profile: Profile | None = None

    @property
    def key(self) -> tuple[Hashable, ...]:
        """The cache key of results that follow from the workload. It is small."""
        seen = self.profile
        digest = seen and (seen.ranks, seen.steps, seen.devices, seen.digest)
        return self.model, self.split, self.recipe, digest

    @property
    def has_traffic(self) -> bool:
        """Whether it is known what its ranks send."""
        return self.model is not None or self.profile is not None

    @property
    def parts(self) -> tuple[Transformer, Parallelism, Recipe]:
        """What, into how many parts, and how, of a workload that is not opaque."""
        assert self.model is not None, "an opaque workload is not described"
        return self.model, self.split, self.recipe
