"""Every command and every YAML block of the pages, on a real cluster with real nodes; of the
commands in their text, those of ``railwright``.

A reader's folder is a clone of the repository. The pages are read in an order in which a reader
could follow them: the installation first, what ends it last. The commands of a code block are one
session of a shell. What a reader has, and no page makes, is made before: images on the nodes, jobs,
files. Progress goes to stderr, one JSON object to stdout; the exit status is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import yaml

from architecture import pages, tree
from bench import bars
from fixtures import doc_examples, storage, training
from fixtures.doc_examples import INLINE_JOB, Block, Example
from fixtures.training import REPORTS_STEPS, LiveJob, Training, script
from railwright_testbed import (
    Testbed,
    binaries,
    build_file,
    deployment,
    later_version,
    product_images,
    waiting,
)
from railwright_testbed.control_plane import KubectlError
from railwright_testbed.errors import TestbedError
from railwright_topology.sources import formats
from railwright_topology.sources.formats import File

NAME = "docs"
DEADLINE_S = 600
OUTPUT_SHOWN = 4_000
INSTALL, SECURITY = "docs/install.md", "docs/security.md"
DOCKER = "docker build "
"""There is no daemon of Docker where tests run; BuildKit builds the images, as in Docker."""

PYTHON = os.path.abspath(sys.executable)
DEMO = f"make --old-file=.venv/.installed demo PYTHON={PYTHON} YES=1 KUBECONFIG=$KUBECONFIG"
NEXT = f"--set images.registry={product_images.REGISTRY} --wait"
FAILS = ("kubectl apply -f job.yaml",)
"""The page shows the refusal."""

SUSPENDED = (
    f"kubectl wait --timeout=2m --for=jsonpath='{{.status.phase}}'=Suspended tj {INLINE_JOB}"
)
PROBED = "127.0.0.2"
SERVES = "> served & timeout 30 sh -c 'until grep -q ready served; do sleep 0.1; done'"

STEPS = "import railwright, time\nfor step in range(30):\n    railwright.report(step, 1.0)\n"
WORKLOAD = """
transformer: {layers: 2, hidden: 64, heads: 4, feedForward: 256, vocabulary: 128}
parallelism: {data: 8}
training: {sequence: 48, globalBatch: 64}
"""


@dataclass(frozen=True, slots=True)
class Scene:
    """A testbed, and the reader's folder."""

    bed: Testbed
    folder: Path

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What kubectl prints."""
        return self.bed.control_plane.kubectl(*arguments, stdin=stdin)

    def namespace(self, name: str) -> None:
        """Make a namespace in which pods can be made."""
        self.kubectl("create", "namespace", name)
        listing = ("-n", name, "get", "serviceaccounts", "-o=name")
        waiting.until(
            lambda: "/default" in self.kubectl(*listing), "its service account", deadline_s=60
        )

    def job(
        self, name: str, source: str = STEPS, *, namespace: str = "default", nodes: int = 2
    ) -> LiveJob:
        """Apply a job, unless it is there."""
        plane = self.bed.control_plane
        live = LiveJob(plane, namespace, name)
        if live.object():
            return live
        spec = {"workload": {"opaque": {}, "parallelism": {"data": nodes}}}
        job = Training(name, script(source), self.bed.image, nodes=nodes, spec=spec)
        return training.apply(plane, namespace, job)

    def without(self, name: str) -> None:
        """Delete a job, if it is there."""
        self.kubectl("delete", "tj", name, "--ignore-not-found")

    def write(self, name: str, text: str) -> None:
        """Write a file of the reader's."""
        (self.folder / name).write_text(text, encoding="utf-8")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder, Testbed.start(name=NAME) as bed:
        _log("images")
        deployment.load_everywhere(bed, Path(folder))
        reader = Path(folder) / "reader"
        command = ["git", "clone", "--quiet", str(tree.ROOT), str(reader)]
        subprocess.run(command, check=True, timeout=60)
        scene = Scene(bed, reader)
        inline = doc_examples.inline_commands()
        blocks = _ordered(doc_examples.blocks(), inline)
        results = [(block, _run(scene, block)) for block in blocks]
        _log("examples")
        deployment.apply_manifests(bed.control_plane)
        examples = doc_examples.examples()
        refused = [each for each in examples if not _is_accepted(scene, each)]
    for block, failed in results:
        for text in failed:
            _log(f"not run: {block.page}: {text}")
    broken = pages.broken_links()
    for link in broken:
        _log(f"broken link: {link}")
    figures = {
        **_count("commands", [each for each in results if each[0] is not inline]),
        **_count("inline_commands", [each for each in results if each[0] is inline]),
        "yaml": len(examples),
        "yaml_accepted": len(examples) - len(refused),
        "broken_links": len(broken),
    }
    return bars.publish(
        figures,
        whole={
            "commands_run": "commands",
            "inline_commands_run": "inline_commands",
            "yaml_accepted": "yaml",
        },
        at_most={"broken_links": 0},
    )


