"""The demo on somebody's cluster: it installs Railwright, trains, deletes a pod, and uninstalls."""

from __future__ import annotations

import os
import secrets
import shlex
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from railwright_api import names, routes
from railwright_cli.api_server import CORE, ApiServer
from railwright_cli.errors import RequestError
from railwright_cli.installation import Version
from railwright_demo import own_job, pod_states, training
from railwright_demo.errors import DemoError, DemoRefused
from railwright_demo.figures import Figures
from railwright_demo.installation import Installation
from railwright_demo.manifests import NAMESPACE, SYSTEM
from railwright_demo.scene import Scene
from railwright_demo.screen import Screen
from railwright_demo.training import Ended
from railwright_demo.training_log import PolledLogs
from railwright_demo.watched_job import WatchedJob
from railwright_testbed import waiting
from railwright_testbed.api_client import Json

CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
OWN = f"{CORE}/namespaces/{NAMESPACE}"
PULLED_S = 1800.0
"""An image with torch has gigabytes."""

RETRIED_S = 30.0
PAUSE_S = 1.0
LAST_LINES = {"tailLines": 15}


@dataclass(frozen=True, slots=True)
class Request:
    """What the user of the demo says. ``image`` is that of the operator, ``train_image`` that of
    the job; without a ``storage_class`` it is the cluster's default."""

    kubeconfig: str
    image: str
    train_image: str
    storage_class: str
    is_confirmed: bool


class OwnCluster:
    """The API server of a kubeconfig, and the one node that the job runs on."""

    def __init__(self, server: ApiServer, node: str) -> None:
        self.namespace = NAMESPACE
        self.nodes_path = f"{CORE}/nodes?fieldSelector=metadata.name={node}"
        self._server = server

    def get(self, path: str) -> Json:
        return _patiently(lambda: self._server.get(path, Json))

    def apply(self, job: Json) -> None:
        self._server.create(routes.kind(names.TRAINING_JOBS, NAMESPACE), job)

    def timeline(self, job: str) -> str:
        path = f"{OWN}/events?fieldSelector=involvedObject.name={job}"
        events = sorted(self.get(path)["items"], key=lambda each: each.get("eventTime") or "")
        lines = [f"{each['eventTime']}  {each['reason']}: {each['message']}" for each in events]
        return "\n".join([f"events of {job}:", *lines])

    def log(self, pod: str) -> str:
        """What the ranks of a pod have printed."""
        return _log(self._server, f"{OWN}/pods/{pod}", {"container": "train"})


def play(screen: Screen, request: Request) -> tuple[Figures, str]:
    """The figures, and the events of the job. Raises DemoRefused before anything is changed, and
    DemoError, RequestError and TestbedError after everything is uninstalled."""
    if not request.train_image:
        raise DemoRefused(
            "TRAIN_IMAGE is missing: expected an image for the job with Python 3.11 or newer and "
            "torch, such as one that you train with"
        )
    try:
        server = _server(request.kubeconfig)
        installation = Installation(server, image=request.image, run=secrets.token_hex(4))
        storage_class = _storage_class(server, request.storage_class)
        screen.report(_summary(server, installation, request, storage_class))
        installation.check()
    except RequestError as error:
        raise DemoRefused(str(error)) from error
    _confirm(request)
    try:
        screen.report("installing Railwright")
        installation.create()
        screen.report("waiting for the operator and the controllers")
        installation.until_ready()
        node = _bind_volume(server, screen, request.train_image, storage_class)
        interrupted = _train(server, screen, request, node, loses_a_pod=True)
        screen.report("the same training again, and nothing happens")
        uninterrupted = _train(server, screen, request, node, loses_a_pod=False)
    finally:
        left = _uninstall(screen, installation)
    if left:
        raise DemoError(f"it did all that it should, but {left} objects are left")
    return training.figures_of(interrupted, uninterrupted), interrupted.timeline


def _server(kubeconfig: str) -> ApiServer:
    """The cluster of the current context of one file, or of several as kubectl takes them."""
    paths = [Path(each).expanduser() for each in kubeconfig.split(os.pathsep)]
    if not any(path.exists() for path in paths):
        raise DemoRefused(f"KUBECONFIG is {kubeconfig!r}: there is no such file")
    os.environ["KUBECONFIG"] = os.pathsep.join(map(str, paths))
    return ApiServer()


def _storage_class(server: ApiServer, name: str) -> str:
    """The named class, or the default one. Raises DemoRefused."""
    classes: dict[str, bool] = {
        each["metadata"]["name"]: each["metadata"].get("annotations", {}).get(DEFAULT_CLASS)
        == "true"
        for each in server.items(CLASSES, Json)
    }
    existing = ", ".join(sorted(classes)) or "none"
    if name:
        if name not in classes:
            raise DemoRefused(f"there is no StorageClass {name}; there are: {existing}")
        return name
    for each, is_default in classes.items():
        if is_default:
            return each
    raise DemoRefused(
        "the checkpoints of the job need a volume, and the cluster has no default StorageClass: "
        f"set STORAGE_CLASS to one of its classes; there are: {existing}"
    )


