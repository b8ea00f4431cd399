"""A workload: what is trained, how it is split over ranks, and how the framework goes about it."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from railwright_api.schema import RANKS_MAX, Part, Rule, rules

Positive = Annotated[int, Field(ge=1, le=2**40)]
EXPERTS_MAX = 16_384
PROFILE_LENGTH_MAX = 64 * 1024

Parts = Annotated[int, Field(ge=1, le=RANKS_MAX)]


def _number(value: object) -> object:
    """A file has numbers as text."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class Transformer(Part):
    """A decoder-only transformer."""

    layers: Positive
    """Number of layers."""
    hidden: Positive
    """Values of a token between layers."""
    heads: Positive
    """Heads of attention."""
    kv_heads: Positive | None = None
    """Heads of keys and values; none means as many as heads."""
    head_size: Positive | None = None
    """Values of a head; none means hidden over heads."""
    feed_forward: Positive
    """Values inside a feed-forward layer, or inside one expert."""
    vocabulary: Positive
    """Different tokens."""
    gated: bool = False
    """Feed-forward layers have three matrices instead of two, as SwiGLU does."""
    biased: bool = False
    """Products add a vector, and so do norms."""
    tied: bool = False
    """The output is multiplied with the weights that tokens are looked up in."""
    positions: Annotated[int, Field(ge=0, le=2**40)] = 0
    """Positions that have a learned vector; 0 means that they are told in another way."""
    experts: Annotated[int, Field(ge=0, le=EXPERTS_MAX)] = 0
    """Experts of each layer; 0 means that there are none."""
    experts_per_token: Annotated[int, Field(ge=0, le=EXPERTS_MAX)] = 0
    """Experts that each token goes to."""
    nodes_per_token: Annotated[int, Field(ge=0, le=EXPERTS_MAX)] = 0
    """Nodes that the experts of a token are on at most; 0 means any number."""


class Parallelism(Part):
    """Into how many parts each dimension is split. The product of tensor, context, pipeline and
    data is the number of ranks."""

    tensor: Parts = 1
    """Tensor parallelism."""
    context: Parts = 1
    """Context parallelism: parts of a sequence."""
    pipeline: Parts = 1
    """Pipeline parallelism: ranks that stages are on."""
    stages_per_rank: Parts = 1
    """Stages of an interleaved pipeline on each of its ranks."""
    data: Parts = 1
    """Data parallelism, with all shards and replicas."""
    expert: Parts = 1
    """Expert parallelism, over the ranks of a stage."""
    replicas: Parts = 1
    """Of what is sharded, replicas among the data-parallel ranks (HSDP)."""
    servers: Annotated[int, Field(ge=0, le=RANKS_MAX)] = 0
    """Parameter servers, beside all ranks."""

    @property
    def ranks(self) -> int:
        """Number of ranks that compute."""
        return self.tensor * self.context * self.pipeline * self.data


class Training(Part):
    """How it is trained."""

    sequence: Positive
    """Tokens of a sequence."""
    micro_batch: Positive = 1
    """Sequences that pass through a rank at once."""
    global_batch: Positive
    """Sequences of a step, over all ranks."""
    precision: Literal["BF16", "FP16", "FP8", "FP32"] = "BF16"
    """What matrices are multiplied in."""
    recompute: Literal["None", "Attention", "Layers"] = "None"
    """What is computed again for the backward pass instead of kept."""
    fused_attention: bool = True
    """Attention never writes its scores to memory, as FlashAttention does."""
    sequence_parallel: bool = False
    """Between tensor-parallel products each rank has its part of the sequence."""
    context: Literal["Ring", "Ulysses"] = "Ring"
    """How context-parallel ranks attend to a whole sequence."""
    sharding: Literal["None", "Optimizer", "Gradients", "Parameters"] = "None"
    """What data-parallel ranks hold a part of instead of all, as ZeRO 0 to 3 do; FSDP shards
    parameters."""
    gradient_bytes: Annotated[Literal[2, 4], BeforeValidator(_number)] = 2
    """Bytes of each gradient that is reduced."""
    fused_loss: bool = False
    """The loss and its gradient come of fused kernels."""
    overlap: bool = False
    """Data-parallel traffic goes on beside the backward pass, and what interleaved stages hand on
    beside another micro-batch."""
    overlap_tensor: bool = False
    """With sequenceParallel, tensor-parallel traffic goes on beside the products that it is for."""
    overlap_experts: bool = False
    """Tokens go to experts and back beside another micro-batch."""
    forwarded: bool = False
    """Tokens cross the network once for each node, whose ranks pass them on, as DeepEP does."""
    optimizer: Literal["Device", "Host", "Disk"] = "Device"
    """Where the optimizer's state is."""
    rank_order: Literal["Megatron", "MegatronPipelineFirst", "DeepSpeed", "Torch"] = "Megatron"
    """The framework in whose order ranks are numbered."""


