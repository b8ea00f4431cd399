"""A fabric with a job on it as a picture: every node once, coloured by what it does, and as wide a
line across each border as there are bytes."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from architecture import tree
from fixtures import job, node
from fixtures.command import run
from railwright_cli import gang, parts
from railwright_cli.gang import NO_JOB, Gang, crossing_bytes
from railwright_cli.parts import FEW
from railwright_cli.picture import WIDEST, Picture
from railwright_cli.svg import words as escaped
from railwright_operator.write import placement_score
from railwright_scheduler.model.placement_score import PlacementScore, PredictedStep
from railwright_scheduler.model.snapshot import Node, Snapshot
from railwright_scheduler.model.workload import (
    Framework,
    Parallelism,
    Recipe,
    Transformer,
    Workload,
)
from railwright_scheduler.policy.decide import decide
from railwright_topology import fabric
from railwright_topology.fabric import Fabric
from railwright_topology.links import Links
from railwright_topology.source_reports import Provenance, SourceReport
from railwright_topology.sources import hostlist

GPT = Transformer(96, 4096, 32, 32, 128, 4 * 4096, 51_200)
MIXTURE = replace(GPT, experts=64, chosen=4, gated=True)
SVG = "{http://www.w3.org/2000/svg}"


def site(blocks: int, racks: int, nodes: int) -> Fabric:
    """So many racks in each block, and nodes in each rack."""
    names = [f"gpu-{at:04d}" for at in range(blocks * racks * nodes)]
    rack = {name: f"rack-{at // nodes:03d}" for at, name in enumerate(names)}
    block = {name: f"block-{at // (nodes * racks)}" for at, name in enumerate(names)}
    return fabric.of(names, [SourceReport("plan", Provenance.DECLARED, (rack, block))])


def running(split: Parallelism, on: Fabric, *, model: Transformer = GPT, each: int = 8) -> Gang:
    """On the first nodes, in the network's order."""
    recipe = Recipe(1024, 1, 4 * split.data, framework=Framework.MEGATRON_PIPELINE_FIRST)
    count = split.ranks // each
    nodes = tuple(on.places)[:count]
    return Gang("team/train", nodes, each, Workload(model, split, recipe))


def drawn(on: Fabric, its: Gang) -> ElementTree.Element:
    return ElementTree.fromstring(Picture(on, its).draw())


def pointed_at(svg: ElementTree.Element) -> Counter[str]:
    """The nodes that cells are of, as often as they are."""
    shown = (title.text or "" for title in svg.iter(f"{SVG}title"))
    folded = (words.partition(", node rank")[0] for words in shown)
    return Counter(name for each in folded for name in hostlist.expand(each, 10_000))


def words(svg: ElementTree.Element) -> set[str]:
    return {"".join(text.itertext()) for text in svg.iter(f"{SVG}text")}


def boxes(svg: ElementTree.Element) -> list[ElementTree.Element]:
    return [each for each in svg.iter(f"{SVG}rect") if each.get("class") == "box"]


@pytest.mark.parametrize(
    ("shape", "split"),
    [
        ((1, 2, 3), Parallelism(tensor=8, data=5)),
        ((2, 4, 8), Parallelism(tensor=8, pipeline=4, data=8)),
        ((2, 8, 16), Parallelism(tensor=8, pipeline=8, data=16)),
        ((5, 20, 20), Parallelism(tensor=8, pipeline=16, data=125)),
        ((5, 20, 20), Parallelism(data=16_000)),
    ],
)
def test_picture_shows_each_node_once_and_is_bounded(
    shape: tuple[int, int, int], split: Parallelism
) -> None:
    on = site(*shape)
    its = running(split, on)
    text = Picture(on, its).draw()
    svg = ElementTree.fromstring(text)
    found = pointed_at(svg)
    assert found.keys() >= {*its.nodes}
    assert max(found.values()) == 1
    assert len(text) < 6_000 + 500 * len(its.nodes)
    width, height = (float(svg.get(side, "")) for side in ("width", "height"))
    assert 0.3 < width / height < 4
    for box in svg.iter(f"{SVG}rect"):
        x, y, wide, high = (float(box.get(side, "0")) for side in ("x", "y", "width", "height"))
        assert 0 <= x <= x + wide <= width + 1
        assert 0 <= y <= y + high <= height + 1


