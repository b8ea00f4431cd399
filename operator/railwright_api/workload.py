"""A workload: what is trained, how it is split over ranks, and how the framework goes about it."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from railwright_api.schema import RANKS_MAX, ROLE_NAME_LENGTH_MAX, Part, Rule, rules

Positive = Annotated[int, Field(ge=1, le=2**40)]
EXPERTS_MAX = 16_384
PROFILE_LENGTH_MAX = 64 * 1024

Parts = Annotated[int, Field(ge=1, le=RANKS_MAX)]
_RoleOfJob = Annotated[str, Field(min_length=1, max_length=ROLE_NAME_LENGTH_MAX)]


def _number(value: object) -> object:
    """A file has numbers as text."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class Transformer(Part):
    """Transformer describes the dimensions of a decoder-only transformer."""

    layers: Positive
    """Number of layers."""
    hidden: Positive
    """Size of the hidden state of a token."""
    heads: Positive
    """Number of attention heads."""
    kv_heads: Positive | None = None
    """Number of key and value heads. Defaults to heads."""
    head_size: Positive | None = None
    """Size of an attention head. Defaults to hidden divided by heads."""
    feed_forward: Positive
    """Intermediate size of a feed-forward layer, or of one expert."""
    vocabulary: Positive
    """Size of the vocabulary."""
    gated: bool = False
    """Whether feed-forward layers are gated and have three matrices instead of two, as SwiGLU.
    Defaults to false."""
    biased: bool = False
    """Whether linear layers and norms have a bias. Defaults to false."""
    tied: bool = False
    """Whether the output layer shares its weights with the token embedding. Defaults to false."""
    positions: Annotated[int, Field(ge=0, le=2**40)] = 0
    """Number of learned position embeddings. 0 if positions are encoded in another way. Defaults to
    0."""
    experts: Annotated[int, Field(ge=0, le=EXPERTS_MAX)] = 0
    """Number of experts in each layer. 0 for a dense model. Defaults to 0."""
    experts_per_token: Annotated[int, Field(ge=0, le=EXPERTS_MAX)] = 0
    """Number of experts to which each token is routed. At least 1 if experts is set. Defaults to
    0."""
    nodes_per_token: Annotated[int, Field(ge=0, le=EXPERTS_MAX)] = 0
    """Maximum number of nodes to which the experts of a token belong. 0 for no limit. Defaults to
    0."""


class Parallelism(Part):
    """Parallelism describes how a model is split over ranks. The product of tensor, context,
    pipeline and data must be the number of ranks of the role that trains."""

    tensor: Parts = 1
    """Degree of tensor parallelism. Defaults to 1."""
    context: Parts = 1
    """Degree of context parallelism: the number of parts of a sequence. Defaults to 1."""
    pipeline: Parts = 1
    """Degree of pipeline parallelism: the number of ranks that hold stages. Defaults to 1."""
    stages_per_rank: Parts = 1
    """Number of stages on each rank of an interleaved pipeline. Defaults to 1."""
    data: Parts | None = None
    """Degree of data parallelism, over all shards and replicas. Defaults to the number of ranks of
    the role that trains divided by the product of tensor, context and pipeline."""
    expert: Parts = 1
    """Degree of expert parallelism, over the ranks of a stage. Defaults to 1."""
    replicas: Parts = 1
    """Number of replicas of sharded state among the data-parallel ranks (HSDP). Defaults to 1."""
    servers: _RoleOfJob | None = None
    """Name of the role whose ranks are parameter servers. They hold the parameters: each rank of
    the role that trains pushes gradients to all of them and pulls weights. Must be another role
    than the one that trains, and not be set with an opaque model. If not set, the ranks that train
    hold the parameters."""
    rank_order: Literal["Megatron", "MegatronPipelineFirst", "DeepSpeed", "Torch"] = "Megatron"
    """Framework, and the order of its ranks. Megatron numbers data-parallel before pipeline ranks,
    MegatronPipelineFirst after them. It also selects the formulas of the traffic and of the step
    time: what is gathered again for gradients, what goes to the next stage, which tokens go to
    experts, how state is sharded, and which stages have fewer layers. Of an opaque model only the
    order counts. Defaults to Megatron."""

    @property
    def fixed(self) -> Parallelism:
        """The parallelism without what grows with the number of replicas: a profile is of it."""
        return self.model_copy(update={"data": None, "replicas": 1})

    @property
    def replica_ranks(self) -> int:
        """Number of ranks of each data-parallel replica."""
        return self.tensor * self.context * self.pipeline


