"""What a job trains, as its user says it and as the cost model computes with it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from railwright_api import workload as api
from railwright_reading import profiles
from railwright_scheduler.communication import measured
from railwright_scheduler.workload import (
    Attention,
    Framework,
    Optimizer,
    Parallelism,
    Precision,
    Recipe,
    Recompute,
    Sharding,
    Transformer,
    Workload,
)

_PRECISION = {
    "bf16": Precision.HALF,
    "fp16": Precision.HALF,
    "fp8": Precision.FP8,
    "fp32": Precision.SINGLE,
}
_RECOMPUTE = {
    "none": Recompute.NOTHING,
    "attention": Recompute.ATTENTION,
    "layers": Recompute.LAYERS,
}
_SHARDING = {
    "none": Sharding.NOTHING,
    "optimizer": Sharding.OPTIMIZER,
    "gradients": Sharding.GRADIENTS,
    "parameters": Sharding.PARAMETERS,
}
_CONTEXT = {"ring": Attention.RING, "ulysses": Attention.HEADS}
_OPTIMIZER = {"device": Optimizer.DEVICE, "host": Optimizer.HOST, "disk": Optimizer.DISK}
_FRAMEWORK: Mapping[str, Framework] = MappingProxyType(
    {
        "megatron": Framework.MEGATRON,
        "megatron-pipeline-first": Framework.MEGATRON_PIPELINE_FIRST,
        "deepspeed": Framework.DEEPSPEED,
        "torch": Framework.TORCH,
    }
)


PROFILED_RANKS_MAX = 1_024
"""Of more, reading a job would keep others waiting; a pre-run takes few."""


def workload(said: api.Workload) -> Workload:
    """The same, as the scheduler computes with it. Raises ValueError for a profile that is none, or
    not of such a job."""
    model, split, method = said.model, said.parallelism, said.training
    found = Workload(
        Transformer(
            layers=model.layers,
            hidden=model.hidden,
            heads=model.heads,
            kv_heads=model.kv_heads or model.heads,
            head_size=model.head_size or model.hidden // model.heads,
            feed_forward=model.feed_forward,
            vocabulary=model.vocabulary,
            gated=model.gated,
            biased=model.biased,
            tied=model.tied,
            positions=model.positions,
            experts=model.experts,
            chosen=model.experts_per_token,
            chosen_nodes=model.nodes_per_token,
        ),
        Parallelism(
            tensor=split.tensor,
            context=split.context,
            pipeline=split.pipeline,
            virtual=split.stages_per_rank,
            data=split.data,
            expert=split.expert,
            replicas=split.replicas,
            servers=split.servers,
        ),
        Recipe(
            sequence=method.sequence,
            micro_batch=method.micro_batch,
            global_batch=method.global_batch,
            precision=_PRECISION[method.precision],
            recompute=_RECOMPUTE[method.recompute],
            fused_attention=method.fused_attention,
            sequence_parallel=method.sequence_parallel,
            sharding=_SHARDING[method.sharding],
            gradient_bytes=method.gradient_bytes,
            fused_loss=method.fused_loss,
            overlap=method.overlap,
            overlap_tensor=method.overlap_tensor,
            overlap_experts=method.overlap_experts,
            forwarded=method.forwarded,
            attention=_CONTEXT[method.context],
            optimizer=_OPTIMIZER[method.optimizer],
            framework=_FRAMEWORK[method.framework],
        ),
        profiles.profile(said.profile.encode(), ranks_max=PROFILED_RANKS_MAX)
        if said.profile
        else None,
    )
    measured.communicators(found)
    return found
