"""``railwright submit``: create a job from a file, or from options and a command."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from railwright_api import names, routes
from railwright_cli.api_server import ApiServer, valid_name
from railwright_cli.errors import EXIT_NEGATIVE, AccessDeniedError, UsageError
from railwright_cli.inventory import accelerators, device_count
from railwright_cli.jobs import Context, Namespace
from railwright_cli.tables import ResultOutput, ResultOutputOption, show_result

KIND = "TrainingJob"
FILE_BYTES_MAX = 3 << 20
"""More than the API server takes."""

MERGE_TAG = "tag:yaml.org,2002:merge"

NAME_LENGTH_MAX = 30
"""Of the part of a name that is made from the command."""

DRY_RUN = "let the API server check the job, print it, and say on stderr whether it fits"


def submit(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="[-- COMMAND...]", help="what each rank runs")
    ] = None,
    file: Annotated[
        str, typer.Option("-f", "--file", help="a file with TrainingJobs; - for standard input")
    ] = "",
    name: Annotated[str, typer.Option(help="default: made from the command")] = "",
    image: Annotated[str, typer.Option(help="the image that the command runs in")] = "",
    nodes: Annotated[int, typer.Option("-N", "--nodes", min=1, help="pods, each on a node")] = 1,
    processes: Annotated[
        int | None,
        typer.Option("--processes", min=1, help="ranks on each node; default: its devices, or 1"),
    ] = None,
    limits: Annotated[
        str,
        typer.Option(metavar="NAME=AMOUNT,...", help="of each node, as nvidia.com/gpu=8,cpu=32"),
    ] = "",
    env: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="a variable")] = None,
    queue: Annotated[str, typer.Option(help="default: the queue default")] = "",
    priority: Annotated[str, typer.Option(metavar="CLASS", help="a PriorityClass")] = "",
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help=DRY_RUN)] = False,
    namespace: Namespace = "",
    context: Context = "",
    output: ResultOutputOption = "text",
) -> None:
    """Create a job.

    With --file, the TrainingJobs of a file. Otherwise the options describe a job with one role.
    The command runs once for each rank, with the environment that torchrun sets, so torchrun is
    not a part of it. It and its files are in the image. For volumes, topology, security contexts
    and limits of time, write a file.

    With --dry-run nothing is created. It says of each job whether it fits now, waits, or can never
    start, as the scheduler would decide about it behind the jobs that wait; of a job that can never
    start the exit code is 1. That needs the rights to list nodes and pods of the cluster.

      railwright submit -N 4 --image registry/train:1 --limits nvidia.com/gpu=8 -- python train.py
    """
    if bool(file) == bool(command):
        raise UsageError("expected either --file or a command after --")
    given = (name, image, nodes != 1, processes, limits, env, queue, priority)
    if file and any(given):
        raise UsageError("--file has the whole job: expected no other options of it")
    if command:
        container = _container(command, image, limits, env or [])
        role = {
            "name": "worker",
            "replicas": nodes,
            "processesPerReplica": processes or _devices(container),
            "template": {"spec": {"containers": [container]}},
        }
        spec = _set({"queue": queue, "priorityClassName": priority}) | {"roles": [role]}
        metadata = {"name": name} if name else {"generateName": _prefix(command)}
        manifests = [{"metadata": metadata, "spec": spec}]
    else:
        manifests = list(read(file))
    _submit(ApiServer(context, namespace), manifests, namespace, output, is_dry_run=is_dry_run)


def _submit(
    server: ApiServer,
    manifests: list[Any],
    namespace: str,
    output: ResultOutput,
    *,
    is_dry_run: bool,
) -> None:
    """Create these jobs, or say whether they would fit, and print each."""
    created = []
    for place, manifest in zip(_places(manifests, namespace), manifests, strict=True):
        found = _create(server, manifest, place or server.namespace, is_dry_run=is_dry_run)
        name = found["metadata"]["name"]
        line = f"{found['metadata']['namespace']}/{name} created"
        show_result(line, name, found, "yaml" if is_dry_run and output == "text" else output)
        created.append(found)
    if is_dry_run and not _can_start(server, created):
        raise typer.Exit(EXIT_NEGATIVE)


def _places(manifests: list[Any], namespace: str) -> list[str]:
    """The namespace of each manifest; empty if it names none. Raises UsageError."""
    places = [str((each.get("metadata") or {}).get("namespace") or "") for each in manifests]
    if namespace and (others := {*places} - {namespace, ""}):
        raise UsageError(f"a job is for namespace {min(others)}, and --namespace is {namespace}")
    return [place or namespace for place in places]


def _set(fields: dict[str, str]) -> dict[str, Any]:
    """The fields that are not empty."""
    return {name: value for name, value in fields.items() if value}


def _can_start(server: ApiServer, created: list[Any]) -> bool:
    """Say on stderr whether each of these jobs fits. Returns whether all of them can start."""
    # It imports numpy, for which a submission does not wait.
    from railwright_cli import feasibility

    try:
        found, notes = feasibility.check(server, created)
    except AccessDeniedError as error:
        typer.echo(f"railwright: whether it fits is unknown: {error}", err=True)
        return True
    for job, its in zip(created, found, strict=True):
        metadata = job["metadata"]
        typer.echo(f"railwright: {metadata['namespace']}/{metadata['name']} {its.text}", err=True)
    for note in notes:
        typer.echo(f"railwright: {note}", err=True)
    return not any(each.is_never for each in found)


def _create(server: ApiServer, manifest: Any, place: str, *, is_dry_run: bool) -> Any:
    """The created object."""
    body = {"apiVersion": names.API_VERSION, "kind": KIND, **manifest}
    path = routes.kind(names.TRAINING_JOBS, valid_name(place))
    created = server.create(path, body, is_dry_run=is_dry_run)
    created["metadata"].pop("managedFields", None)
    return created


class _Loader(yaml.SafeLoader):
    """YAML as kubectl reads it: 12:30 and dates are text, and a key is there once."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Raises a YAMLError for a key that is there twice, before `<<` adds those of others."""
        node = super().compose_mapping_node(anchor)
        keys = [key for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        numbers = Counter(self.construct_object(key) for key in keys if key.tag != MERGE_TAG)
        if twice := [key for key, number in numbers.items() if number > 1]:
            raise yaml.YAMLError(f"{twice[0]!r} is there twice{node.start_mark}")
        return node


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(("int", "timestamp"))]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int",
    re.compile("[-+]?(?:0|[1-9][0-9]*|0x[0-9a-fA-F]+)$"),
    list("-+0123456789"),
)


