"""The workload of a job, from its spec to the cost model's value."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from railwright_api import workload as api
from railwright_conversion import profiles
from railwright_scheduler.communication import measured
from railwright_scheduler.model.workload import (
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

PROFILED_RANKS_MAX = 1_024
"""Converting a profile of more ranks would delay other jobs; a pre-run has few."""


_PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {
        "BF16": Precision.HALF,
        "FP16": Precision.HALF,
        "FP8": Precision.FP8,
        "FP32": Precision.SINGLE,
    }
)


def workload(stored: api.Workload) -> Workload:
    """Convert a job's ``spec.workload``. A field that the cost model has under another name is
    renamed, and the constructors refuse every other. Raises ValueError for a profile that is
    malformed or does not fit the parallelism."""
    model, split, recipe = map(dict, (stored.transformer, stored.parallelism, stored.training))
    model["kv_heads"] = model["kv_heads"] or model["heads"]
    model["head_size"] = model["head_size"] or model["hidden"] // model["heads"]
    model["chosen"] = model.pop("experts_per_token")
    model["chosen_nodes"] = model.pop("nodes_per_token")
    split["virtual"] = split.pop("stages_per_rank")
    recipe["precision"] = _PRECISIONS[recipe["precision"]]
    recipe["attention"] = Attention(recipe.pop("context"))
    recipe["recompute"] = Recompute(recipe["recompute"])
    recipe["sharding"] = Sharding[recipe["sharding"].upper()]
    recipe["optimizer"] = Optimizer(recipe["optimizer"])
    recipe["framework"] = Framework(recipe.pop("rank_order"))
    profile = stored.profile and profiles.profile(
        stored.profile.encode(), ranks_max=PROFILED_RANKS_MAX
    )
    found = Workload(Transformer(**model), Parallelism(**split), Recipe(**recipe), profile or None)
    measured.communicators(found)
    return found
