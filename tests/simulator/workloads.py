"""What jobs declare about the traffic of their ranks, and what their ranks record of it."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from railwright import profile, protocol, strides
from railwright_api.training_job import TrainingJobSpec

Json = dict[str, Any]

PRODUCT = "NVIDIA-A100-SXM4-80GB"
"""The label of the devices of all nodes, and what torch calls them, with dashes for spaces."""

PROCESSES = (1, 2)
OPAQUE, RECORDING, FITTING = 0.2, 0.75, 0.9
"""In how many jobs the model is not described, the ranks record, and what they record is that of
the declared parallelism."""

SKIPPED_STEPS = 2
RECORDED_STEPS = (0, 0, 2, 4)

TRANSFORMER = {
    "layers": 32,
    "hidden": 8192,
    "heads": 64,
    "feedForward": 32_768,
    "vocabulary": 51_200,
}
TRAINING = {"sequence": 64, "globalBatch": 840}
"""A step takes some seconds, and several times as long on slow links. The batch can be shared by
any number of ranks up to 8."""


class Workloads:
    """The workloads of all jobs of a run. ``declared`` is the share of jobs that have one, and
    ``pre_runs`` the share of these that have a pre-run."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._recording: dict[str, bool] = {}
        self._fitting: dict[str, bool] = {}
        self.declared = 0.0
        self.pre_runs = 0.0

    def declare(self, spec: Json, *, training: int = 0) -> Json:
        """The spec of a new job with a workload of the role at this place, or as it is."""
        if not self.declared or self._rng.random() >= self.declared:
            return spec
        roles = [*spec["roles"]]
        roles[training] = roles[training] | {"processesPerReplica": self._rng.choice(PROCESSES)}
        workload: Json = {"parallelism": {}}
        if training:
            workload["role"] = roles[training]["name"]
        if self._rng.random() < OPAQUE:
            workload["opaque"] = {}
        else:
            workload |= {"transformer": TRANSFORMER, "training": TRAINING}
        declared = {
            **spec,
            "roles": roles,
            "workload": workload,
            "profiling": self.draw_profiling(),
        }
        found = TrainingJobSpec.model_validate(declared)
        return found.model_dump(by_alias=True, exclude_none=True, mode="json")

    def draw_profiling(self) -> Json:
        """What the ranks of a job with a workload are to record."""
        rng = self._rng
        pre_run = "Auto" if rng.random() < self.pre_runs else "Never"
        return {"preRun": pre_run, "steps": rng.choice(RECORDED_STEPS) if self.pre_runs else 0}

    def records(self, job_uid: str) -> bool:
        """Whether the ranks of this job can record."""
        return self._draw(self._recording, job_uid, RECORDING)

    def record(self, job_uid: str, rank: int, ranks: int, steps: int) -> profile.Recorded:
        """What a rank recorded: all ranks reduce their gradients together; in a job whose
        parallelism is another one than it declares, all but the last."""
        size = ranks if self._draw(self._fitting, job_uid, FITTING) else max(1, ranks - 1)
        group = strides.folded(range(size))
        traffic = profile.Calls(
            group, profile.Operation.ALL_REDUCE, "bfloat16", steps, steps << 30, seconds=0.5
        )
        calls = (traffic,) if rank < size else ()
        device = PRODUCT.replace("-", " ")
        return profile.Recorded(rank, ranks, steps, 2.0, None, calls, device)

    def _draw(self, drawn: dict[str, bool], job_uid: str, share: float) -> bool:
        if job_uid not in drawn:
            drawn[job_uid] = self._rng.random() < share
        return drawn[job_uid]


class Recording:
    """The recordings of the ranks of one launcher, from its pod's environment: ``steps`` steps
    after the first ones; 0 for none."""

    def __init__(
        self, workloads: Workloads, member: protocol.Member, environment: Mapping[str, str]
    ) -> None:
        self._workloads = workloads
        self._steps = int(environment.get("RAILWRIGHT_PROFILE_STEPS", 0))
        self._sent = False
        self.member = member
        self.is_pre_run = "RAILWRIGHT_PRE_RUN" in environment
        self.processes = int(environment["RAILWRIGHT_NUM_PROCESSES"])

    def due(self, world: protocol.WorldInfo, steps: int) -> list[profile.Handover]:
        """The messages to send now, when this attempt has made so many ``steps``. In a pre-run they
        are sent again and again, as an operator that restarts loses what it received."""
        member = self.member
        is_over = self._steps > 0 and steps >= SKIPPED_STEPS + self._steps
        is_sent = self._sent and not self.is_pre_run
        if not is_over or is_sent or not self._workloads.records(member.job_uid):
            return []
        ranks = range(world.first_rank, world.first_rank + self.processes)
        return [
            profile.Handover(
                member,
                self._workloads.record(member.job_uid, rank, world.world_size, self._steps),
            )
            for rank in ranks
        ]

    def sent(self) -> None:
        """The operator has all of them."""
        self._sent = True