def test_cells_do_not_overlap() -> None:
    on = site(2, 4, 8)
    svg = drawn(on, running(Parallelism(tensor=8, pipeline=4, data=8), on))
    cells = [each.find(f"{SVG}rect") for each in svg.iter(f"{SVG}g")]
    drawn_at = [
        [float(cell.get(side, "")) for side in ("x", "y", "width", "height")]
        for cell in cells
        if cell is not None
    ]
    assert len(drawn_at) == 32
    for (x, y, width, height), (left, top, _, _) in itertools.permutations(drawn_at, 2):
        assert not (x <= left < x + width and y <= top < y + height)


def test_node_with_a_conflict_alone_is_outlined() -> None:
    calm = site(5, 20, 20)
    odd = {name: f"r{at // 20}" for at, name in enumerate(calm.places)} | {"gpu-0005": "r1"}
    on = fabric.of(
        calm.places.keys(),
        [*calm.source_reports, SourceReport("labels", Provenance.IMPORTED, (odd,))],
    )
    assert [each.node for each in on.merged_topology.conflicts] == ["gpu-0005"]
    svg = drawn(on, running(Parallelism(tensor=8, data=2000), on))
    outlined = [
        each.findtext(f"{SVG}title", "")
        for each in svg.iter(f"{SVG}g")
        if each.find(f"{SVG}rect[@class='conflict']") is not None
    ]
    assert [title.partition(",")[0] for title in outlined] == ["gpu-0005"]
    assert "sources disagree about the location" in words(svg)


