"""The time of the API server, by the dates of its responses."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright_kube.server_clock import DATE_STEP_S, ServerClock

NOW_S = 1.8e9
DAY_S = 86_400.0


class Server:
    """A server whose monotonic time is that of the client, which is ahead by ``error_s``."""

    def __init__(self, error_s: float) -> None:
        self.now_s = 0.0
        self.clock = ServerClock(lambda: self.now_s, wall_s=NOW_S + error_s)

    @property
    def error_s(self) -> float:
        return self.clock() - NOW_S - self.now_s

    def respond(self, *, before_s: float = 0.0, after_s: float = 0.0) -> None:
        """A response so long after its request, and on its way so long."""
        sent_s = self.now_s
        self.now_s += before_s
        date = formatdate(NOW_S + self.now_s, usegmt=True)
        self.now_s += after_s
        self.clock.take_in(date, sent_s=sent_s)


@given(
    st.floats(-1e8, 1e8),
    st.lists(st.tuples(st.floats(0, 100), st.floats(0, 30), st.floats(0, 30)), min_size=1),
)
def test_time_is_the_servers_to_a_second(
    error_s: float, responses: list[tuple[float, float, float]]
) -> None:
    """However long requests and responses take, each bounds the error, and none undoes that."""
    server, bound_s = Server(error_s), float("inf")
    for pause_s, before_s, after_s in responses:
        server.now_s += pause_s
        server.respond(before_s=before_s, after_s=after_s)
        bound_s = min(bound_s, DATE_STEP_S + before_s + after_s)
        assert abs(server.error_s) <= bound_s + 1e-3


def test_clock_that_agrees_is_not_moved() -> None:
    """Dates are whole seconds: the time is not that of the last one."""
    server = Server(0.25)
    for _ in range(10):
        server.now_s += 0.3
        server.respond()
        assert server.error_s == pytest.approx(0.25, abs=0.26)
    before_s = server.error_s
    for _ in range(10):
        server.now_s += 0.3
        server.respond()
    assert server.error_s == pytest.approx(before_s, abs=1e-3)


def test_servers_clock_that_is_set_is_followed() -> None:
    """So is that of a machine that was suspended, in which monotonic time stood still."""
    server = Server(0.0)
    for step_s in (DAY_S, -2 * DAY_S):
        date = formatdate(NOW_S + server.now_s + step_s, usegmt=True)
        server.clock.take_in(date, sent_s=server.now_s)
        assert server.error_s == pytest.approx(step_s, abs=DATE_STEP_S)


@pytest.mark.parametrize("date", ["", "soon", "Thu, 99 Jan 2026 00:00:00 GMT", "1.8e9"])
def test_response_without_a_date_changes_nothing(date: str) -> None:
    server = Server(DAY_S)
    server.clock.take_in(date, sent_s=0.0)
    assert server.error_s == DAY_S
