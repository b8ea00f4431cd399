"""SimGrid's fluid model on networks with results that can be computed by hand."""

from __future__ import annotations

import pytest

from bench import flows, step_flows
from bench.flows import Network, Tier
from railwright_scheduler.cost import step
from railwright_scheduler.cost.hardware import DGX_H100
from railwright_scheduler.model.workload import Parallelism, Recipe, Transformer, Workload
from railwright_testbed import requirements

TWO_RACKS = Network(10.0, (Tier((0, 0, 1, 1), (10.0, 10.0)),))
"""Two nodes each, of which one at a time may leave."""


@pytest.fixture(scope="module", autouse=True)
def simulator() -> None:
    requirements.install_modules(flows.PACKAGE)


@pytest.mark.parametrize(
    ("sent", "took_s"),
    [
        ([(0, 1, 100.0)], 10.0),
        ([(0, 1, 100.0), (1, 0, 100.0)], 10.0),
        ([(0, 2, 100.0), (1, 3, 100.0)], 20.0),
        ([(0, 2, 100.0), (3, 1, 100.0)], 10.0),
        # Half as much is through after 10 s; the rest of the other then goes twice as fast.
        ([(0, 2, 100.0), (1, 3, 50.0)], 15.0),
        ([(0, 1, 100.0), (0, 2, 50.0)], 15.0),
        ([], 0.0),
    ],
)
def test_flows_share_what_they_have_to(sent: list[flows.Flow], took_s: float) -> None:
    whole = [(0, 3, 30.0)]
    assert flows.seconds(TWO_RACKS, [sent, whole, sent]) == pytest.approx([took_s, 3.0, took_s])


def test_ring_across_racks_takes_twice_as_long() -> None:
    """The order of ranks alternates between two racks, so that each uplink carries the ring
    twice."""
    rings = [
        [(one, other, 100.0) for one, other in zip(ring, [*ring[1:], ring[0]], strict=True)]
        for ring in ([0, 1, 2, 3], [0, 2, 1, 3])
    ]
    assert flows.seconds(TWO_RACKS, rings) == pytest.approx([10.0, 20.0])


def test_uplinks_further_out_are_shared_as_well() -> None:
    blocks = Network(10.0, (Tier((0, 1, 2, 3), (10.0,) * 4), Tier((0, 0, 1, 1), (5.0, 5.0))))
    within, beyond = [(0, 1, 100.0)], [(0, 2, 100.0), (1, 3, 100.0)]
    assert flows.seconds(blocks, [within, beyond]) == pytest.approx([10.0, 40.0])


def test_unshared_step_takes_predicted_time_plus_messages() -> None:
    """The flow model leaves out the latency of messages, so it is a little below the prediction."""
    model = Transformer(32, 8192, 64, 64, 128, 4 * 8192, 51_200)
    workload = Workload(model, Parallelism(tensor=8, pipeline=2, data=2), Recipe(2048, 1, 32))
    network = Network(8 * DGX_H100.network.bandwidth, ())
    phases = step_flows.phases(workload, 8)
    took_s = flows.seconds(network, [phase.flows for phase in phases])
    found_s = step_flows.step_s(workload, DGX_H100, dict(zip(phases, took_s, strict=True)))
    predicted_s = step.predict(*workload.parts, DGX_H100).total
    assert found_s == pytest.approx(predicted_s, rel=3e-3)
    assert found_s < predicted_s
