"""Which context of the kubeconfig a command uses, and its namespace.

As in kubectl, the first of several files that names a current context counts, and the first one
that has a context of a name. (The `kubernetes` package takes the last current context.)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kubernetes import client, config
from railwright_cli.errors import RequestError

IN_A_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Context:
    """How to reach an API server, and the namespace of commands that name none."""

    configuration: client.Configuration
    namespace: str


def read(context: str) -> Context:
    """The named context, or the current one if the name is empty; without a kubeconfig, that of
    the pod that this runs in. Raises ApiError."""
    paths = os.environ.get("KUBECONFIG") or config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION
    configuration = client.Configuration()
    try:
        files = [_file(path) for path in paths.split(os.pathsep) if _exists(path)]
        if not files and not context and IN_A_POD.exists():
            config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
            return Context(configuration, IN_A_POD.read_text().strip())
        name, namespace = _chosen(files, context)
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=paths, context=name, client_configuration=configuration
        )
    except (config.ConfigException, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise RequestError(0, f"no cluster: {paths}: {error}") from error
    return Context(configuration, namespace)


def _chosen(files: list[dict[str, Any]], context: str) -> tuple[str, str]:
    """The name of the context, and its namespace."""
    current = (each.get("current-context") for each in files)
    name = context or next((each for each in current if each), "")
    contexts = [each for file in files for each in file.get("contexts") or ()]
    found = next((each for each in contexts if each["name"] == name), None)
    if found is None:
        existing = ", ".join(str(each["name"]) for each in contexts) or "none"
        message = f"there is no context {name!r}" if name else "no context is current"
        raise config.ConfigException(f"{message}; there are: {existing}")
    return name, str(found["context"].get("namespace") or "default")


def _exists(path: str) -> bool:
    return bool(path) and Path(path).expanduser().exists()


def _file(path: str) -> dict[str, Any]:
    found = yaml.safe_load(Path(path).expanduser().read_text(encoding="utf-8"))
    if not isinstance(found, dict):
        raise config.ConfigException(f"{path} is no kubeconfig")
    return found
