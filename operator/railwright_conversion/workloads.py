"""The workload of a job, from its spec to the cost model's value."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
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


def _by_name(values: type[Enum]) -> dict[str, Enum]:
    """Each value by its word in the API, in lower case: its own name, or ``none``."""
    names = {each: each.name.lower().replace("_", "") for each in values}
    return {"none" if name == "nothing" else name: each for each, name in names.items()}


_VALUES: Mapping[str, Mapping[str, Enum]] = MappingProxyType(
    {
        "precision": {
            "bf16": Precision.HALF,
            "fp16": Precision.HALF,
            "fp8": Precision.FP8,
            "fp32": Precision.SINGLE,
        },
        "attention": {"ring": Attention.RING, "ulysses": Attention.HEADS},
        "recompute": _by_name(Recompute),
        "sharding": _by_name(Sharding),
        "optimizer": _by_name(Optimizer),
        "framework": _by_name(Framework),
    }
)
"""The value of each word, in lower case, of a field of Recipe."""


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
    recipe["attention"] = recipe.pop("context")
    recipe["framework"] = recipe.pop("rank_order")
    recipe |= {name: values[recipe[name].lower()] for name, values in _VALUES.items()}
    profile = stored.profile and profiles.profile(
        stored.profile.encode(), ranks_max=PROFILED_RANKS_MAX
    )
    found = Workload(Transformer(**model), Parallelism(**split), Recipe(**recipe), profile or None)
    measured.communicators(found)
    return found
