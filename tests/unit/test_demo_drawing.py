"""What the demo shows: a picture redrawn in place on a terminal, lines of a story elsewhere."""

from __future__ import annotations

import io
from dataclasses import replace

from railwright_demo import drawing, scene
from railwright_demo.scene import Event, Job, Node, Scene
from railwright_demo.screen import Screen

NODES = (
    Node("node-a1", "rack-a"),
    Node("node-b1", "rack-b"),
    Node("node-c1", "rack-c", ready=False),
)
TRAINS = Scene(
    72.4,
    Job(
        phase="Running",
        message="attempt 1 on node-a1,node-b1",
        attempt=1,
        nodes=("node-a1", "node-b1"),
        step=24,
        total_steps=60,
        loss=1.23456,
        checkpoint=(1, 20),
    ),
    NODES,
    events=(Event("ddp.1", "Scheduled", "attempt 1: 2 nodes"),),
)


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_the_picture_shows_racks_ranks_progress_and_events() -> None:
    rows = drawing.picture(TRAINS, "job ddp")
    assert rows[0] == "01:12  job ddp: Running, attempt 1"
    assert "  rack-a  node-a1  rank 0  ready" in rows
    assert "  rack-c  node-c1  free    not ready" in rows
    assert (
        "  step  24 of 60  █████████░░░░░░░░░░░░░░░  loss 1.2346  checkpoint: step 20 of attempt 1"
    ) in rows
    assert rows[-1] == "  Scheduled   attempt 1: 2 nodes"


def test_dead_node_is_shown_lost_only_once_named_by_operator() -> None:
    """The demo draws a node as lost when the status names it, not at the power cut."""
    cut = replace(TRAINS, dead=frozenset({"node-b1"}))
    assert drawing.health(cut, NODES[1]) is drawing.Health.POWER_CUT
    named = replace(cut, job=replace(TRAINS.job, lost_nodes=("node-b1",)))
    assert drawing.health(named, NODES[1]) is drawing.Health.LOST


def test_log_has_each_event_once_and_every_tenth_step() -> None:
    assert list(drawing.changes(None, TRAINS)) == [
        "01:12  Scheduled: attempt 1: 2 nodes",
        f"01:12  Running, {drawing.training(TRAINS.job)}",
    ]
    assert list(drawing.changes(TRAINS, replace(TRAINS, job=replace(TRAINS.job, step=29)))) == []
    thirty = replace(TRAINS, job=replace(TRAINS.job, step=30))
    assert list(drawing.changes(TRAINS, thirty)) == [
        f"01:12  Running, {drawing.training(thirty.job)}"
    ]


def test_without_a_terminal_nothing_is_ever_drawn_over() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    screen.report("starting")
    screen.show(TRAINS, "job ddp")
    screen.show(TRAINS, "job ddp")
    assert "\x1b" not in stream.getvalue()
    assert stream.getvalue().count("Scheduled") == 1


def test_on_a_terminal_each_picture_replaces_the_one_before() -> None:
    stream, now_s = Terminal(), [0.0]
    screen = Screen(stream, clock=lambda: now_s[0])
    rows = len(drawing.picture(TRAINS, "job ddp"))
    for now_s[0] in (1.0, 1.1, 2.0):
        screen.show(TRAINS, "job ddp")
    assert stream.getvalue().count("job ddp") == 2, "a picture each quarter of a second"
    assert stream.getvalue().count(f"\x1b[{rows}F\x1b[J") == 1

    screen.rest()
    now_s[0] = 3.0
    screen.show(TRAINS, "job ddp")
    assert stream.getvalue().count("\x1b[J") == 1, "what was shown at rest stays"


def test_scene_is_read_from_api_objects() -> None:
    status = {
        "phase": "Recovering",
        "attempt": 1,
        "checkpoints": [{"group": "worker", "attempt": 1, "step": 20}],
        "lastTermination": {"attempt": 1, "lostNodes": ["node-b1"]},
        "progress": {"step": 24, "totalSteps": 60, "loss": "1.5"},
    }
    job = scene.job_of({"status": status})
    assert (job.phase, job.checkpoint, job.lost_nodes) == ("Recovering", (1, 20), ("node-b1",))
    assert scene.job_of({}) == Job()
    later, sooner = (
        {"metadata": {"name": name}, "reason": name, "eventTime": f"2026-01-01T00:00:{seconds}Z"}
        for name, seconds in (("a", "02.000001"), ("b", "02.000000"))
    )
    assert [event.reason for event in scene.events_of([later, sooner])] == ["b", "a"]
