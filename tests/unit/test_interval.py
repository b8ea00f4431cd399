"""The interval of heartbeats by the number of launchers, and the limits that follow it."""

from __future__ import annotations

import pytest

from fixtures.jobs import layout
from railwright import protocol
from railwright_api.training_job import PROGRESS_TIMEOUT_S_MIN
from railwright_operator import liveness
from railwright_operator.heartbeats import interval
from railwright_operator.heartbeats.interval import INTERVAL_S_MAX
from railwright_operator.heartbeats.sessions import Sessions
from railwright_operator.heartbeats.views import LauncherView
from railwright_operator.suspected_nodes import SUSPECT_S
from railwright_operator.watch import node_leases
from railwright_process.connections import IDLE_S
from railwright_scheduler.attempt import hang
from railwright_scheduler.model.evidence import SILENT_S


class Cluster:
    """Sessions of jobs, and a clock that does not advance."""

    def __init__(self) -> None:
        self.sessions = Sessions(clock=lambda: 100.0, wake=lambda: None)
        self.expect("small", 1)

    def expect(self, job_uid: str, nodes: int) -> None:
        names = tuple(f"n{rank}" for rank in range(nodes))
        self.sessions.expect(job_uid, 1, nodes=names, layout=layout(len(names)), resume={})

    def register(self, job_uid: str, rank: int) -> protocol.Registered:
        message = protocol.Register(
            protocol.Member(job_uid, 1, rank), "10.0.0.1", 1, num_processes=1
        )
        return self.sessions.register(message, f"pod-{rank}")

    def heartbeat(self, sequence: int, job_uid: str = "small") -> protocol.HeartbeatAnswer:
        message = protocol.Heartbeat(protocol.Member(job_uid, 1, 0), sequence, running=1, exited=0)
        return self.sessions.heartbeat(message, "pod-0")

    def rank(self) -> LauncherView:
        view = self.sessions.attempt("small", 1)
        assert view is not None
        return view.ranks[0]


@pytest.mark.parametrize(
    ("launchers", "interval_s"),
    [(0, 2), (1, 2), (800, 2), (801, 3), (2_000, 5), (3_200, 8), (protocol.NODES_MAX, 8)],
)
def test_interval_grows_with_launchers(launchers: int, interval_s: int) -> None:
    assert interval.beat_interval_s(launchers) == interval_s


def test_longest_interval_keeps_the_connection() -> None:
    assert INTERVAL_S_MAX + 5.0 < IDLE_S
    assert INTERVAL_S_MAX <= protocol.HEARTBEAT_INTERVAL_S_MAX


@pytest.mark.parametrize(
    ("waiting", "interval_s"), [(1, None), (1_000, None), (1_001, 1), (2_001, 2), (16_384, 8)]
)
def test_register_interval_grows(waiting: int, interval_s: int | None) -> None:
    assert interval.register_interval_s(waiting) == interval_s


def test_launchers_at_barriers_register_less_often() -> None:
    cluster = Cluster()
    cluster.expect("large", 2_002)
    answers = [cluster.register("large", rank) for rank in range(2_002)]
    intervals_s = [answer.interval_s for answer in answers]
    assert intervals_s == [None] * 1_000 + [1] * 1_000 + [2] + [None]
    assert [answers[-2].order, answers[-1].order] == [protocol.Order.WAIT, protocol.Order.GO]


@pytest.mark.parametrize("ends", ["beat", "revoke", "forget"])
def test_only_launchers_that_wait_count_at_barriers(ends: str) -> None:
    """A heartbeat to a new leader shows that the barrier was passed."""
    cluster = Cluster()
    cluster.expect("large", 2_002)
    for rank in range(1_500):
        cluster.register("large", rank)
    cluster.expect("other", 2)
    assert cluster.register("other", 0).interval_s == 1
    if ends == "beat":
        cluster.heartbeat(1, "large")
    elif ends == "revoke":
        cluster.sessions.revoke("large", 1)
    else:
        cluster.sessions.forget("large")
    assert cluster.register("other", 0).interval_s is None


def test_interval_follows_jobs_that_come_and_go() -> None:
    cluster = Cluster()
    assert cluster.heartbeat(1).interval_s == 2
    cluster.expect("large", 1_999)
    cluster.expect("large", 1_999)
    assert cluster.heartbeat(2).interval_s == 5
    cluster.sessions.revoke("large", 1)
    cluster.sessions.revoke("large", 1)
    assert cluster.heartbeat(3).interval_s == 2
    cluster.sessions.forget("large")
    assert cluster.heartbeat(4).interval_s == 2


def test_silence_limit_follows_what_was_stated() -> None:
    """A launcher keeps to the interval of its last answer, though others came since."""
    cluster = Cluster()
    assert liveness.silence_limit_s(cluster.rank()) == SILENT_S + INTERVAL_S_MAX - 2
    cluster.heartbeat(1)
    cluster.expect("large", 1_999)
    assert liveness.silence_limit_s(cluster.rank()) == SILENT_S
    cluster.heartbeat(1)
    assert liveness.silence_limit_s(cluster.rank()) == SILENT_S + 3
    cluster.sessions.forget("large")
    assert liveness.silence_limit_s(cluster.rank()) == SILENT_S + 3


def test_stacks_have_the_time_of_the_interval() -> None:
    """Launchers read the request in the answer to their next heartbeat, and hurry then."""
    cluster = Cluster()
    cluster.expect("large", 1_999)
    cluster.heartbeat(1)
    cluster.sessions.request_stacks("small", 1, needed=True)
    view = cluster.sessions.attempt("small", 1)
    assert view is not None
    assert view.stacks_since_s == 100.0 + 3
    answer = cluster.heartbeat(2)
    assert (answer.stacks, answer.interval_s) == (True, 2)


def test_lost_node_is_found_before_its_job_hangs() -> None:
    """Also with the longest interval of heartbeats and the least limit that a user may set."""
    asked_s = liveness.silence_limit_s(None) - SUSPECT_S + node_leases.ASK_INTERVAL_S
    renewal_s = node_leases.LEASE_DURATION_S_DEFAULT / node_leases.RENEWALS_PER_LEASE
    found_s = asked_s + renewal_s + node_leases.SLACK_S + node_leases.ASK_INTERVAL_S
    assert found_s < PROGRESS_TIMEOUT_S_MIN + hang.SILENT_EXTRA_S


def test_launchers_of_other_versions_are_answered() -> None:
    """An answer without an interval is read, and one with it by a launcher that has none."""
    assert protocol.decode(protocol.HeartbeatAnswer, b'{"order":"continue"}').interval_s is None
    answer = protocol.decode(
        protocol.HeartbeatAnswer, protocol.encode(protocol.HeartbeatAnswer(protocol.Order.CONTINUE))
    )
    assert answer.interval_s is None
    with pytest.raises(protocol.ProtocolError, match="interval_s"):
        protocol.decode(protocol.HeartbeatAnswer, b'{"order":"continue","interval_s":0}')
