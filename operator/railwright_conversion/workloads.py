"""The workload of a job, from its spec to the cost model's value."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from railwright_api import workload as api
from railwright_conversion import profiles
from railwright_scheduler.communication import measured
from railwright_scheduler.model.profile import Profile
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


def convert(
    stored: api.Workload | None, ranks: int, recorded: str = "", *, servers: int = 0
) -> Workload | None:
    """Convert a job's ``spec.workload`` on this number of ranks, beside so many parameter servers,
    with its profile, or else the ``recorded`` one; None if nothing is stated and nothing was
    recorded. Raises ValueError for a profile that is malformed or does not fit."""
    if stored is not None:
        return stated(stored, ranks, recorded, servers=servers)
    return _recorded_alone(ranks, recorded) if recorded else None


def stated(stored: api.Workload, ranks: int, recorded: str = "", *, servers: int = 0) -> Workload:
    """Convert a workload. A field that the cost model has under another name is renamed, and the
    constructors refuse every other. Raises ValueError."""
    stored = stored.on(ranks)
    split = dict(stored.parallelism) | {"servers": servers}
    split["virtual"] = split.pop("stages_per_rank")
    framework = Framework(split.pop("rank_order"))
    profile = _profile(stored.profile or recorded)
    if stored.transformer is None or stored.training is None:
        return _opaque(Parallelism(**split), profile, framework)
    model, recipe = dict(stored.transformer), dict(stored.training)
    model["kv_heads"] = model["kv_heads"] or model["heads"]
    model["head_size"] = model["head_size"] or model["hidden"] // model["heads"]
    model["chosen"] = model.pop("experts_per_token")
    model["chosen_nodes"] = model.pop("nodes_per_token")
    recipe["precision"] = _PRECISIONS[recipe["precision"]]
    recipe["attention"] = Attention(recipe.pop("context"))
    recipe["recompute"] = Recompute(recipe["recompute"])
    recipe["sharding"] = Sharding[recipe["sharding"].upper()]
    recipe["optimizer"] = Optimizer(recipe["optimizer"])
    trained = Recipe(**recipe, framework=framework)
    return _checked(Workload(Transformer(**model), Parallelism(**split), trained, profile))


def _recorded_alone(ranks: int, recorded: str) -> Workload:
    profile = _profile(recorded)
    if profile and profile.ranks != ranks:
        raise ValueError(
            f"the profile is of {profile.ranks} ranks, and the job has {ranks}: expected a "
            "workload, by whose parallelism it can be scaled"
        )
    return _opaque(Parallelism(data=ranks), profile, Framework.MEGATRON)


def _opaque(split: Parallelism, profile: Profile | None, framework: Framework) -> Workload:
    recipe = Recipe(sequence=1, micro_batch=1, global_batch=split.data, framework=framework)
    return _checked(Workload(None, split, recipe, profile))


def _profile(document: str) -> Profile | None:
    if not document:
        return None
    return profiles.profile(document.encode(), ranks_max=PROFILED_RANKS_MAX)


def _checked(workload: Workload) -> Workload:
    measured.communicators(workload)
    return workload
