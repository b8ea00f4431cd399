"""NodeHealth: what is known of one node's hardware, and how fast it is."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright_api import names
from railwright_api.interconnect import Level
from railwright_api.schema import (
    AGE,
    Column,
    Count,
    Definition,
    NonNegativeDecimal,
    Part,
    Resource,
    Sentence,
)

RAILS_MAX = 256
RAIL_MAX = 65_535
SENTENCES_MAX = 16
SOURCES_MAX = 32


class MiscabledAdapter(Part):
    """Adapter that is cabled to another switch than those of neighbouring nodes on its rail."""

    rail: Annotated[int, Field(ge=0, le=RAIL_MAX)]
    """Number of the rail."""
    adapter: Sentence
    """Name of the adapter."""
    reason: Sentence
    """Switch that the adapter is cabled to, and the expected switch."""


class NodeRails(Part):
    """Rails of the node's adapters."""

    order: Annotated[tuple[Count, ...], Field(default_factory=tuple, max_length=RAILS_MAX)]
    """Rail of each adapter of a node of this kind, in the order of the adapters."""
    miscabled: Annotated[
        tuple[MiscabledAdapter, ...], Field(default_factory=tuple, max_length=RAILS_MAX)
    ]
    """Adapters on the wrong switch."""


class NodeSpeed(Part):
    """Speed of the node's slowest device over that of most devices of its kind."""

    products: NonNegativeDecimal
    """Relative speed in matrix products. 1 is the usual speed."""
    memory: NonNegativeDecimal
    """Relative speed in memory copies. 1 is the usual speed."""


class NodeHealthSpec(Part):
    """Hardware of one node, and its speed."""

    hardware: Sentence | None = None
    """Accelerators and what links them, adapters that are rails, and those that are front-end."""
    device: Level | None = None
    """Product name of the accelerators, as their driver has it, with dashes for spaces; such as
    `NVIDIA-H100-80GB-HBM3`. Set if all of them are of one model that the cost model has. Takes
    precedence over the node label `nvidia.com/gpu.product`, unless the label adds a suffix to this
    name, as for partitions (MIG)."""
    unknown: Annotated[tuple[Sentence, ...], Field(default_factory=tuple, max_length=SENTENCES_MAX)]
    """Properties of the hardware that no source reports."""
    rails: NodeRails | None = None
    """Rails of the node; absent if unknown."""
    relative_speed: NodeSpeed | None = None
    """Relative speed of the node; absent if it is the usual one, or was not measured."""
    slow: Annotated[tuple[Sentence, ...], Field(default_factory=tuple, max_length=SENTENCES_MAX)]
    """Devices that are slower than most of their kind, with the measured and the usual speed."""
    sources: Annotated[tuple[Level, ...], Field(default_factory=tuple, max_length=SOURCES_MAX)]
    """Names of the sources of this information."""


class NodeHealth(Resource):
    """NodeHealth has the hardware of one node and its speed, by which jobs are placed. It has the
    name of the node, and is deleted with it."""

    kind: Literal["NodeHealth"] = "NodeHealth"
    spec: NodeHealthSpec
    """Observed hardware of the node. Written by the controllers; read-only."""


DEFINITION = Definition(
    NodeHealth,
    plural=names.NODE_HEALTHS,
    scope="Cluster",
    categories=("railwright",),
    columns=(
        Column("Speed", ".spec.relativeSpeed.products"),
        Column("Miscabled", ".spec.rails.miscabled[0].adapter"),
        Column("Slow", ".spec.slow[0]"),
        Column("Hardware", ".spec.hardware"),
        AGE,
        Column("Unknown", ".spec.unknown", wide=True),
    ),
    short_names=("nh",),
    has_status=False,
)
