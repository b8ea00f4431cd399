"""A scene as text: a picture of some lines for a terminal, or only what changed since the last."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from railwright_demo.scene import Job, Node, Scene

BAR_WIDTH = 24
EVENTS_SHOWN = 6
STEPS_BETWEEN_LINES = 10


class Health(StrEnum):
    """The state of a node. The operator detects a power cut only after a time."""

    READY = "ready"
    NOT_READY = "not ready"
    POWER_CUT = "power cut"
    LOST = "found lost"


def picture(scene: Scene, title: str) -> list[str]:
    """The whole scene, drawn anew each time."""
    job = scene.job
    state = f"{job.phase or 'applied'}, attempt {job.attempt}" if job.attempt else job.phase
    rows = [f"{clock(scene.elapsed_s)}  {title}: {state}", ""]
    racks = sorted({node.rack for node in scene.nodes})
    for rack in racks:
        nodes = [node for node in scene.nodes if node.rack == rack]
        rows.append(f"  {rack:<8}" + "".join(f"{_node(scene, node):<36}" for node in nodes))
    rows += ["", f"  {training(job)}", f"  {job.message}", ""]
    rows += [f"  {event.reason:<12}{event.note}" for event in scene.events[-EVENTS_SHOWN:]]
    return [row.rstrip() for row in rows]


def changes(before: Scene | None, after: Scene) -> Iterator[str]:
    """One line for each event of the demo, in order of time."""
    shown = frozenset() if before is None else frozenset(event.name for event in before.events)
    at = clock(after.elapsed_s)
    for event in after.events:
        if event.name not in shown:
            yield f"{at}  {event.reason}: {event.note}"
    if before is None or _is_worth_a_line(before.job, after.job):
        yield f"{at}  {after.job.phase or 'applied'}, {training(after.job)}"


def training(job: Job) -> str:
    """How far the training is."""
    if not job.total_steps:
        return "no step yet"
    filled = BAR_WIDTH * job.step // job.total_steps
    parts = [f"step {job.step:>3} of {job.total_steps}", "█" * filled + "░" * (BAR_WIDTH - filled)]
    if job.loss is not None:
        parts.append(f"loss {job.loss:.4f}")
    if job.checkpoint is not None:
        attempt, step = job.checkpoint
        parts.append(f"checkpoint: step {step} of attempt {attempt}")
    return "  ".join(parts)


def health(scene: Scene, node: Node) -> Health:
    if node.name in scene.dead:
        return Health.LOST if node.name in scene.job.lost_nodes else Health.POWER_CUT
    return Health.READY if node.ready else Health.NOT_READY


def clock(elapsed_s: float) -> str:
    """Minutes and seconds."""
    return f"{int(elapsed_s) // 60:02d}:{int(elapsed_s) % 60:02d}"


def _node(scene: Scene, node: Node) -> str:
    ranks = [rank for rank, name in enumerate(scene.job.nodes) if name == node.name]
    place = "free" if not ranks else f"rank {', '.join(map(str, ranks))}"
    return f"{node.name}  {place:<8}{health(scene, node)}"


def _is_worth_a_line(before: Job, after: Job) -> bool:
    if (before.phase, before.attempt) != (after.phase, after.attempt):
        return True
    return before.step // STEPS_BETWEEN_LINES != after.step // STEPS_BETWEEN_LINES
