"""Worlds as tables: what a test of the scheduler reads and what its failure prints.

    node  block  rack  gpu  cpu      state     taints        labels     rails
    n0    b0     r0    8    2/64     -         -             kind=h100  8
    n1    b0     r0    3/8  64       cordoned  a=b:NoExecute -          8!0,3

    job      nodes  gpu  queue    priority  selector   tolerations
    red/a    2      8    default  0         kind=h100  a=b:NoExecute,c

A node's column that is none of ``node state taints labels rails`` and names no resource is a
level, the coarsest first. Resources are ``gpu cpu memory pods`` or any name with a slash; ``3/8``
is 3 free of 8, ``8`` a node with nothing in use; CPU in cores or ``500m``, memory in bytes or with
a binary unit. ``8!0,3`` are eight adapters on rails, two of which are astray. A job's ``terms`` are
such as ``required=rack,segment=4@rack``. A job's ``nodes`` must be there; ``uid`` is the name,
``submitted`` its row. A dash leaves a cell empty. Lines ``levels a b`` and ``queues a b`` replace
what the header and ``default`` say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from railwright_scheduler import (
    UNKNOWN_DOMAIN,
    Decisions,
    Job,
    Node,
    Snapshot,
    Taint,
    Terms,
    Toleration,
    Unavailable,
    code,
    islands,
    sentence,
)
from railwright_topology.astray import Astray, Rails

_SHORT = {"gpu": "nvidia.com/gpu"}
_LONG = {long: short for short, long in _SHORT.items()}
_RESOURCES = ("gpu", "cpu", "memory", "pods")
_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_NOTHING = "-"

Row = dict[str, str]


def world(text: str) -> Snapshot:
    """Read a snapshot from tables; ValueError names the line that cannot be read."""
    tables: dict[str, list[Row]] = {"node": [], "job": []}
    lists: dict[str, tuple[str, ...]] = {"queues": ("default",)}
    header: list[str] = []
    for line in filter(str.strip, text.splitlines()):
        cells = line.split()
        if cells[0] in ("levels", "queues"):
            lists[cells[0]] = tuple(cells[1:])
        elif cells[0] in tables:
            header = cells
            if header[0] == "node":
                lists.setdefault("levels", tuple(filter(_is_level, header)))
        elif len(cells) == len(header):
            row = dict(zip(header, cells, strict=True))
            tables[header[0]].append({k: v for k, v in row.items() if v != _NOTHING})
        else:
            raise ValueError(f"{line.strip()!r}: {len(cells)} cells, expected {header}")
    levels = lists.get("levels", ())
    return Snapshot(
        levels=levels,
        nodes=tuple(_node(row, levels) for row in tables["node"]),
        queues=lists["queues"],
        jobs=tuple(_job(row, turn) for turn, row in enumerate(tables["job"])),
    )


def table(snapshot: Snapshot) -> str:
    """Write a snapshot as tables; ``world`` reads the same snapshot back."""
    nodes = [_node_row(node, snapshot.levels) for node in snapshot.nodes]
    jobs = [_job_row(job) for job in snapshot.jobs]
    return "\n".join(
        [
            " ".join(("levels", *snapshot.levels)),
            " ".join(("queues", *snapshot.queues)),
            *_aligned(("node", *snapshot.levels), nodes),
            *_aligned(("job", "nodes"), jobs),
        ]
    )


def outcome(decisions: Decisions) -> str:
    """Write decisions one a line: who starts where, who waits and why."""
    starts = (
        f"{admit.job_uid} starts on {' '.join(admit.nodes)}, spans {admit.spans}"
        for admit in decisions.admitted
    )
    waits = (
        f"{wait.job_uid} waits, {code(wait.reason)}: {sentence(wait.reason)}"
        for wait in decisions.waiting
    )
    return "\n".join([*starts, *waits])


def _is_level(column: str) -> bool:
    return column not in ("node", "state", "taints", "labels", "rails") and not _is_resource(column)


def _is_resource(column: str) -> bool:
    return column in _RESOURCES or "/" in column


def _node(row: Row, levels: tuple[str, ...]) -> Node:
    allocatable: dict[str, int] = {}
    used: dict[str, int] = {}
    for column in filter(_is_resource, row):
        resource = _SHORT.get(column, column)
        *free, total = row[column].split("/")
        allocatable[resource] = _amount(resource, total)
        if free:
            used[resource] = allocatable[resource] - _amount(resource, free[0])
    return Node(
        name=row["node"],
        domains=islands.stood(levels, [row.get(level, UNKNOWN_DOMAIN) for level in levels]),
        allocatable=allocatable,
        used=used,
        labels=_labels(row.get("labels", "")),
        taints=tuple(map(_taint, filter(None, row.get("taints", "").split(",")))),
        unavailable=Unavailable(row["state"]) if "state" in row else None,
        rails=_rails(row["rails"]) if "rails" in row else None,
    )


def _rails(said: str) -> Rails:
    adapters, _, astray = said.partition("!")
    order = tuple(range(int(adapters)))
    rails = map(int, filter(None, astray.split(",")))
    return Rails(order, tuple(Astray(rail, f"nic{rail}", "") for rail in rails))


def _job(row: Row, turn: int) -> Job:
    namespace, _, name = row["job"].rpartition("/")
    return Job(
        uid=row.get("uid", name),
        namespace=namespace or "team",
        name=name,
        queue=row.get("queue", "default"),
        priority=int(row.get("priority", "0")),
        submitted_s=int(row.get("submitted", turn)),
        attempt=int(row.get("attempt", "1")),
        num_nodes=int(row["nodes"]),
        per_node={
            _SHORT.get(column, column): _amount(_SHORT.get(column, column), row[column])
            for column in filter(_is_resource, row)
        },
        selector=_labels(row.get("selector", "")),
        tolerations=tuple(map(_toleration, filter(None, row.get("tolerations", "").split(",")))),
        terms=_terms(_labels(row.get("terms", ""))),
    )


def _terms(said: dict[str, str]) -> Terms:
    segment, _, segment_tier = said.get("segment", "").partition("@")
    spread, _, spread_tier = said.get("spread", "").partition("@")
    return Terms(
        required=said.get("required", ""),
        preferred=said.get("preferred", ""),
        segment=int(segment or 0),
        segment_tier=segment_tier,
        spread=int(spread or 0),
        spread_tier=spread_tier,
        aligned=said.get("rails") == "aligned",
    )


def _amount(resource: str, text: str) -> int:
    if resource == "cpu":
        return int(text[:-1]) if text.endswith("m") else int(text) * 1000
    if text[-2:] in _UNITS:
        return int(text[:-2]) * _UNITS[text[-2:]]
    return int(text)


def _labels(text: str) -> dict[str, str]:
    return dict(each.split("=", 1) for each in filter(None, text.split(",")))


def _taint(text: str) -> Taint:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    return Taint(key, value, effect)


def _toleration(text: str) -> Toleration:
    """``key=value:effect``, ``key:effect``, ``key``, or ``*`` for everything."""
    pair, _, effect = text.partition(":")
    key, equals, value = pair.partition("=")
    return Toleration("" if key == "*" else key, "Equal" if equals else "Exists", value, effect)


def _node_row(node: Node, levels: tuple[str, ...]) -> Row:
    stands = zip(levels, node.domains, strict=True)
    row = {"node": node.name, **{at: its for at, its in stands if islands.is_known(its)}}
    for resource, total in node.allocatable.items():
        text = _plain(resource, total)
        if resource in node.used:
            text = f"{_plain(resource, total - node.used[resource])}/{text}"
        row[_LONG.get(resource, resource)] = text
    row["state"] = node.unavailable.value if node.unavailable else ""
    row["taints"] = ",".join(_taint_text(taint) for taint in node.taints)
    row["labels"] = _pairs(node.labels)
    if node.rails is not None:
        astray = ",".join(str(each.rail) for each in node.rails.astray)
        row["rails"] = f"{len(node.rails.order)}{'!' if astray else ''}{astray}"
    return row


def _job_row(job: Job) -> Row:
    return {
        "job": f"{job.namespace}/{job.name}",
        "nodes": str(job.num_nodes),
        **{_LONG.get(name, name): _plain(name, value) for name, value in job.per_node.items()},
        "uid": job.uid,
        "queue": job.queue,
        "priority": str(job.priority),
        "submitted": str(job.submitted_s),
        "attempt": str(job.attempt),
        "selector": _pairs(job.selector),
        "tolerations": ",".join(_toleration_text(each) for each in job.tolerations),
    }


def _plain(resource: str, value: int) -> str:
    return f"{value}m" if resource == "cpu" else str(value)


def _pairs(mapping: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in mapping.items())


def _taint_text(taint: Taint) -> str:
    return f"{taint.key}{'=' if taint.value else ''}{taint.value}:{taint.effect}"


def _toleration_text(toleration: Toleration) -> str:
    value = f"={toleration.value}" if toleration.operator == "Equal" else ""
    effect = f":{toleration.effect}" if toleration.effect else ""
    return f"{toleration.key or '*'}{value}{effect}"


def _aligned(first: Iterable[str], rows: list[Row]) -> list[str]:
    columns = list(dict.fromkeys([*first, *(column for row in rows for column in row)]))
    lines = [columns, *([row.get(column) or _NOTHING for column in columns] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
