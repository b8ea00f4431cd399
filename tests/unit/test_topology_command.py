"""``railwright topology`` on files: words, graphs and pictures of one fabric."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import networkx as nx
import pytest
import yaml

from fixtures.command import run
from fixtures.profiled_jobs import large, recorded
from railwright_cli import gang, topology

CONF = """\
SwitchName=leaf-1 Nodes=gpu[01-04]
SwitchName=leaf-2 Nodes=gpu[05-08]
SwitchName=leaf-10 Nodes=gpu[09-12]
SwitchName=spine Switches=leaf-[1-2],leaf-10
"""
PLAN = """\
version: 1
tiers: [row, rack]
domains:
  row-a:
    rack-[1-2]: gpu[01-08]
    rack-3: gpu[09-11],gpu13
scaleUpDomains:
  nvl-[1-4]: gpu[01-08]
  nvl-5: gpu09,gpu12
"""
TREE = """\
13 nodes
  row: 1 domain of 13 nodes (plan; 1 node by others)
  rack: 3 domains of 4 to 5 nodes (plan; 1 node by others)
  scale-up-domain: 5 domains of 2 nodes (plan)

13 nodes gpu[01-13] in row-a
├── 4 nodes gpu[01-04] in rack-1
│   ├── 2 nodes gpu[01-02] in nvl-1
│   └── 2 nodes gpu[03-04] in nvl-2
├── 4 nodes gpu[05-08] in rack-2
│   ├── 2 nodes gpu[05-06] in nvl-3
│   └── 2 nodes gpu[07-08] in nvl-4
└── 5 nodes gpu[09-13] in rack-3
    ├── 2 nodes gpu[09,12] in nvl-5
    └── 3 nodes gpu[10-11,13] in no scale-up domain

