"""The rate limit of pods: what waits, what a launcher may send, and what is forgotten."""

from __future__ import annotations

import pytest

from railwright import protocol
from railwright_process import rate_limit
from railwright_process.rate_limit import RateLimit

HEAD_BYTES = 2048
"""More than a head with the token of an API server."""

BODY_BYTES = 1024
LARGEST = HEAD_BYTES + protocol.MESSAGE_BYTES_MAX
COMMITS_A_S = 4.5
"""Tries again after 0.15 to 0.3 s."""


class Pods:
    """A rate limit, and the time."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.limit = RateLimit(lambda: self.now_s)
        self.waits_s: list[float] = []

    def send(self, size: int = HEAD_BYTES + BODY_BYTES, *, pod: str = "pod") -> float:
        self.waits_s.append(self.limit.reserve(pod, size))
        return self.waits_s[-1]

    def send_for(self, seconds: float, *rates_per_s: float) -> None:
        """Messages at each of these rates a second at the same time."""
        sent = sorted(n / per_s for per_s in rates_per_s for n in range(int(seconds * per_s)))
        began_s = self.now_s
        for at_s in sent:
            self.now_s = began_s + at_s
            self.send()
        self.now_s = began_s + seconds


def test_launcher_never_waits() -> None:
    """The start barrier, an operator that takes no commits, and a node of 64 ranks that ends."""
    pods = Pods()
    pods.send_for(300.0, 1 / (0.8 * protocol.REGISTER_INTERVAL_S))
    pods.send_for(300.0, 1 / protocol.HEARTBEAT_INTERVAL_S, COMMITS_A_S)
    for _ in range(protocol.PROCESSES_MAX):
        pods.send(HEAD_BYTES + BODY_BYTES + protocol.LAST_LINES_BYTES_MAX)
    for _ in range(protocol.PROCESSES_MAX):
        pods.send(LARGEST)
    assert max(pods.waits_s) == 0.0


@pytest.mark.parametrize("size", [0, LARGEST])
def test_pod_without_pause_is_held_to_its_rate(size: int) -> None:
    """A client that waits for each answer gets no more than the rate, and waits little each."""
    pods = Pods()
    end_s = pods.now_s + 600.0
    sent = 0
    while pods.now_s < end_s:
        sent += 1
        wait_s = pods.send(size)
        assert wait_s < 1.0
        pods.now_s += wait_s
    cost_s = rate_limit.MESSAGE_S + size * rate_limit.BYTE_S
    assert sent * cost_s <= 600.0 + rate_limit.BURST_S + 2.0


def test_pods_wait_for_themselves_only() -> None:
    pods = Pods()
    while not pods.send(LARGEST):
        pass
    assert pods.send(pod="other") == 0.0


def test_wait_of_a_flood_is_bounded() -> None:
    pods = Pods()
    for _ in range(10_000):
        pods.send(LARGEST)
    assert 1.0 < max(pods.waits_s) <= rate_limit.WAIT_S_MAX
    pods.now_s += rate_limit.WAIT_S_MAX
    assert pods.send() == 0.0


def test_pods_without_debt_are_forgotten() -> None:
    pods = Pods()
    for number in range(100):
        pods.send(pod=str(number))
    pods.limit.forget_paid()
    assert repr(pods.limit) == "<RateLimit pods=100>"
    pods.now_s += 1.0
    pods.send()
    pods.limit.forget_paid()
    assert repr(pods.limit) == "<RateLimit pods=1>"
