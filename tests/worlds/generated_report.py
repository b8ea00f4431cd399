"""What becomes of generated objects: read as the operator reads them, and planned beside others.

As a program it draws objects until so many were accepted by a real API server, and prints a report
as its last line: ``python -m worlds.generated_report --accepted 10000 --seed 1``. It exits with 1
where an object raised, took more than its planning budget, or changed what becomes of others.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import orjson

from integration.manifests import ASK, path
from railwright_api import names
from railwright_operator.discovery import Discovery
from railwright_operator.machines import Machines
from railwright_operator.watch import files
from railwright_operator.watch.excerpts import ConfigMap
from railwright_operator.watch.jobs import Jobs, Known
from railwright_operator.watch.pod_index import PodIndex
from railwright_operator.watch.records import NodeRecord
from railwright_operator.watch.site import Site
from railwright_operator.write import pods
from railwright_scheduler import Job, Node, Terms, turn
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.isolation import Isolation, Stage
from railwright_scheduler.turn import Turn
from railwright_scheduler.world import JobSeen, World
from railwright_testbed import ControlPlane
from railwright_testbed.api_client import ApiClient, ApiError
from railwright_topology.fabric import Fabric
from worlds import generated_files, heavy_workloads, observing
from worlds.attempts import RUNNING, rank, seen, world_of
from worlds.generated_files import FileGenerator
from worlds.generated_objects import ObjectGenerator
from worlds.jobs import GPU, job

Json = dict[str, Any]

ROOT = Path(__file__).resolve().parents[2]
LAUNCHER = pods.Launcher("launcher", "http://operator")
CPU_S_MAX = 3.0
"""Of one plan. The bound of counted work stands for half a second; the rest is for noise, and for
the stages whose work is bounded by the cluster's size."""

TOLD_EVERY_S = 20.0
SITE = (names.QUEUES, names.FABRICS, generated_files.PLURAL)
NODES = tuple(f"n{at}" for at in range(12))
TERMS = (
    Terms(required="nearest"),
    Terms(preferred="second", spread=1, spread_tier="nearest"),
    Terms(segment=2, segment_tier="nearest"),
    Terms(aligned=True),
)