def test_large_job_has_one_cell_for_each_rack_and_stage() -> None:
    on = site(5, 20, 20)
    svg = drawn(on, running(Parallelism(tensor=8, pipeline=16, data=125), on))
    assert len([*svg.iter(f"{SVG}title")]) == 100 * 16  # Stages first: a rack has all of them.
    laid = running(Parallelism(tensor=8, pipeline=16, data=125), on)
    by_stage = tuple(laid.nodes[rank % 16 * 125 + rank // 16] for rank in range(2000))
    svg = drawn(on, replace(laid, nodes=by_stage))
    assert len([*svg.iter(f"{SVG}title")]) < 100 + 16
    assert pointed_at(svg).keys() == on.places.keys()
    assert "stage 0 to 15" in words(svg)


def test_domains_without_a_node_of_the_job_are_one_box() -> None:
    on = site(4, 4, 4)
    svg = drawn(on, running(Parallelism(tensor=8, pipeline=2, data=4), on))
    # All of it, a block with two of its racks, and the others of racks and of blocks.
    assert len(boxes(svg)) == 1 + 1 + 2 + 1 + 1
    assert {"rack-[002-003]8 other nodes", "block-[1-3]48 other nodes"} <= words(svg)


def test_node_has_the_colour_of_its_stage_and_its_ranks() -> None:
    on = site(1, 2, 4)
    svg = drawn(on, running(Parallelism(tensor=8, pipeline=4, data=2), on))
    fills = [each.get("fill") for each in svg.iter(f"{SVG}rect") if each.get("fill") in FEW]
    assert fills == [*FEW[:4] * 2, *FEW[:4]]  # The last are what they mean.
    assert {"0–7", "56–63", "stage 3"} <= words(svg)
    titles = {title.text for title in svg.iter(f"{SVG}title")}
    assert "gpu-0005, node rank 5, ranks 40–47, stage 1" in titles


@pytest.mark.parametrize(
    ("split", "what", "of"),
    [
        (Parallelism(tensor=4, pipeline=4, data=2), "stage", ((0, 1), (2, 3)) * 2),
        (Parallelism(tensor=2, pipeline=4, data=4), "data-parallel rank", ((0,), (1,), (2,), (3,))),
        (Parallelism(data=32, replicas=4), "copy", ((0,), (1,), (2,), (3,))),
        (Parallelism(tensor=8, data=4), "data-parallel rank", ((0,), (1,), (2,), (3,))),
        (Parallelism(tensor=32), "", ((),) * 4),
    ],
)
def test_parts_are_what_nodes_differ_in(
    split: Parallelism, what: str, of: tuple[tuple[int, ...], ...]
) -> None:
    found = parts.parts(running(split, site(1, 1, 4)))
    assert found.kind == what
    assert found.of == of


def test_ranks_that_share_experts_are_one_group() -> None:
    its = running(Parallelism(data=32, expert=16), site(1, 1, 4), model=MIXTURE)
    assert parts.parts(its).of == ((0,), (0,), (1,), (1,))
    assert parts.parts(its).describe(2) == "expert group 1"


def test_crossing_bytes_are_those_of_the_placement() -> None:
    on = site(2, 2, 4)
    split = Parallelism(tensor=8, pipeline=4, data=4)
    its = running(split, on)
    asked = job("a", replicas=16, ranks_per_pod=8, workload=its.workload)
    nodes = tuple(Node(name, place, node().allocatable, {}) for name, place in on.places.items())
    levels = ("block", "rack")
    links = Links(8.0), Links(4.0)
    (found,) = decide(Snapshot(levels, nodes, ("default",), (asked,), links)).admitted
    assert found.score is not None
    sent = crossing_bytes(on, replace(its, nodes=found.nodes))
    for level, shown in enumerate(found.score.crossing):
        counted = sum(size for (at, _), size in sent.items() if at == level)
        assert counted == pytest.approx(2 * shown.placed, abs=8)
    most = max(sent.values())
    rects = drawn(on, replace(its, nodes=found.nodes)).iter(f"{SVG}rect")
    widths = {float(each.get("width", 0)) for each in rects if each.get("class") == "up"}
    assert max(widths) == WIDEST
    assert len(widths) == len({round(WIDEST * size / most, 1) for size in sent.values()})


def test_picture_escapes_any_name() -> None:
    odd = '<b>&"\x07'
    on = fabric.of(["a", "b"], [SourceReport(odd, Provenance.DECLARED, ({"a": odd, "b": "]]>"},))])
    svg = drawn(on, Gang(f"team/{odd}", ("a",)))
    assert '<b>&"\ufffd1 node' in words(svg)
    assert any(output.startswith('team/<b>&"\ufffd on 1 of 2') for output in words(svg))
    assert escaped("\ud800\ufffe") == "\ufffd\ufffd"


def test_job_without_workload_has_no_uplinks() -> None:
    on = site(1, 2, 2)
    svg = drawn(on, Gang("team/train", tuple(on.places)[1:3]))
    assert {"the job", "other nodes", "0", "1"} <= words(svg)
    assert not [each for each in svg.iter(f"{SVG}rect") if each.get("class") == "up"]


@pytest.mark.parametrize("count", [0, 3, 600])
def test_fabric_without_a_job_is_drawn(count: int) -> None:
    svg = drawn(site(1, 1, count), NO_JOB)
    assert len([*svg.iter(f"{SVG}title")]) == (count if count < 600 else 0)
    assert len(boxes(svg)) == (2 if count else 1)


def test_missing_nodes_and_unknown_places_are_drawn() -> None:
    on = site(1, 2, 2)
    its = running(Parallelism(tensor=8, data=4), on)
    lost = replace(its, nodes=(*its.nodes[:3], "gone"))
    assert pointed_at(drawn(on, lost)) == Counter(on.places.keys())
    nowhere = fabric.of(["x", *on.places], on.source_reports)
    svg = drawn(nowhere, replace(its, nodes=(*its.nodes[:3], "x")))
    assert "no known domain1 node" in words(svg)


def listed(its: Gang, workload: dict[str, Any]) -> str:
    """As kubectl prints both objects, in JSON, which is YAML as well."""
    nodes = [*its.nodes]
    metadata = {"namespace": "team", "name": "train"}
    shown = PredictedStep(("DGX A100",), 2_500_000, 3_000_000, 2_600_000, 250_000)
    return json.dumps(
        {
            "kind": "List",
            "items": [
                {
                    "kind": "TrainingJob",
                    "metadata": metadata,
                    "spec": {"roles": [{"processesPerReplica": 8}], "workload": workload},
                    "status": {"nodes": len(nodes)},
                },
                *(
                    {
                        "kind": "Placement",
                        "metadata": {**metadata, "name": f"train-{attempt}"},
                        "spec": {
                            "attempt": attempt,
                            "nodes": nodes if attempt == 10 else nodes[:1],
                            "mapping": placement_score.render(PlacementScore((), shown)),
                        },
                    }
                    for attempt in (9, 10)
                ),
            ],
        }
    )


WORKLOAD = {
    "transformer": {
        "layers": 8,
        "hidden": 1024,
        "heads": 16,
        "feedForward": 4096,
        "vocabulary": 32000,
    },
    "parallelism": {"tensor": 8, "pipeline": 2, "data": 2},
    "training": {"sequence": 1024, "globalBatch": 8},
}


def test_job_is_read_from_what_kubectl_prints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    on = site(1, 2, 2)
    path = tmp_path / "train.yaml"
    path.write_text(listed(running(Parallelism(tensor=8, data=4), on), WORKLOAD))
    its = gang.read(path)
    assert (its.name, its.nodes, its.ranks_per_node) == ("team/train", tuple(on.places), 8)
    assert its.workload is not None
    (tmp_path / "topology.conf").write_text("SwitchName=s Nodes=gpu-[0000-0003]\n")
    arguments = ["topology", str(tmp_path / "topology.conf"), "--job", str(path)]
    assert run(*arguments) == 0
    shown = capsys.readouterr().out
    assert "job team/train: 32 ranks, 8 a node: tensor 8 × pipeline 2 × data 2\n" in shown
    assert "job team/train: predicted step 2.5 s, in the network's order 3 s; " in shown
    assert "250 ms of it from other jobs' traffic\n" in shown
    assert run(*arguments, "-o", "svg") == 0
    assert re.search("stage 1</text>", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("picture", "files"),
    [
        ("placed-job.svg", ("placed-job/plan.yaml", "--job", "placed-job/train.yaml")),
        ("fabric.svg", ("fabric/plan.yaml",)),
    ],
)
def test_picture_in_the_docs_is_current(
    picture: str,
    files: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If it is not: write what the command prints into docs."""
    monkeypatch.chdir(tree.ROOT / "examples")
    assert run("topology", *files, "-o", "svg") == 0
    drawn_there = (tree.ROOT / "docs" / picture).read_text(encoding="utf-8")
    assert capsys.readouterr().out == drawn_there


def test_parameter_servers_are_counted_in_the_lines_of_a_job(tmp_path: Path) -> None:
    workload = {**WORKLOAD, "parallelism": {"tensor": 8, "servers": "ps"}}
    objects = json.loads(listed(running(Parallelism(tensor=8, data=4), site(1, 1, 4)), workload))
    objects["items"][0]["spec"]["roles"] = [
        {"name": "worker", "replicas": 4, "processesPerReplica": 8},
        {"name": "ps", "replicas": 2, "processesPerReplica": 3},
    ]
    path = tmp_path / "train.yaml"
    path.write_text(json.dumps(objects))
    line, *_ = gang.read(path).describe()
    assert line == "32 ranks, 8 a node: tensor 8 × data 4, 6 servers"


def test_changed_spec_is_not_the_running_workload(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    other = {**WORKLOAD, "parallelism": {"tensor": 8, "data": 2}}
    path.write_text(listed(running(Parallelism(tensor=8, data=4), site(1, 1, 4)), other))
    assert gang.read(path).workload is None
