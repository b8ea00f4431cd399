"""The links between unlike machines, for a group whose ranks stand on several of them.

The slowest part of each decides. Adapters of any maker speak to each other; what they send they
take from the memory of their devices where they can, which all devices of one maker do. Devices of
several makers do where it is said of each of them. Otherwise what is sent goes through the memory
of both hosts: copied there, sent, and copied on. Pieces follow each other, so the slowest of those
parts decides how much goes through, and a message takes the time of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from railwright_scheduler.cost.hardware import LAUNCH_S, Fact, Host, Link, Machine

CROSSINGS = 4
"""Of a host's memory by each byte that its device sends and gets: written to it and read from it on
the way there, and on the way back."""


def joined(machines: Sequence[Machine]) -> Machine:
    """One that stands for all of these where their ranks communicate: the slowest of each part, and
    the algorithms that all have. Neither their own switches nor the network's add up what unlike
    kinds send."""
    first, *others = machines
    if not others:
        return first
    alike = all(each.name == first.name for each in others)
    return replace(
        first,
        inside=_slowest([each.inside for each in machines]),
        network=_network(machines),
        all_to_all=min(each.all_to_all for each in machines),
        host=_host([each.host for each in machines]),
        nvls=first.nvls if alike else None,
        sharp_s=first.sharp_s if alike else None,
        algorithms=tuple(
            its for its in first.algorithms if all(its in each.algorithms for each in others)
        ),
    )


def _network(machines: Sequence[Machine]) -> Link:
    """What one adapter reaches."""
    adapters = _slowest([each.network for each in machines])
    makers = {each.device.maker for each in machines}
    if len(makers) == 1 or all(each.device.direct for each in machines):
        return adapters
    bandwidth = min(adapters.bandwidth, *(_through_host(each) for each in machines))
    step_s = Fact(adapters.step_s + 2 * LAUNCH_S, f"{adapters.step_s.source}; {LAUNCH_S.source}")
    return Link(bandwidth, step_s)


def _through_host(machine: Machine) -> Fact:
    """Bytes a second of each device, while all devices of the node send and get."""
    memory = machine.host.memory
    share = Fact(memory / (CROSSINGS * machine.devices), f"{memory.source}, shared")
    return min(machine.host.copy, share)


def _slowest(links: Sequence[Link]) -> Link:
    return Link(min(each.bandwidth for each in links), max(each.step_s for each in links))


def _host(hosts: Sequence[Host]) -> Host:
    return Host(
        clock=min(each.clock for each in hosts),
        memory=min(each.memory for each in hosts),
        copy=min(each.copy for each in hosts),
        load=min(each.load for each in hosts),
        store=min(each.store for each in hosts),
    )