class Training(Part):
    """Training describes the training recipe of a transformer."""

    sequence: Positive
    """Number of tokens in a sequence."""
    micro_batch: Positive = 1
    """Number of sequences in a micro-batch. Defaults to 1."""
    global_batch: Positive
    """Number of sequences in a step, over all ranks."""
    precision: Literal["BF16", "FP16", "FP8", "FP32"] = "BF16"
    """Data type of matrix products. Defaults to BF16."""
    recompute: Literal["None", "Attention", "Layers"] = "None"
    """Activations that are recomputed in the backward pass: none, those of attention, or those of
    whole layers. Defaults to None."""
    fused_attention: bool = True
    """Whether attention is fused and does not write its scores to memory, as FlashAttention.
    Defaults to true."""
    sequence_parallel: bool = False
    """Whether each tensor-parallel rank holds a part of the sequence between tensor-parallel
    products. Must be true with experts and tensor parallelism, except with rankOrder DeepSpeed.
    Defaults to false."""
    context: Literal["Ring", "Ulysses"] = "Ring"
    """Algorithm of context-parallel attention. Defaults to Ring."""
    sharding: Literal["None", "Optimizer", "Gradients", "Parameters"] = "None"
    """State that data-parallel ranks shard, as ZeRO stages 0 to 3 do. FSDP shards parameters.
    Defaults to None."""
    gradient_bytes: Annotated[Literal[2, 4], BeforeValidator(_number)] = 2
    """Number of bytes of each gradient that is reduced. Defaults to 2."""
    fused_loss: bool = False
    """Whether fused kernels compute the loss and its gradient. Defaults to false."""
    overlap: bool = False
    """Whether data-parallel traffic overlaps with the backward pass, and the traffic of interleaved
    stages with other micro-batches. Defaults to false."""
    overlap_tensor: bool = False
    """Whether tensor-parallel traffic overlaps with the products that need it. Has an effect only
    with sequenceParallel. Defaults to false."""
    overlap_experts: bool = False
    """Whether the traffic of experts overlaps with another micro-batch. Defaults to false."""
    forwarded: bool = False
    """Whether tokens cross the network once for each node and are forwarded inside it, as with
    DeepEP. Defaults to false."""
    optimizer: Literal["Device", "Host", "Disk"] = "Device"
    """Memory that holds the state of the optimizer: that of the device, of the host, or the disk.
    Defaults to Device."""


