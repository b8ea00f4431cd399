"""The log of a pod: lines are printed once, whatever breaks; ranks of a pre-run are found."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, cast

import pytest

from railwright_cli.api_objects import (
    ContainerView,
    JobSpecView,
    JobView,
    MetadataView,
    PlacementSpecView,
    PlacementView,
    PodSpecView,
    PodView,
    RoleView,
)
from railwright_cli.api_server import ApiServer
from railwright_cli.errors import AccessDeniedError, RequestError
from railwright_cli.jobs import JobReference
from railwright_cli.pod_log import WHOLE, PodLog, Window
from railwright_cli.pods import roles_of_attempt

POD = PodView(MetadataView("p", "team"), PodSpecView((ContainerView("train"),), "n1"))
KUBELET = b"failed to create fsnotify watcher: too many open files\n"


class Streams:
    """A stand-in for the API server: what each opened log has, and whether it breaks off then."""

    def __init__(self, *streams: tuple[list[bytes], bool]) -> None:
        self._streams = iter(streams)
        self.queries: list[dict[str, Any]] = []

    def lines(
        self, path: str, query: dict[str, Any], *, silence_s: float, part_bytes: int
    ) -> Iterator[bytes]:
        """The lines of the next stream."""
        self.queries.append(query)
        lines, is_broken = next(self._streams)
        yield from lines
        if is_broken:
            raise RequestError(0, "broken")


def at(second: int, text: str) -> bytes:
    """A line as kubelets write it."""
    return f"2026-01-01T00:00:{second:02d}.000000000Z {text}\n".encode()


def test_lines_are_printed_once_though_streams_break(capsysbinary: Any) -> None:
    """Several lines may have one time."""
    streams = Streams(
        ([at(1, "a"), at(2, "b"), at(2, "c")], True),
        ([at(2, "b"), at(2, "c"), at(2, "d"), at(3, "e")], True),
        ([at(3, "e")], True),
        ([at(3, "e"), at(3, "f"), at(4, "")], False),
    )
    log = PodLog(cast(ApiServer, streams), POD, None)
    for _ in range(3):
        with pytest.raises(RequestError):
            log.print_further(is_followed=True)
    log.print_further(is_followed=True)
    printed = capsysbinary.readouterr()
    assert printed.out == b"a\nb\nc\nd\ne\nf\n\n"
    assert printed.err == b"railwright: attempt 0, pod p, node n1\n"
    assert log.count == 7
    assert [query.get("sinceTime", "")[17:19] for query in streams.queries] == [
        "",
        "02",
        "03",
        "03",
    ]


def test_line_of_the_kubelet_is_printed_once(capsysbinary: Any) -> None:
    streams = Streams(
        ([at(1, "a"), KUBELET], True), ([at(1, "a"), KUBELET], True), ([at(2, "b")], False)
    )
    log = PodLog(cast(ApiServer, streams), POD, None)
    for _ in range(2):
        with pytest.raises(RequestError):
            log.print_further(is_followed=True)
    log.print_further(is_followed=True)
    printed = capsysbinary.readouterr()
    assert printed.out == b"a\nb\n"
    assert printed.err.count(KUBELET) == 1
    assert log.count == 2


@pytest.mark.parametrize("lines", [[KUBELET], [KUBELET, b"unable to retrieve container logs\n"]])
def test_words_of_the_kubelet_alone_are_no_log(lines: list[bytes], capsysbinary: Any) -> None:
    """What the log lacks can be in the status. Of a log that is opened again, it is no line."""
    streams = Streams(
        (lines, False), (lines, False), ([], False), ([at(1, "a")], False), (lines, False)
    )
    log = PodLog(cast(ApiServer, streams), POD, None, Window(lines=3))
    for is_read in (False, False, True, True, False):
        with nullcontext() if is_read else pytest.raises(RequestError, match="nothing was read"):
            log.print_further(is_followed=True)
    printed = capsysbinary.readouterr()
    assert printed.out == b"a\n"
    assert [printed.err.count(each) for each in lines] == [1] * len(lines)
    assert [query.get("tailLines") for query in streams.queries] == ["3"] * 3 + [None] * 2


def test_tail_within_lines_of_one_time_goes_on_after_its_last(capsysbinary: Any) -> None:
    """Runtimes give all lines that they read at once the same time."""
    group = [at(1, text) for text in ("a", "long", "b", "c")]
    streams = Streams(
        (group[2:], True), ([*group, at(1, "d")], True), ([*group, at(1, "d"), at(2, "e")], False)
    )
    log = PodLog(cast(ApiServer, streams), POD, None, Window(lines=2))
    for _ in range(2):
        with pytest.raises(RequestError):
            log.print_further(is_followed=True)
    log.print_further(is_followed=True)
    assert capsysbinary.readouterr().out == b"b\nc\nd\ne\n"


def test_lines_of_other_ranks_are_left_out(capsysbinary: Any) -> None:
    long = f"[rank {'3' * 5000}] of no rank"
    texts = ("[rank 3] x", "[rank 31] y", "railwright: z", "[rank 3] [rank 1] own", long)
    streams = Streams(([at(1, text) for text in texts], False))
    PodLog(cast(ApiServer, streams), POD, 3).print_further(is_followed=False)
    assert capsysbinary.readouterr().out == b"[rank 3] x\nrailwright: z\n[rank 3] [rank 1] own\n"


@pytest.mark.parametrize(("rank", "printed"), [(None, b"abcdefg\nh\n"), (3, b"h\n")])
def test_long_line_goes_on_where_its_stream_broke(
    capsysbinary: Any, rank: int | None, printed: bytes
) -> None:
    """It is there again from its beginning, in other parts."""
    start = at(2, "[rank 1] ab")[:-1]
    streams = Streams(
        ([at(1, "[rank 1] -"), start, b"cd"], True),
        ([start, b"c"], True),
        ([start, b"cde", b"fg\n", at(2, "[rank 3] h")], True),
        ([start + b"cdefg\n", at(2, "[rank 3] h")], False),
    )
    log = PodLog(cast(ApiServer, streams), POD, rank)
    for _ in range(3):
        with pytest.raises(RequestError):
            log.print_further(is_followed=True)
    log.print_further(is_followed=True)
    found = capsysbinary.readouterr().out
    assert re.sub(rb"\[rank \d\] |-\n", b"", found) == printed


def test_line_without_an_end_is_ended_once(capsysbinary: Any) -> None:
    streams = Streams(*[([at(1, "a"), at(2, "b")[:-1]], False)] * 2)
    log = PodLog(cast(ApiServer, streams), POD, None)
    for _ in range(2):
        log.print_further(is_followed=True)
    assert capsysbinary.readouterr().out == b"a\nb\n"


def test_line_whose_stream_ended_within_it_goes_on(capsysbinary: Any) -> None:
    """The view ends the line at first, for a terminal."""
    streams = Streams(([at(1, "abc")[:-1]], False), ([at(1, "abcdef"), at(2, "g")], False))
    log = PodLog(cast(ApiServer, streams), POD, None)
    for _ in range(2):
        log.print_further(is_followed=True)
    assert capsysbinary.readouterr().out == b"abc\ndef\ng\n"


def test_line_whose_stamp_is_no_date_is_the_kubelets(capsysbinary: Any) -> None:
    """The log is opened again after a line, as only then times are compared."""
    odd = b"2026-02-30T00:00:00Z x\n"
    streams = Streams(([at(1, "a")], True), ([at(1, "a"), odd, at(2, "b")], False))
    log = PodLog(cast(ApiServer, streams), POD, None)
    with pytest.raises(RequestError):
        log.print_further(is_followed=True)
    log.print_further(is_followed=True)
    printed = capsysbinary.readouterr()
    assert printed.out == b"a\nb\n"
    assert odd in printed.err


LIMITS = ("sinceSeconds", "sinceTime", "tailLines")


@pytest.mark.parametrize(
    ("window", "first", "again"),
    [
        (WHOLE, {}, {}),
        (Window(lines=0), {"tailLines": "0"}, {"sinceSeconds": "8"}),
        (Window(seconds=60), {"sinceSeconds": "60"}, {"sinceSeconds": "67"}),
        (Window(5, 60), {"tailLines": "5", "sinceSeconds": "60"}, {"sinceSeconds": "67"}),
    ],
)
def test_window_is_that_of_the_first_opening(
    window: Window, first: dict[str, str], again: dict[str, str]
) -> None:
    """What came while the log was away is printed, also if no line was before; the API server takes
    ``sinceTime`` without ``sinceSeconds`` only."""
    streams = Streams(
        ([], True), ([], True), ([at(1, "a")], True), ([at(1, "a"), at(2, "b")], False)
    )
    times = iter([100.0, 101.0, 106.5, 107.0])
    log = PodLog(cast(ApiServer, streams), POD, None, window, clock=lambda: next(times))
    for _ in range(3):
        with pytest.raises(RequestError):
            log.print_further(is_followed=True)
    log.print_further(is_followed=True)
    limits = [{name: query[name] for name in LIMITS if name in query} for query in streams.queries]
    del limits[1]
    assert limits == [first, again, {"sinceTime": "2026-01-01T00:00:01.000000000Z"}]
    assert log.count == 2


class Placements:
    """A stand-in for the API server that has one Placement, or refuses to show it."""

    def __init__(self, found: PlacementView | None, *, is_refused: bool) -> None:
        self._found, self._is_refused = found, is_refused

    def find(self, path: str, kind: type) -> PlacementView | None:
        """The Placement."""
        assert path.endswith("/placements/job-1")
        if self._is_refused:
            raise AccessDeniedError(403, "refused")
        return self._found


LEARNER, ACTOR = RoleView("learner", "g", 4, 8), RoleView("actor", "g", 2, 8)


@pytest.mark.parametrize(
    ("found", "is_refused", "roles"),
    [
        ((RoleView("learner", None, 1),), False, (RoleView("learner", "g", 1, 8),)),
        ((RoleView("gone", None, 1),), False, (ACTOR, LEARNER)),
        (None, False, (ACTOR, LEARNER)),
        (None, True, (ACTOR, LEARNER)),
    ],
)
def test_roles_are_those_of_the_attempt(
    found: tuple[RoleView, ...] | None, is_refused: bool, roles: tuple[RoleView, ...]
) -> None:
    """A pre-run has fewer pods, of the role that trains alone."""
    placement = None if found is None else PlacementView(PlacementSpecView((), found))
    server = cast(ApiServer, Placements(placement, is_refused=is_refused))
    job = JobView(MetadataView("job", "team"), JobSpecView(roles=(ACTOR, LEARNER)))
    assert roles_of_attempt(JobReference(server, "team", "job"), job, 1) == roles
    assert roles_of_attempt(JobReference(server, "team", "job"), job, 0) == (ACTOR, LEARNER)