no findings
"""
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topology.conf").write_text(CONF)
    (tmp_path / "plan.yaml").write_text(PLAN)
    return tmp_path


def benchmarks(site: Path, **slow: int) -> None:
    """Written for these tests: 13 nodes that multiply at 100 TFLOP/s, all but some."""
    names = [f"gpu{number:02}" for number in range(1, 14)]
    device = {"device": "0000:17:00.0", "model": "H100", "by": "torch 9.9"}
    (site / "benchmarks.json").write_text(
        json.dumps(
            {
                name: {
                    "version": 1,
                    "benchmarks": [{**device, "flop_per_s": slow.get(name, 100) * 10**12}],
                }
                for name in names
            }
        )
    )


def output(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run("topology", *arguments) == 0
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert run("topology", *arguments) == 2
    return capsys.readouterr().err


def test_plan_counts_before_topology_conf(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert output(capsys, "plan.yaml", "topology.conf") == TREE


def test_piped_output_is_plain_and_not_wrapped(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ",".join(f"{word}{number}x" for word in "abcdefgh" for number in range(1, 60))
    (site / "topology.conf").write_text(f"SwitchName=leaf Nodes={names}\n")
    text = output(capsys, "topology.conf")
    assert "\x1b" not in text
    (line,) = [line for line in text.splitlines() if line.endswith(" in leaf")]
    assert line.startswith("472 nodes a[1-9]x,a[10-59]x")


def test_conflict_names_both_sources(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    swapped = CONF.replace("[01-04]", "[01-03,05]").replace("[05-08]", "[04,06-08]")
    (site / "topology.conf").write_text(swapped)
    shown = output(capsys, "plan.yaml", "topology.conf")
    assert "2 findings" in shown
    both = "topology.conf has it in leaf-1, which is row-a/rack-1; row-a/rack-2 counts, by plan"
    assert f"- gpu05: {both} (rack)\n" in shown


def test_domains_are_in_natural_order(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = output(capsys, "topology.conf").splitlines()
    drawn = [line.rpartition(" ")[2] for line in lines if " in leaf" in line]
    assert drawn == ["leaf-1", "leaf-2", "leaf-10"]


def test_slow_devices_are_listed_slowest_first(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmarks(site, gpu02=61, gpu07=30)
    shown = output(capsys, "topology.conf", "benchmarks.json")
    assert shown.endswith(
        "2 findings\n"
        "- gpu07: 0000:17:00.0 multiplies at 30 % of what most H100 do:"
        " 30 TFLOP/s of 100 TFLOP/s\n"
        "- gpu02: 0000:17:00.0 multiplies at 61 % of what most H100 do:"
        " 61 TFLOP/s of 100 TFLOP/s\n"
    )
    answer = json.loads(output(capsys, "topology.conf", "benchmarks.json", "-o", "json"))
    assert answer["relativeSpeeds"]["gpu07"] == {"products": 0.3, "memory": 1.0, "rails": 1.0}
    assert answer["benchmarks"]["gpu01"][0]["flop_per_s"] == 100 * 10**12


def test_graph_formats_have_the_same_graph(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = nx.parse_graphml(output(capsys, "topology.conf", "-o", "graphml"))
    assert nx.shortest_path_length(graph, "gpu01", "gpu12") == 4
    answer = json.loads(output(capsys, "topology.conf", "-o", "json"))
    assert yaml.safe_load(output(capsys, "topology.conf", "-o", "yaml")) == answer
    assert answer["nodes"]["gpu12"] == ["spine", "leaf-10"]
    assert nx.node_link_graph(answer["graph"], edges="edges").nodes == graph.nodes
    dot = output(capsys, "topology.conf", "-o", "dot")
    assert '"gpu01" -- "leaf-1 (topology.conf tier 1)"' in dot


def test_picture_has_a_box_a_domain_and_a_cell_a_node(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = ElementTree.fromstring(output(capsys, "plan.yaml", "-o", "svg"))
    boxes = [each for each in picture.iter(f"{SVG}rect") if each.get("class") == "box"]
    titles = {title.text for title in picture.iter(f"{SVG}title")}
    # One node is alone in its scale-up domain, and is in the rack of the other one's node.
    assert len(boxes) == 1 + 1 + 3 + 5
    assert titles == {f"gpu{number:02d}" for number in range(1, 14)}


def test_unknown_file_name_lists_the_known_ones(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (site / "net.txt").write_text(CONF)
    assert "net.txt, line 1: files of this name are not read; these are: benchmarks.json" in (
        refused(capsys, "net.txt")
    )
    assert "3 domains" in output(capsys, "topology.conf=net.txt")


def test_job_beside_files_is_read_from_a_file(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "No such file" in refused(capsys, "topology.conf", "--job", "team/train")
    placement = {"kind": "Placement", "metadata": {"namespace": "team", "name": "train-1"}}
    nodes = {"nodes": ["gpu03", "gpu06"]}
    (site / "train.yaml").write_text(json.dumps({**placement, "spec": nodes}))
    shown = output(capsys, "topology.conf", "--job", "train.yaml")
    assert "├── 4 nodes gpu[01-04] in leaf-1, node ranks 0\n" in shown
    assert "├── 4 nodes gpu[05-08] in leaf-2, node ranks 1\n" in shown
    (site / "train.yaml").write_text(
        json.dumps({**placement, "spec": {"nodes": ["gpu03.example.com"]}})
    )
    shown = output(capsys, "topology.conf", "--job", "train.yaml")
    assert "gpu03.example.com,gpu[01-02,04] in leaf-1, node ranks 0\n" in shown


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("kind: Fabric", "job.yaml has Fabric: expected one TrainingJob, its Placement, or both"),
        ("- 1", "job.yaml, line 1: Input should be"),
        ("kind: List\nitems: [{kind: TrainingJob}, {kind: TrainingJob}]", "has TrainingJob:"),
        (
            "kind: Placement\nspec: {nodes: 7}",
            "job.yaml, line 2: spec.nodes: Input should be a valid tuple",
        ),
        ("kind: TrainingJob\nmetadata: 5", "job.yaml, line 2: metadata: Input should be"),
        (
            "kind: TrainingJob\nspec: {roles: [{processesPerReplica: 2000000}]}",
            "line 2: spec.roles.0.processesPerReplica: Input should be less than or equal to 64",
        ),
        (
            "kind: TrainingJob\nspec: {workload: {transformer: {}}}",
            "spec.workload.transformer.layers: Field required",
        ),
        (
            "kind: TrainingJob\nspec:\n workload: {training: {recomput: none}}",
            "line 3: spec.workload.training.recomput: unknown field, the nearest is spec.workload.",
        ),
    ],
)
def test_file_without_a_job_is_refused(
    site: Path, capsys: pytest.CaptureFixture[str], content: str, why: str
) -> None:
    (site / "job.yaml").write_text(content)
    assert why in refused(capsys, "topology.conf", "--job", "job.yaml")


@pytest.mark.parametrize(("communication", "counts"), [("Measured", True), ("Derived", False)])
def test_job_file_has_profile_if_mapped_by_it(
    tmp_path: Path, communication: str, counts: bool
) -> None:
    job = large(data=2) | {"kind": "TrainingJob"}
    mapping = {"communication": communication}
    placement = {"kind": "Placement", "spec": {"nodes": ["a", "b"], "mapping": mapping}}
    profile = {"kind": "Profile", "spec": {"document": recorded(2)}}
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps({"kind": "List", "items": [job, placement, profile]}))
    workload = gang.read(path).workload
    assert workload is not None
    assert (workload.profile is not None) is counts


@pytest.mark.parametrize(
    ("group", "placed", "ranks", "last"),
    [("g", True, "2–9", "10–17"), ("g", False, "2–9", "10–17"), ("worker", True, "0–7", "8–15")],
)
def test_ranks_of_a_later_role_count_through_its_group(
    site: Path,
    capsys: pytest.CaptureFixture[str],
    group: str,
    placed: bool,
    ranks: str,
    last: str,
) -> None:
    """Node ranks count through all pods. An older Placement has no roles."""
    job = large(data=16) | {"kind": "TrainingJob"}
    server = {"name": "server", "replicas": 2, "group": "g"}
    worker = {"name": "worker", "replicas": 2, "group": group, "processesPerReplica": 8}
    job["spec"] |= {"roles": [server, worker]}
    job["spec"]["workload"] |= {"role": "worker"}
    roles = [{"name": each["name"], "replicas": 2} for each in (server, worker)]
    nodes = ["gpu01", "gpu02", "gpu05", "gpu06"]
    placement = {"kind": "Placement", "spec": {"nodes": nodes, "roles": roles if placed else []}}
    (site / "job.yaml").write_text(json.dumps({"kind": "List", "items": [job, placement]}))
    shown = output(capsys, "topology.conf", "--job", "job.yaml")
    assert "4 nodes gpu[05-08] in leaf-2, node ranks [2-3]\n" in shown
    picture = output(capsys, "topology.conf", "--job", "job.yaml", "-o", "svg")
    assert f"<title>gpu05, node rank 2, ranks {ranks}, data-parallel rank 0–7</title>" in picture
    assert f"<title>gpu06, node rank 3, ranks {last}, data-parallel rank 8–15</title>" in picture
    assert f">{ranks}</text>" in picture


def test_what_the_fabric_has_beside_is_a_finding() -> None:
    """Agents report most problems and conflicts, which neither labels nor files have."""
    status = {"problemCount": 2, "conflictCount": 1, "rails": {"miscabled": [{"node": "n0"}]}}
    assert [*topology._published(status)] == [
        "the Fabric has 2 problems, 1 conflict, 1 miscabled rail: kubectl describe fabric default"
    ]
    assert not [*topology._published({"problemCount": 0, "rails": None})]
