"""`python -m railwright_testbed`: a testbed that stays, without writing any Python."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import yaml

from railwright_testbed import (
    binaries,
    deployment,
    example_job,
    faults,
    foreign_kinds,
    prometheus,
    requirements,
    state_folder,
    sweeping,
)
from railwright_testbed.errors import TestbedError
from railwright_testbed.state_folder import StateFolder
from railwright_testbed.testbed import DEFAULT_RACKS, Testbed

EXIT_FAILED = 1
EXIT_IMPOSSIBLE = 3
EXAMPLE_STEP_S = 1.0


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except TestbedError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED


def _run(options: argparse.Namespace) -> int:
    match options.command:
        case "up":
            return _up(options.name, _racks(options.racks), gpus_per_node=options.gpus_per_node)
        case "down":
            return _down(None if options.all else options.name)
        case "list":
            return _list()
        case "build":
            requirements.prepare()
            every = [*binaries.CONTROL_PLANE, *binaries.SIMULATED_NODES, *binaries.REAL_NODES]
            every += binaries.CLIENTS
            for name, path in binaries.find(every).items():
                print(f"{name}\t{path}")
            prometheus.prepare()
            foreign_kinds.prepare()
            return 0
        case "check":
            return _check()
        case fault:
            faults.by_name(_one(options.name), node_name=options.node, fault=fault)
            return 0


def _up(name: str, racks: dict[str, int], *, gpus_per_node: int) -> int:
    missing = requirements.missing_for_real_nodes()
    if missing:
        return _check()
    for folder in state_folder.named(name):
        if not state_folder.is_crashed(folder):
            print(
                f"error: testbed {name} runs already, in {folder.path}; use it, remove it "
                f"with `down --name {name}`, or choose another --name",
                file=sys.stderr,
            )
            return EXIT_FAILED
    bed = Testbed.start(name, racks, gpus_per_node=gpus_per_node)
    with tempfile.TemporaryDirectory() as images:
        deployment.load(bed, Path(images))
    deployment.install(bed.control_plane)
    _print_usage(bed, name)
    bed.detach()
    return 0


def _print_usage(bed: Testbed, name: str) -> None:
    example = bed.shared_directory / "example.yaml"
    checkpoints = bed.shared_directory / "checkpoints"
    checkpoints.mkdir()
    job = example_job.manifest(
        "ddp", image=bed.image, checkpoints=checkpoints, min_step_s=EXAMPLE_STEP_S
    )
    example.write_text(yaml.safe_dump(job, sort_keys=False))
    kubectl = binaries.find(["kubectl"])["kubectl"]
    program = f"{sys.executable} -m railwright_testbed"
    print(bed.control_plane.kubectl("get", "nodes", "--label-columns=railwright.dev/rack"))
    print(f"export KUBECONFIG={bed.control_plane.kubeconfig}")
    print(f"kubectl: {kubectl}")
    print(f"pod image: {bed.image}")
    print(f"volume for checkpoints (hostPath): {checkpoints}")
    print("Railwright is installed. To apply a job, describe it, and kill a node:")
    print(f"  {kubectl} apply -f {example}")
    print(f"  {kubectl} describe tj ddp")
    print(f"  {program} kill-node {bed.nodes[0].name} --name {name}")
    print(f"To remove it: {program} down --name {name}")


def _down(name: str | None) -> int:
    folders = state_folder.every() if name is None else state_folder.named(name)
    with sweeping.one_at_a_time():
        for folder in folders:
            # A testbed that a living program owns is that program's to end.
            if folder.description.detached or state_folder.is_crashed(folder):
                sweeping.sweep(folder)
                print(f"removed {folder.path.name}", file=sys.stderr)
            else:
                owner = folder.description.owner_pid
                print(f"left {folder.path.name} alone: process {owner} owns it", file=sys.stderr)
    sweeping.sweep_crashed()
    return 0


def _list() -> int:
    for folder in state_folder.every():
        crashed = state_folder.is_crashed(folder)
        detached = folder.description.detached
        state = "crashed" if crashed else "detached" if detached else "owned"
        print(f"{folder.description.name}\t{folder.testbed_id}\t{state}\t{folder.path}")
    return 0


def _check() -> int:
    packages = requirements.missing_packages()
    if packages:
        print(f"packages that will be installed, or must be: {' '.join(packages)}")
    missing = requirements.missing_for_real_nodes()
    for what in missing:
        print(f"missing for real nodes: {what}")
    if missing:
        print("A control plane with simulated nodes needs none of it.")
        return EXIT_IMPOSSIBLE
    print("real nodes are possible here")
    return 0


def _one(name: str) -> StateFolder:
    folders = [folder for folder in state_folder.named(name) if not state_folder.is_crashed(folder)]
    if len(folders) != 1:
        raise TestbedError(
            f"{len(folders)} testbeds named {name!r} run; exactly one must: see `list`"
        )
    return folders[0]


def _racks(texts: Sequence[str]) -> dict[str, int]:
    racks = {}
    for text in texts:
        name, _, count = text.partition("=")
        if not name or not count.isdecimal() or int(count) < 1:
            raise TestbedError(f"--racks is {text!r}, expected NAME=NODES, such as rack-a=2")
        racks[name] = int(count)
    return racks or DEFAULT_RACKS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m railwright_testbed", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser(
        "up", help="start a testbed with Railwright installed, and leave it running"
    )
    up.add_argument("--name", default="demo")
    up.add_argument("--racks", nargs="*", default=[], metavar="NAME=NODES")
    up.add_argument("--gpus-per-node", type=int, default=8)
    down = commands.add_parser("down", help="remove detached or crashed testbeds")
    down.add_argument("--name", default="demo")
    down.add_argument("--all", action="store_true", help="whatever their names")
    commands.add_parser("list", help="the testbeds of this user")
    commands.add_parser("build", help="find or build all programs")
    commands.add_parser("check", help="list what is missing for real nodes; exits 3 if anything is")
    for fault, what in faults.HELP.items():
        command = commands.add_parser(fault, help=what)
        command.add_argument("node")
        command.add_argument("--name", default="demo", help="of the testbed")
    return parser


if __name__ == "__main__":
    sys.exit(main())