@dataclass(frozen=True, slots=True)
class _Whole:
    """The product of the fields ``shared`` is a multiple of that of ``parts``, which are ``what``.

    Fields are paths as users write them. It is asked ``when`` a field has a value, or ``unless``
    one is given.
    """

    shared: tuple[str, ...]
    parts: tuple[str, ...]
    what: str
    when: tuple[str, str] | None = None
    unless: str = ""

    @property
    def rule(self) -> Rule:
        """What the API server checks."""
        value, parts = (f"(self.{' * self.'.join(fields)})" for fields in (self.shared, self.parts))
        held = f"{value} % {parts} == 0"
        if self.when:
            held = f"self.{self.when[0]} != '{self.when[1]}' || {held}"
        if self.unless:
            held = f"has(self.{self.unless}) || {held}"
        near = f"{value} < {parts} ? {parts} : ({value} + {parts} / 2) / {parts} * {parts}"
        return Rule(held, self._words("%d", "%d", "%d"), seen=(value, parts, near))

    def broken(self, workload: Workload) -> str:
        """What is wrong with a file; empty if nothing."""
        value, parts = (
            math.prod(_value(workload, each) for each in fields)
            for fields in (self.shared, self.parts)
        )
        asked = self.when is None or _value(workload, self.when[0]) == self.when[1]
        if not asked or (self.unless and _value(workload, self.unless)) or value % parts == 0:
            return ""
        near = max(parts, (value + parts // 2) // parts * parts)
        return self._words(value, parts, near)

    def _words(self, value: object, parts: object, near: object) -> str:
        shared = " times ".join(self.shared)
        return f"{shared} is {value}: expected a multiple of {parts} ({self.what}), such as {near}"


def _value(workload: Workload, path: str) -> Any:
    return operator.attrgetter(re.sub("([A-Z])", r"_\1", path).lower())(workload)


_STAGE = ("parallelism.tensor", "parallelism.context", "parallelism.data")
_SHARED_EXPERTS = "parallelism.expert", "parallelism.replicas"

WHOLE = (
    _Whole(
        ("training.globalBatch",),
        ("training.microBatch", "parallelism.data"),
        "micro-batches of all replicas",
    ),
    _Whole(("training.sequence",), ("parallelism.context",), "parts of a sequence"),
    _Whole(("transformer.heads",), ("parallelism.tensor",), "tensor-parallel ranks"),
    _Whole(("transformer.feedForward",), ("parallelism.tensor",), "tensor-parallel ranks"),
    _Whole(("parallelism.data",), ("parallelism.replicas",), "replicas"),
    _Whole(("transformer.experts",), ("parallelism.expert",), "expert-parallel ranks"),
    _Whole(_STAGE, _SHARED_EXPERTS, "expert-parallel ranks and replicas"),
    _Whole(
        _STAGE,
        (*_SHARED_EXPERTS, "parallelism.tensor"),
        "expert-parallel ranks, replicas and, of DeepSpeed, tensor-parallel ranks",
        when=("training.rankOrder", "DeepSpeed"),
    ),
    _Whole(
        ("transformer.heads",),
        ("parallelism.tensor", "parallelism.context"),
        "tensor- and context-parallel ranks",
        when=("training.context", "Ulysses"),
    ),
    _Whole(
        ("transformer.hidden",),
        ("transformer.heads",),
        "heads; or say headSize",
        unless="transformer.headSize",
    ),
)
"""What has to be shared evenly."""

_CHOSEN = "transformer.expertsPerToken is %d of %d experts: expected 1 or more of them, or 0 of 0"
_STAGES = "transformer.layers is %d: expected %d, one a stage, or more"
_SEQUENCE = "parallelism.tensor is %d with experts: expected training.sequenceParallel: true, or 1"

_OTHERS = (
    Rule(
        "self.transformer.expertsPerToken <= self.transformer.experts && "
        "(self.transformer.experts == 0) == (self.transformer.expertsPerToken == 0)",
        _CHOSEN,
        seen=("self.transformer.expertsPerToken", "self.transformer.experts"),
    ),
    Rule(
        "self.transformer.layers >= self.parallelism.pipeline * self.parallelism.stagesPerRank",
        _STAGES,
        seen=(
            "self.transformer.layers",
            "self.parallelism.pipeline * self.parallelism.stagesPerRank",
        ),
    ),
    Rule(
        "self.transformer.experts == 0 || self.parallelism.tensor == 1 || "
        "self.training.sequenceParallel || self.training.rankOrder == 'DeepSpeed'",
        _SEQUENCE,
        seen=("self.parallelism.tensor",),
    ),
)


class Workload(Part):
    """What a job trains, in numbers."""

    model_config = ConfigDict(
        json_schema_extra=rules(*(each.rule for each in WHOLE), *_OTHERS),
    )

    transformer: Transformer
    """What is trained."""
    parallelism: Parallelism
    """How it is split."""
    training: Training
    """How it is trained."""
    profile: Annotated[str, Field(max_length=PROFILE_LENGTH_MAX)] | None = None
    """What its ranks sent each other in a pre-run, as `railwright profile` prints it; none means
    that it follows from all the rest."""

    @model_validator(mode="after")
    def _holds_together(self) -> Workload:
        broken = [words for each in WHOLE if (words := each.broken(self))]
        if broken := [*broken, *self._strange()]:
            raise ValueError(broken[0])
        return self

    def _strange(self) -> Iterator[str]:
        model, split, method = self.transformer, self.parallelism, self.training
        chosen, experts = model.experts_per_token, model.experts
        if chosen > experts or (experts == 0) != (chosen == 0):
            yield _CHOSEN % (chosen, experts)
        stages = split.pipeline * split.stages_per_rank
        if model.layers < stages:
            yield _STAGES % (model.layers, stages)
        alone = split.tensor == 1 or method.sequence_parallel or method.rank_order == "DeepSpeed"
        if experts and not alone:
            yield _SEQUENCE % split.tensor