def _summary(
    server: ApiServer, installation: Installation, request: Request, storage_class: str
) -> str:
    version = server.get("/version", Version)
    nodes = len(server.items(f"{CORE}/nodes", Json))
    counted = Counter(raw["kind"] for raw in (*installation.kinds, *installation.objects))
    objects = ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))
    registry, _, tag = request.image.rpartition("/railwright-operator:")
    context = server.context
    return f"""Railwright's demo, on a cluster of yours:
  context   {context.name}, {context.client.configuration.host}
  cluster   Kubernetes {version.major}.{version.minor}, nodes: {nodes}
  installs  {objects}
            in the namespaces {SYSTEM} and {NAMESPACE}. The operator may run jobs in the
            second one only. There are no node agents
  images    {registry}/railwright-{{operator,controllers,launcher}}:{tag}
  runs      {own_job.NUM_PODS} pods with {request.train_image}
            on one node, with a volume of {own_job.STORAGE} and the StorageClass {storage_class}
  and then  deletes one of these pods, and in the end all of the above"""


def _confirm(request: Request) -> None:
    if request.is_confirmed:
        return
    if not sys.stdin.isatty():
        raise DemoRefused("there is no terminal to ask at: say yes with YES=1, or --yes")
    print("Type yes to go on: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise DemoRefused("the answer was not yes")


def _bind_volume(server: ApiServer, screen: Screen, image: str, storage_class: str) -> str:
    """Create the volume; the name of the node that mounts it."""
    screen.report(f"a pod checks the volume, and {image}, which its node may have to pull")
    pods = f"{OWN}/pods"
    server.create(f"{OWN}/persistentvolumeclaims", own_job.claim(storage_class))
    server.create(f"{OWN}/configmaps", own_job.script())
    service_account = f"{OWN}/serviceaccounts/default"
    waiting.until(
        lambda: server.find(service_account, Json),
        "the service account of pods",
        deadline_s=RETRIED_S,
    )
    pod = own_job.first_pod(image)
    path = f"{pods}/{server.create(pods, pod)['metadata']['name']}"

    def ended() -> Json | None:
        pod_states.check_images(server, NAMESPACE)
        found = server.get(path, Json)
        return found if found["status"].get("phase") in ("Succeeded", "Failed") else None

    found = waiting.until(
        ended,
        "a pod with a volume to end",
        deadline_s=PULLED_S,
        evidence=lambda: pod_states.describe(server, NAMESPACE),
        pause_s_longest=PAUSE_S,
    )
    if found["status"]["phase"] == "Failed":
        raise DemoError(f"the job cannot run in {image}: {_log(server, path, {})}")
    return str(found["spec"]["nodeName"])


def _train(
    server: ApiServer, screen: Screen, request: Request, node: str, *, loses_a_pod: bool
) -> Ended:
    cluster = OwnCluster(server, node)
    job = training.JOB if loses_a_pod else training.UNINTERRUPTED
    labels = server.get(f"{CORE}/nodes/{node}", Json)["metadata"]["labels"]

    def lose_pod(watched: WatchedJob, scene: Scene) -> None:
        chosen = next(
            each.name
            for each in scene.pods
            if (each.attempt, each.node_rank) == (scene.job.attempt, training.RANK_THAT_DIES)
        )
        watched.lose_pod(
            chosen, lambda name: server.delete(f"{OWN}/pods/{name}"), deadline_s=training.DEADLINE_S
        )

    screen.report(f"kubectl apply: {job}, {own_job.NUM_PODS} pods on {node}")
    return training.train(
        cluster,
        own_job.manifest(
            job,
            image=request.train_image,
            hostname=labels.get(own_job.HOSTNAME, node),
            min_step_s=training.MIN_STEP_S if loses_a_pod else 0.0,
        ),
        logs=PolledLogs(cluster.log),
        screen=screen,
        evidence=lambda: _evidence(server),
        disturb=lose_pod if loses_a_pod else None,
    )


def _evidence(server: ApiServer) -> str:
    system = f"{CORE}/namespaces/{SYSTEM}/pods"
    names = [pod["metadata"]["name"] for pod in server.items(system, Json)]
    logs = [f"{name}:\n{_log(server, f'{system}/{name}', LAST_LINES)}" for name in names]
    return "\n".join([pod_states.describe(server, NAMESPACE), *logs])


def _log(server: ApiServer, pod: str, query: Mapping[str, str | int]) -> str:
    """The log of a pod, by its path; empty if there is none, or not any more."""
    try:
        lines = list(server.lines(f"{pod}/log", query, silence_s=RETRIED_S))
    except RequestError:
        return ""
    return "".join(f"{line.decode(errors='replace')}\n" for line in lines)


def _uninstall(screen: Screen, installation: Installation) -> int:
    """Returns how many objects are left, after it has printed how to delete them."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    screen.report("uninstalling")
    left = installation.remove()
    if left:
        kubeconfig = shlex.quote(os.environ["KUBECONFIG"])
        commands = [f"KUBECONFIG={kubeconfig} kubectl delete {each}" for each in left]
        screen.report("this could not be removed, or objects of users need it. To remove it:")
        print(*commands, sep="\n", file=sys.stderr, flush=True)
    else:
        screen.report("everything that the demo installed is removed")
    return len(left)


def _patiently(read: Callable[[], Json]) -> Json:
    """What is read, as soon as the API server answers. Raises RequestError."""
    end_s = time.monotonic() + RETRIED_S
    while True:
        try:
            return read()
        except RequestError as error:
            if not error.is_temporary or time.monotonic() > end_s:
                raise
        time.sleep(PAUSE_S)
