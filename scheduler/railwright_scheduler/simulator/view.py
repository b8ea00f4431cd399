"""What one leader sees: copies of the tables that lag, launchers that it hears, and its own clock.

All ages count from when this leader first saw a thing, as in the operator: two leaders need not
agree on any of them.
"""

from __future__ import annotations

from railwright_scheduler.attempt.assessment import Crash, PodState, RankSeen
from railwright_scheduler.attempt.gang import Pod
from railwright_scheduler.attempt.ledger import Ledger
from railwright_scheduler.invariants import AttemptKey, PodFact
from railwright_scheduler.simulator.api import Api, Copy, JobObject
from railwright_scheduler.simulator.machines import Machines
from railwright_scheduler.snapshot import Job, Node, Unavailable
from railwright_scheduler.turn import AttemptSeen, JobSeen, World

LEASE_STALE_S = 10


class View:
    """The copies of the tables, and since when what has been seen in them."""

    def __init__(self, api: Api, machines: Machines) -> None:
        self._machines = machines
        self.jobs = Copy(api.jobs)
        self.pods = Copy(api.pods)
        self.nodes = Copy(api.nodes)
        self.placements = Copy(api.placements)
        self.refusals: dict[AttemptKey, str] = {}
        self._since_s: dict[tuple[str, object], int] = {}
        self._heard_s: dict[str, int] = {}

    def relist(self) -> None:
        """Ask for all lists again."""
        for copy in (self.jobs, self.pods, self.nodes, self.placements):
            copy.relist()

    def catch_up(self, table: int, events: int) -> None:
        """Some events of one table arrive."""
        (self.jobs, self.pods, self.nodes, self.placements)[table].catch_up(events)

    def world(self, ledger: Ledger, *, now_s: int) -> World:
        """All of it as the value that a turn is taken from."""
        by_attempt: dict[AttemptKey, list[PodFact]] = {}
        for pod in self.pods.objects.values():
            by_attempt.setdefault(pod.key, []).append(pod)
        keys = {**by_attempt, **{entry.key: [] for entry in ledger.entries}}
        in_ledger = {entry.key for entry in ledger.entries}
        return World(
            ledger=ledger,
            levels=(),
            nodes=self._nodes(),
            queues=("default",),
            jobs=tuple(
                self._job(job, by_attempt, ledger, now_s=now_s)
                for job in self.jobs.objects.values()
            ),
            attempts={
                key: AttemptSeen(
                    pods=tuple(_pod(pod) for pod in by_attempt.get(key, [])),
                    placed=key in self.placements.objects,
                    refusal=self.refusals.get(key),
                    age_s=self._age_s("entry", key, now_s) if key in in_ledger else 0,
                )
                for key in keys
            },
        )

    def _nodes(self) -> tuple[Node, ...]:
        used: dict[str, dict[str, int]] = {}
        for pod in self.pods.objects.values():
            if pod.live:
                total = used.setdefault(pod.node, {})
                for resource, amount in pod.amounts.items():
                    total[resource] = total.get(resource, 0) + amount
        return tuple(
            Node(
                name=node.name,
                domains=(),
                allocatable=node.allocatable,
                used=used.get(node.name, {}),
                unavailable=None if node.ready else Unavailable.UNREADY,
            )
            for node in self.nodes.objects.values()
        )

    def _job(
        self,
        job: JobObject,
        by_attempt: dict[AttemptKey, list[PodFact]],
        ledger: Ledger,
        *,
        now_s: int,
    ) -> JobSeen:
        key = (job.uid, job.record.attempt)
        in_hand = any(entry.key == key for entry in ledger.entries)
        running = job.record.live and not in_hand
        pods = {pod.node_rank: pod for pod in by_attempt.get(key, [])}
        return JobSeen(
            job=Job(
                uid=job.uid,
                namespace="team",
                name=job.name,
                queue="default",
                priority=0,
                submitted_s=job.submitted_s,
                attempt=job.record.attempt + 1,
                num_nodes=job.num_nodes,
                per_node=job.per_node,
            ),
            suspend=job.suspend,
            backoff_limit=job.backoff_limit,
            record=job.record,
            ranks=tuple(
                self._rank(rank, node, pods.get(rank), now_s=now_s)
                for rank, node in enumerate(job.record.nodes if running else ())
            ),
            started=key in self._machines.passed,
            bound_age_s=self._age_s("bound", key, now_s) if running else 0,
            ended_age_s=self._age_s("ended", (job.uid, job.record.ended), now_s),
        )

    def _rank(self, rank: int, node: str, pod: PodFact | None, *, now_s: int) -> RankSeen:
        stored = self.nodes.objects.get(node)
        unready = stored is not None and not stored.ready
        if not unready:
            self._since_s.pop(("unready", node), None)
        down_since_s = self._machines.down_since_s.get(node, now_s)
        # A pod of a running attempt that is not bound was made by a leader held up since the
        # commit, after somebody deleted the one that was bound.
        here = pod if pod is not None and pod.node else None
        return RankSeen(
            node_rank=rank,
            node=node,
            pod=PodState.MISSING if here is None else here.phase,
            deleting=here is not None and here.deleting,
            crash=None if here is None else self._crash(here, now_s=now_s),
            silent_s=None if here is None else self._silent_s(here, now_s=now_s),
            lease_stale=now_s - down_since_s > LEASE_STALE_S,
            node_gone=stored is None,
            unready_s=self._age_s("unready", node, now_s) if unready else None,
        )

    def _crash(self, pod: PodFact, *, now_s: int) -> Crash | None:
        if pod.phase is not PodState.FAILED or pod.exit_code is None:
            return None
        age_s = self._age_s("crash", pod.uid, now_s)
        return Crash(rank=pod.node_rank, exit_code=pod.exit_code, age_s=age_s)

    def _silent_s(self, pod: PodFact, *, now_s: int) -> int | None:
        if self._machines.hears(pod):
            self._heard_s[pod.uid] = now_s
        if pod.key in self._machines.passed:
            self._heard_s.setdefault(pod.uid, now_s)
        heard_s = self._heard_s.get(pod.uid)
        return None if heard_s is None else now_s - heard_s

    def _age_s(self, what: str, key: object, now_s: int) -> int:
        return now_s - self._since_s.setdefault((what, key), now_s)


def _pod(pod: PodFact) -> Pod:
    return Pod(
        name=pod.name,
        uid=pod.uid,
        node_rank=pod.node_rank,
        node=pod.node,
        terminal=pod.terminal,
        deleting=pod.deleting,
    )