@dataclass(slots=True)
class Report:
    """How many objects of all kinds were drawn and accepted, and what they did."""

    generated: int = 0
    accepted: int = 0
    raised: int = 0
    over_budget: int = 0
    delayed_others: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether none of them did any harm."""
        return not (self.raised or self.over_budget or self.delayed_others)

    def fails(self, kind: str, stored: Json, why: str) -> None:
        """Count one that did harm, and keep a few of them as examples."""
        setattr(self, kind, getattr(self, kind) + 1)
        if len(self.examples) < 5:
            self.examples.append(f"{kind}: {why}: {json.dumps(stored)[:4000]}")


def run(client: ApiClient, *, accepted: int, seed: int) -> Report:
    """Draw objects until so many were accepted, nine TrainingJobs to one of each other kind."""
    generator, rng, report = ObjectGenerator(seed), random.Random(seed), Report()
    drawn_files = FileGenerator(random.Random(seed))
    told_s = time.monotonic()
    while report.accepted < accepted:
        plural = rng.choice([names.TRAINING_JOBS] * 9 + [*SITE])
        report.generated += 1
        stored = _stored(client, generator, drawn_files, plural)
        if stored is None:
            continue
        report.accepted += 1
        if plural == names.TRAINING_JOBS:
            check_job(stored, rng, report)
        else:
            check_site(plural, stored, drawn_files.nodes or NODES, report)
        if time.monotonic() - told_s > TOLD_EVERY_S:
            told_s = time.monotonic()
            print(f"{report.accepted} of {accepted} accepted", file=sys.stderr)
    return report


def _stored(
    client: ApiClient, generator: ObjectGenerator, drawn_files: FileGenerator, plural: str
) -> Json | None:
    """The object as the API server would store it; None if it refuses it as invalid."""
    where = path(plural, "default" if plural == names.TRAINING_JOBS else None)
    if plural == names.TRAINING_JOBS:
        manifest = generator.job()
    elif plural == generated_files.PLURAL:
        manifest, where = drawn_files.config_map(), f"/api/v1/namespaces/default/{plural}"
    else:
        manifest = generator.other(plural)
    if plural == names.FABRICS:
        manifest["metadata"]["name"] = names.SINGLETON
    try:
        stored = client.post(where + ASK, manifest)
    except ApiError as error:
        if error.status in (400, 413, 422):
            return None
        raise
    return stored | {"metadata": stored["metadata"] | {"resourceVersion": "1"}}


def check_job(stored: Json, rng: random.Random, report: Report) -> None:
    """Read one accepted job, and plan it behind others on a drawn cluster."""
    jobs, isolation = Jobs(lambda raw: pods.sample(raw, LAUNCHER)), Isolation()
    uid = str(stored["metadata"]["uid"])
    isolation.run(Stage.OBSERVATION, uid, lambda: jobs.absorb(stored), otherwise=None)
    known = jobs.get(uid)
    if known is None:
        _count_faults(isolation, stored, report)
        return  # It is unreadable, and its status says why.
    world = _world(known, rng)
    started_s = time.process_time()
    taken = turn.take(world, isolation)
    cpu_s = time.process_time() - started_s
    _count_faults(isolation, stored, report)
    if cpu_s > CPU_S_MAX:
        report.fails("over_budget", stored, f"{cpu_s:.1f} s of CPU")
    without = replace(world, jobs=tuple(each for each in world.jobs if each.job.uid != uid))
    if repr(_others(taken, uid)) != repr(_others(turn.take(without), uid)):
        report.fails("delayed_others", stored, "others' outcome differs")


def _world(known: Known, rng: random.Random) -> World:
    """The job last in the queue, behind one that starts, one that waits and one that runs."""
    count = rng.choice([4, 12, 12, 24, 64, 200])
    floor = heavy_workloads.cluster(rng, rng.choice(heavy_workloads.SHAPES), count)
    nodes = tuple(_equipped(node) for node in floor.nodes)
    first, second = (node.name for node in nodes[:2])
    record = replace(RUNNING, nodes=(first, second), known="before")
    ranks = (rank(0, node=first), rank(1, node=second, silent_s=99.0, node_gone=True))
    running = replace(seen(record, name="running"), ranks=ranks, bound_age_s=1e6)
    starts = replace(seen(name="starts"), job=job("starts", priority=2**31 - 1))
    waits = replace(seen(name="waits"), job=job("waits", num_nodes=count, priority=2**31 - 2))
    found = world_of(running, starts, waits, _seen(known), nodes=nodes, levels=floor.levels)
    return replace(found, links=floor.links)


def _equipped(node: Node) -> Node:
    amounts = {GPU: 8, "cpu": 64_000, "memory": 2**40, "pods": 110, "ephemeral-storage": 2**40}
    return replace(node, allocatable=amounts, labels={"kind": "h100"})


def _seen(known: Known) -> JobSeen:
    spec = known.job.spec
    return JobSeen(
        job=Job(
            uid=known.uid,
            namespace="default",
            name=known.raw["metadata"]["name"],
            queue=spec.queue,
            priority=0,
            submitted_s=known.submitted_s,
            attempt=1,
            num_nodes=spec.num_nodes,
            per_node=known.per_node,
            selector=known.selector,
            tolerations=known.tolerations,
            ranks_per_node=spec.num_proc_per_node,
            workload=known.workload,
            terms=known.terms,
        ),
        suspend=spec.suspend,
        backoff_limit=spec.backoff_limit,
        record=JobRecord(),
        shape=known.shape,
    )


def _others(taken: Turn, uid: str) -> list[object]:
    return [
        [each for each in taken.ledger.entries if each.job_uid != uid],
        [each for each in taken.actions if each.entry.job_uid != uid],
        *(
            sorted((key, repr(value)) for key, value in found.items() if key != uid)
            for found in (taken.records, taken.waits, taken.assessments, taken.reservations)
        ),
    ]


def check_site(plural: str, stored: Json, nodes: Sequence[str], report: Report) -> None:
    """Take in one accepted Queue, Fabric or ConfigMap with files, put together the network, and
    plan jobs on it: one that asks for nothing of the network starts."""
    site, isolation = Site(), Isolation()
    plain = job("plain", priority=1)
    asked = [job(f"asks{at}", num_nodes=2, terms=terms) for at, terms in enumerate(TERMS)]
    started_s = time.process_time()

    def plan() -> Turn:
        network = asyncio.run(_network(site, plural, stored, nodes))
        floor = Machines(network.records, PodIndex(lambda _: None)).look(network.fabric)
        found = world_of(
            *(replace(seen(name=each.name), job=each) for each in (plain, *asked)),
            nodes=floor,
            levels=network.fabric.levels,
        )
        queues = (*site.queues, "default")
        return turn.take(replace(found, queues=queues, links=network.fabric.links), isolation)

    taken = isolation.run(Stage.OBSERVATION, plural, plan, otherwise=None)
    cpu_s = time.process_time() - started_s
    _count_faults(isolation, stored, report)
    if cpu_s > CPU_S_MAX:
        report.fails("over_budget", stored, f"{cpu_s:.1f} s of CPU")
    if taken is not None and plain.uid not in {each.job_uid for each in taken.ledger.entries}:
        report.fails("delayed_others", stored, "a job without terms does not start")


@dataclass(frozen=True, slots=True)
class _Network:
    """What is known of the network, and the nodes."""

    fabric: Fabric
    records: Mapping[str, NodeRecord]


async def _network(site: Site, plural: str, stored: Json, nodes: Sequence[str]) -> _Network:
    """As the operator puts it together. Raises AssertionError where that raised: the operator would
    go on with what it knew before."""
    discovery = Discovery(site, wake=lambda: None, clock=time.monotonic)
    records = {f"uid-{name}": observing.node_record(name) for name in nodes}
    for record in records.values():
        discovery.node_changed(None, record)
    if plural == generated_files.PLURAL:
        found = files.CONFIG_MAPS.listed(msgspec.Raw(orjson.dumps(stored)))
        assert isinstance(found, ConfigMap), found
        discovery.files_changed(None, files.record(found))
    else:
        site.seen(plural, stored)
        _ = site.queues, site.agents, site.probing
    await discovery.read_files()
    await discovery.refresh()
    assert not discovery.found.problem, discovery.found.problem
    for read in discovery.found.files:
        assert not read.problem.startswith("could not be read"), read.problem
    return _Network(discovery.found.fabric, records)


def _count_faults(isolation: Isolation, stored: Json, report: Report) -> None:
    for fault in isolation.faults:
        report.fails("raised", stored, f"{fault.stage}: {fault.error}")


def main() -> int:
    """Run as the module says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--accepted", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", file=sys.stderr)
    with (
        ControlPlane.start(name="generated") as plane,
        contextlib.closing(plane.client()) as client,
    ):
        plane.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        report = run(client, accepted=chosen.accepted, seed=chosen.seed)
    for example in report.examples:
        print(example, file=sys.stderr)
    print(json.dumps({key: value for key, value in asdict(report).items() if key != "examples"}))
    return 0 if report.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