def _count(name: str, results: list[tuple[Block, list[str]]]) -> dict[str, int]:
    """How many commands these blocks have, and how many of them succeeded."""
    every = sum(len(block.commands) for block, _ in results)
    failed = sum(len(texts) for _, texts in results)
    return {name: every, f"{name}_run": every - failed}


def _ordered(blocks: list[Block], inline: Block) -> list[Block]:
    """The installation first, then the commands in the text, while no other job needs nodes; then
    all pages, then what changes rights, upgrades and uninstalls; last the installation without
    Helm."""
    install = [each for each in blocks if each.page == INSTALL]
    docker, demo, helm, privileged, manifests, doctor, *ends = install
    rest = [each for each in blocks if each.page not in (INSTALL, SECURITY)]
    security = [each for each in blocks if each.page == SECURITY]
    return [docker, demo, helm, doctor, inline, *rest, *security, *ends, privileged, manifests]


def _run(scene: Scene, block: Block) -> list[str]:
    """Run the commands of a block in one shell. Returns those that failed."""
    if block.commands[0].startswith(DOCKER):
        return _build(scene, block)
    _log(f"{block.page}: {block.commands[0]}")
    if matching := [each for each in PREPARED if block.commands[0].startswith(each)]:
        PREPARED[max(matching, key=len)](scene)
    if block.page == doc_examples.INLINE:
        _prepare_inline(scene)
    commands = [_adapted(scene, text) for text in block.commands]
    codes = scene.folder.parent / "codes"
    lines = [f"exec 3> {codes}", *(f"{text}\necho $? >&3" for text in commands)]
    tools = binaries.find((*binaries.CONTROL_PLANE, *binaries.CLIENTS))
    folders = [*{str(path.parent) for path in tools.values()}, str(Path(sys.executable).parent)]
    environment = {
        **os.environ,
        "KUBECONFIG": str(scene.bed.control_plane.kubeconfig),
        "PATH": ":".join(
            [str(scene.folder.parent / ".local/share/railwright/bin"), *folders, os.environ["PATH"]]
        ),
        "HOME": str(scene.folder.parent),
        "VIRTUAL_ENV": "",
    }
    ended = subprocess.run(
        ["bash", "-c", "\n".join(lines)],
        cwd=scene.folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    found = codes.read_text().split()
    failed = [
        text
        for at, text in enumerate(block.commands)
        if at >= len(found) or (found[at] == "0") == text.startswith(FAILS)
    ]
    print(ended.stdout[-OUTPUT_SHOWN:], ended.stderr[-OUTPUT_SHOWN:], sep="\n", file=sys.stderr)
    return failed


def _build(scene: Scene, block: Block) -> list[str]:
    """Build the images of a block, and give them to all nodes: what follows installs them. Returns
    the commands that failed."""
    failed = []
    with tempfile.TemporaryDirectory() as folder, build_file.builder(Path(folder)) as builder:
        for text in block.commands:
            _log(f"{block.page}: {text}")
            arguments = _DOCKER_BUILD.parse_args(text.removeprefix(DOCKER).split())
            archive = Path(folder) / f"{arguments.target}.tar"
            try:
                builder.build(
                    scene.folder / arguments.context,
                    file=arguments.file,
                    target=arguments.target,
                    tag=arguments.tag,
                    archive=archive,
                )
            except TestbedError as error:
                _log(str(error))
                failed.append(text)
            else:
                scene.bed.load_images(archive, [scene.bed.system, *scene.bed.nodes])
    return failed


def _docker_build() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(DOCKER, exit_on_error=False)
    for option in ("--file", "--target", "--tag"):
        parser.add_argument(option, required=True)
    parser.add_argument("context")
    return parser


_DOCKER_BUILD = _docker_build()


def _adapted(scene: Scene, text: str) -> str:
    """The command with what differs here: the registry, the next tag, the shared folder."""
    changes = {
        "registry.example.com/team/torch:1": scene.bed.image,
        "make demo KUBECONFIG=~/.kube/config": DEMO,
        "images.tag=0.2.0": f"images.tag={later_version.VERSION} {NEXT}",
        "helm rollback railwright": "helm rollback --wait railwright",
        "/shared/profile": str(scene.folder / "profile"),
        "../.venv/bin/python": PYTHON,
        # The state of the testbed is in the real home.
        ".venv/bin/python -m rail": f"HOME={Path.home()} {PYTHON} -m rail",
        "$PWD": str(tree.ROOT),
        "gpu-01": "node-a1",
        f"railwright resume {INLINE_JOB}": f"{SUSPENDED} && railwright resume {INLINE_JOB}",
        "10.0.0.7": PROBED,
        # A server ends after the block.
        "python -m railwright_agent serve": "timeout 60 python -m railwright_agent serve",
        "--token-file token  ": f"--token-file token {SERVES}",
    }
    if "-node node-a2" in text:
        changes["node-a2"] = f"{_victim(scene)} --name {NAME}"
    for written, here in changes.items():
        text = text.replace(written, here)
    return text


def _victim(scene: Scene) -> str:
    """The node that was killed, if there is one; else a node of the job on the page."""
    nodes = json.loads(scene.kubectl("get", "nodes", "-o=json"))["items"]
    for node in nodes:
        ready = [each for each in node["status"]["conditions"] if each["type"] == "Ready"]
        if ready[0]["status"] != "True":
            return str(node["metadata"]["name"])
    pods = json.loads(scene.kubectl("get", "pods", "-o=json"))["items"]
    running = (each for each in pods if each["status"]["phase"] == "Running")
    its = (each for each in running if each["metadata"]["name"].startswith("fsdp-worker-1-"))
    return next((str(pod["spec"]["nodeName"]) for pod in its), "node-a2")


def _until_trains(scene: Scene, namespace: str = "default") -> None:
    job = scene.job("train", REPORTS_STEPS, namespace=namespace, nodes=1)
    job.until_phase("Running")


def _prepare_inline(scene: Scene) -> None:
    example = tree.ROOT / "examples/first-job.yaml"
    scene.write("job.yaml", example.read_text(encoding="utf-8"))
    _write_plan(scene)
    job = scene.job(INLINE_JOB, doc_examples.INLINE_SCRIPT, nodes=1)
    job.until(
        lambda status: (status.get("attempt"), status.get("phase")) == (2, "Running"),
        "its second attempt",
    )


def _prepare_first(scene: Scene) -> None:
    LiveJob(scene.bed.control_plane, "default", "first").until_phase("Succeeded")


def _prepare_profile(scene: Scene) -> None:
    source = (tree.ROOT / "examples/ddp/train.py").read_text(encoding="utf-8")
    scene.write("train.py", source.replace("default=60", "default=8"))
    scene.write("workload.yaml", WORKLOAD)
    (scene.folder / "profile").mkdir()


def _prepare_quota(scene: Scene) -> None:
    scene.kubectl("create", "quota", "jobs", "--hard=count/trainingjobs.railwright.dev=0")
    job = doc_examples.job("c")
    scene.write("job.yaml", json.dumps(job))


def _prepare_plan(scene: Scene) -> None:
    scene.namespace("team")
    _until_trains(scene, "team")
    plan = next(each for each in doc_examples.examples() if not each.objects)
    scene.write("plan.yaml", plan.text)


def _prepare_site(scene: Scene) -> None:
    scene.write("topology.conf", "SwitchName=leaf1 Nodes=node-a[1-2]\n")
    _write_plan(scene)


def _write_plan(scene: Scene) -> None:
    scene.write("plan.yaml", "version: 1\ntiers: [rack]\ndomains: {rack-a: 'node-a[1-2]'}\n")


def _end_site(scene: Scene) -> None:
    scene.kubectl("-n", "railwright-system", "delete", "configmap", "site", "--ignore-not-found")


def _prepare_survey(scene: Scene) -> None:
    scene.write("secret", "secret of the survey, which is long enough\n")
    scene.write("nodes", f"node-a1 {PROBED}\n")


def _end_quota(scene: Scene) -> None:
    scene.kubectl("delete", "quota", "jobs", "--ignore-not-found")


PREPARED: dict[str, Callable[[Scene], object]] = {
    "make demo": lambda scene: storage.add_default(scene.bed, 1),
    "kubectl get tj ddp": lambda scene: scene.job("ddp"),
    "sed ": lambda scene: scene.without("first"),
    "sed -e 's#example.com/railwright-ddp": lambda scene: scene.without("ddp"),
    "kubectl get tj": _prepare_first,
    "railwright why big": lambda scene: scene.job("big", nodes=64),
    "kubectl apply -n monitoring": lambda scene: scene.namespace("monitoring"),
    "kubectl -n team get": _prepare_plan,
    "kubectl describe tj train": _until_trains,
    "kubectl get placements": _until_trains,
    "kubectl apply -f job.yaml": _prepare_quota,
    "export RAILWRIGHT_PROFILE": _prepare_profile,
    "kubectl patch tj train": _end_quota,
    "kubectl -n railwright-system create configmap site": _prepare_site,
    "railwright topology topology.conf": _prepare_site,
    "python -m railwright_agent hardware": _end_site,
    "python -m railwright_agent token": _prepare_survey,
    "kubectl label node gpu-01": lambda scene: scene.kubectl(
        *("label", "node", "node-a1", "railwright.dev/block-", "railwright.dev/rack-")
    ),
    "kubectl delete -f deploy/rights": lambda scene: scene.namespace("team-a"),
    "helm upgrade railwright deploy": lambda scene: scene.kubectl(
        *("delete", "--ignore-not-found", "-f", str(tree.ROOT / "deploy/opt-in"))
    ),
}
"""What a reader has when the first command of a block begins so."""


def _is_accepted(scene: Scene, example: Example) -> bool:
    """Whether the API server accepts the objects, or the file is read."""
    if not example.objects:
        return bool([*formats.read(File("", "plan.yaml", example.text))])
    options = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    try:
        for found in example.objects:
            scene.kubectl("apply", *options, "-f", "-", stdin=yaml.safe_dump(found))
    except KubectlError as error:
        _log(f"not accepted: {example.page}: {error}")
        return False
    return True


def _log(text: str) -> None:
    print(f"== {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