class Opaque(Part):
    """Opaque is a model without a description. Until its traffic is recorded, ranks follow the
    order of the network, and no step time is predicted."""


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
    def is_of_ranks(self) -> bool:
        """Whether it depends on ``parallelism.data``, which may follow from the ranks of a job."""
        return _DATA in (*self.shared, *self.parts)

    def rule(self, workload: str = "self", data: str = "") -> Rule:
        """What the API server checks of this ``workload``, whose degree of ``data`` parallelism is
        this expression."""
        value, parts = (
            "(" + " * ".join("d" if path == _DATA else f"{workload}.{path}" for path in paths) + ")"
            for paths in (self.shared, self.parts)
        )
        held = f"{value} % {parts} == 0"
        if self.when:
            held = f"{workload}.{self.when[0]} != '{self.when[1]}' || {held}"
        if self.unless:
            held = f"has({workload}.{self.unless}) || {held}"
        near = f"{value} < {parts} ? {parts} : ({value} + {parts} / 2) / {parts} * {parts}"
        seen: tuple[str, ...] = value, parts, near
        if self.is_of_ranks:
            held = f"[{data}].all(d, {held})"
            seen = tuple(f"[{data}].map(d, {each})[0]" for each in seen)
        if self._is_of_model:
            held = f"!has({workload}.transformer) || !has({workload}.training) || {held}"
        return Rule(held, self._words("%d", "%d", "%d"), seen=seen)

    def broken(self, workload: Workload) -> str:
        """The rule that a file breaks; empty if none."""
        if self._is_of_model and workload.transformer is None:
            return ""
        value, parts = (
            math.prod(_value(workload, each) for each in fields)
            for fields in (self.shared, self.parts)
        )
        asked = self.when is None or _value(workload, self.when[0]) == self.when[1]
        if not asked or (self.unless and _value(workload, self.unless)) or value % parts == 0:
            return ""
        near = max(parts, (value + parts // 2) // parts * parts)
        return self._words(value, parts, near)

    @property
    def _is_of_model(self) -> bool:
        paths = *self.shared, *self.parts, *(self.when or ())[:1]
        return any(not path.startswith("parallelism.") for path in paths)

    def _words(self, value: object, parts: object, near: object) -> str:
        shared = " times ".join(self.shared)
        return f"{shared} is {value}: expected a multiple of {parts} ({self.what}), such as {near}"


def _value(workload: Workload, path: str) -> Any:
    return operator.attrgetter(re.sub("([A-Z])", r"_\1", path).lower())(workload)


_DATA = "parallelism.data"
_STAGE = ("parallelism.tensor", "parallelism.context", _DATA)
_SHARED_EXPERTS = "parallelism.expert", "parallelism.replicas"

WHOLE = (
    _Whole(
        ("training.globalBatch",),
        ("training.microBatch", _DATA),
        "micro-batches of all replicas",
    ),
    _Whole(("training.sequence",), ("parallelism.context",), "parts of a sequence"),
    _Whole(("transformer.heads",), ("parallelism.tensor",), "tensor-parallel ranks"),
    _Whole(("transformer.feedForward",), ("parallelism.tensor",), "tensor-parallel ranks"),
    _Whole((_DATA,), ("parallelism.replicas",), "replicas"),
    _Whole(("transformer.experts",), ("parallelism.expert",), "expert-parallel ranks"),
    _Whole(_STAGE, _SHARED_EXPERTS, "expert-parallel ranks and replicas"),
    _Whole(
        _STAGE,
        (*_SHARED_EXPERTS, "parallelism.tensor"),
        "expert-parallel ranks, replicas and, of DeepSpeed, tensor-parallel ranks",
        when=("parallelism.rankOrder", "DeepSpeed"),
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
        "heads; or set headSize",
        unless="transformer.headSize",
    ),
)
"""Numbers that must be multiples of others."""

_CHOSEN = "transformer.expertsPerToken is %d of %d experts: expected 1 or more of them, or 0 of 0"
_STAGES = "transformer.layers is %d: expected %d, one a stage, or more"
_SEQUENCE = "parallelism.tensor is %d with experts: expected training.sequenceParallel: true, or 1"

_DESCRIBED = "!has(self.transformer) || !has(self.training) || "
_ONE_MODEL = "expected one of transformer, and opaque: {} for a model that is not described"
_TRAINING = "training must be set with transformer, and not with opaque"
_SERVED = (
    "parallelism.servers is %s with an opaque model: leave it out, as traffic to servers is not "
    "recorded, or describe the model as transformer"
)

_OTHERS = (
    Rule(
        "has(self.transformer) != has(self.opaque)",
        f"%s: {_ONE_MODEL}",
        seen=("has(self.opaque) ? 'both are set' : 'none is set'",),
    ),
    Rule("has(self.transformer) == has(self.training)", _TRAINING),
    Rule(
        "!has(self.opaque) || !has(self.parallelism.servers)",
        _SERVED,
        seen=("self.parallelism.servers",),
    ),
    Rule(
        f"{_DESCRIBED}(self.transformer.expertsPerToken <= self.transformer.experts && "
        "(self.transformer.experts == 0) == (self.transformer.expertsPerToken == 0))",
        _CHOSEN,
        seen=("self.transformer.expertsPerToken", "self.transformer.experts"),
    ),
    Rule(
        f"{_DESCRIBED}"
        "self.transformer.layers >= self.parallelism.pipeline * self.parallelism.stagesPerRank",
        _STAGES,
        seen=(
            "self.transformer.layers",
            "self.parallelism.pipeline * self.parallelism.stagesPerRank",
        ),
    ),
    Rule(
        f"{_DESCRIBED}self.transformer.experts == 0 || self.parallelism.tensor == 1 || "
        "self.training.sequenceParallel || self.parallelism.rankOrder == 'DeepSpeed'",
        _SEQUENCE,
        seen=("self.parallelism.tensor",),
    ),
)


def rules_of_ranks(workload: str, data: str) -> tuple[Rule, ...]:
    """What the API server checks of a job's ``workload`` once its degree of ``data`` parallelism
    is known; both are CEL expressions."""
    return tuple(each.rule(workload, data) for each in WHOLE if each.is_of_ranks)


class Workload(Part):
    """Workload describes what the ranks of a role train: the model, its parallelism and the
    training recipe."""

    model_config = ConfigDict(
        json_schema_extra=rules(*(each.rule() for each in WHOLE if not each.is_of_ranks), *_OTHERS),
    )

    role: _RoleOfJob | None = None
    """Name of the role whose ranks train the model. Defaults to the first role of the job."""
    transformer: Transformer | None = None
    """Dimensions of the model, from which its traffic and its step time are derived. Exactly one of
    transformer and opaque must be set."""
    opaque: Opaque | None = None
    """A model without a description, as {}. Ranks follow the order of the network until their
    traffic is recorded by profiling.steps, profiling.preRun or profile."""
    parallelism: Parallelism
    """Parallelism of the model and the data over the ranks."""
    training: Training | None = None
    """Training recipe. Must be set with transformer, and not with opaque."""
    profile: Annotated[str, Field(max_length=PROFILE_LENGTH_MAX)] | None = None
    """Traffic that the ranks recorded in a pre-run, as `railwright profile` prints it. If not set,
    the traffic is that which the attempts of the job recorded, or is derived from the other
    fields."""

    @model_validator(mode="after")
    def _holds_together(self) -> Workload:
        for check in (self._ill_formed, self._uneven, self._strange):
            for words in check():
                raise ValueError(words)
        return self

    def on(self, ranks: int) -> Workload:
        """The workload on this number of ranks that compute, with its degree of data parallelism.
        Raises ValueError if something is not shared evenly then."""
        data = self.parallelism.data or max(1, ranks // self.parallelism.replica_ranks)
        split = self.parallelism.model_copy(update={"data": data})
        found = self.model_copy(update={"parallelism": split})
        for words in found._uneven():
            raise ValueError(words)
        return found

    def _uneven(self) -> Iterator[str]:
        has_data = self.parallelism.data is not None
        asked = (each for each in WHOLE if has_data or not each.is_of_ranks)
        return (words for each in asked if (words := each.broken(self)))

    def _ill_formed(self) -> Iterator[str]:
        model, method = self.transformer, self.training
        if (model is None) is (self.opaque is None):
            yield f"{'none is set' if model is None else 'both are set'}: {_ONE_MODEL}"
        if (model is None) is not (method is None):
            yield _TRAINING
        if self.opaque and (servers := self.parallelism.servers):
            yield _SERVED % servers

    def _strange(self) -> Iterator[str]:
        model, split, method = self.transformer, self.parallelism, self.training
        if model is None or method is None:
            return
        chosen, experts = model.experts_per_token, model.experts
        if chosen > experts or (experts == 0) != (chosen == 0):
            yield _CHOSEN % (chosen, experts)
        stages = split.pipeline * split.stages_per_rank
        if model.layers < stages:
            yield _STAGES % (model.layers, stages)
        alone = split.tensor == 1 or method.sequence_parallel or split.rank_order == "DeepSpeed"
        if experts and not alone:
            yield _SEQUENCE % split.tensor