def read(file: str) -> Iterator[Any]:
    """The manifests of a file. Raises UsageError for what is no TrainingJob."""
    with sys.stdin.buffer if file == "-" else Path(file).open("rb") as stream:
        data = stream.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise UsageError(f"{file} is larger than {FILE_BYTES_MAX >> 20} MiB")
    try:
        found = [each for each in yaml.load_all(data, _Loader) if each is not None]
        json.dumps(found)
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{file}: {error}") from error
    if not found:
        raise UsageError(f"{file} is empty: expected a TrainingJob")
    for each in found:
        kind = each.get("kind") if isinstance(each, dict) else type(each).__name__
        if kind != KIND:
            raise UsageError(f"{file} has a {kind}: expected a TrainingJob (use kubectl apply)")
        if not isinstance(each.get("metadata") or {}, dict):
            raise UsageError(f"{file}: metadata is no mapping")
    yield from found


def _container(command: list[str], image: str, limits: str, env: list[str]) -> dict[str, Any]:
    if not image:
        raise UsageError("a command needs --image: the image that it runs in")
    container: dict[str, Any] = {"name": "train", "image": image, "command": command}
    if limits:
        container["resources"] = {"limits": dict(_pairs(limits.split(","), "--limits"))}
    if env:
        pairs = _pairs(env, "--env")
        container["env"] = [{"name": name, "value": value} for name, value in pairs]
    return container


def _pairs(texts: list[str], option: str) -> Iterator[tuple[str, str]]:
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"{option}: {text!r} is not NAME=VALUE")
        yield name, value


def _devices(container: dict[str, Any]) -> int:
    """The devices of a node, without adapters of the network: one rank for each. 1 if there are
    none. Raises UsageError if there are several kinds of them."""
    limits = container.get("resources", {}).get("limits", {})
    names = accelerators(name for name in limits if "/" in name)
    if len(names) > 1:
        raise UsageError("--limits has several kinds of devices: --processes says how many ranks")
    return max([1, *(device_count(name, limits[name]) for name in names)])


def _prefix(command: list[str]) -> str:
    """The beginning of a name: that of the script, or of the program."""
    scripts = [Path(each).stem for each in command if each.endswith((".py", ".sh"))]
    chosen = scripts[0] if scripts else Path(command[0]).name
    word = re.sub("[^a-z0-9]+", "-", chosen.lower()).strip("-")[:NAME_LENGTH_MAX].strip("-")
    return f"{word if word[:1].isalpha() else 'job'}-"
