"""Which context of the kubeconfig a command uses, and its namespace.

As in kubectl, the first of several files that names a current context counts, the first one that
has a context of a name, and paths are relative to the file that they are in. (The `kubernetes`
package takes the last current context, and the folder of the cluster's file.)
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import yaml
from urllib3.util import make_headers

from kubernetes import client, config
from railwright_cli.errors import RequestError

IN_A_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
DEFAULT_PATH = "~/.kube/config"
PATHS = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
LISTS = ("clusters", "users", "contexts")

UNUSABLE = (
    *(config.ConfigException, yaml.YAMLError, OSError),
    # What the package raises for fields of another type, and for proxies that need another package.
    *(AttributeError, ImportError, LookupError, TypeError, ValueError),
)

Config = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KubeContext:
    """How to reach an API server, and the namespace of commands that name none. In a pod, the
    ``name`` is empty."""

    name: str
    client: client.ApiClient
    namespace: str


_named_files: list[Path] = []


def use(path: Path | None) -> None:
    """Read this file from now on, whatever the variable says; None undoes it. Not with the
    variable, which has several files: the name may have its separator."""
    _named_files[:] = [path] if path else []


def read(context: str) -> KubeContext:
    """The named context, or the current one if the name is empty; without a kubeconfig, that of
    the pod that this runs in. Raises RequestError."""
    paths = _named_files or _paths(os.environ.get("KUBECONFIG") or DEFAULT_PATH)
    try:
        return _read(paths, context)
    except UNUSABLE as error:
        names = os.pathsep.join(map(str, paths))
        raise RequestError(0, f"no cluster: {names}: {error}") from error


def _paths(text: str) -> list[Path]:
    # A user of a pod may have no home.
    return [Path(os.path.expanduser(path)) for path in text.split(os.pathsep) if path]


def _read(paths: Sequence[Path], context: str) -> KubeContext:
    configuration = client.Configuration()
    configuration.retries = False
    files = [_file(path) for path in paths if path.exists()]
    if not files and not context and IN_A_POD.exists():
        config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        _set_proxy(configuration, {})
        return KubeContext("", client.ApiClient(configuration), IN_A_POD.read_text().strip())
    merged = _merged(files)
    name, chosen = _chosen(merged, context)
    user = (_named(merged["users"], chosen.get("user")) or {}).get("user") or {}
    if "as" in user:
        raise config.ConfigException(
            f"the user of context {name} acts as {user['as']!r}: railwright cannot, use kubectl"
        )
    config.load_kube_config_from_dict(  # type: ignore[no-untyped-call]
        merged, context=name, client_configuration=configuration
    )
    _check_credentials(configuration, user)
    _strip_tokens(configuration)
    _set_proxy(configuration, _named(merged["clusters"], chosen.get("cluster")) or {})
    namespace = str(chosen.get("namespace") or "default")
    return KubeContext(name, client.ApiClient(configuration), namespace)


def _set_proxy(configuration: client.Configuration, cluster: Config) -> None:
    """The proxy of a cluster counts before variables, whose rules are those of kubectl. Either
    gets the credentials of its URL."""
    proxy = (cluster.get("cluster") or {}).get("proxy-url")
    if proxy:
        configuration.no_proxy = ""
    elif proxy := configuration.proxy:
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        configuration.proxy = None if _is_loopback(configuration.host) else proxy
    # One for SOCKS takes them from the URL; the header would be sent to the API server.
    if proxy and not proxy.startswith("socks"):
        credentials = urlsplit(proxy).netloc.rpartition("@")[0]
        configuration.proxy_headers = make_headers(proxy_basic_auth=unquote(credentials) or None)


def _is_loopback(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _strip_tokens(configuration: client.Configuration) -> None:
    """Editors end files with a line break; a header must not have one. The package reads tokens
    again before each request, and replaces this function then."""
    read_again = configuration.refresh_api_key_hook

    def strip(its: client.Configuration) -> None:
        if read_again is not None:
            read_again(its)
        its.refresh_api_key_hook = strip  # type: ignore[assignment]  # it is declared as None
        its.api_key = {key: text.strip() for key, text in its.api_key.items()}

    configuration.refresh_api_key_hook = strip  # type: ignore[assignment]


def _merged(files: list[Config]) -> Config:
    """All files as one; the first that has an entry of a name counts."""
    merged: Config = {key: _first_of_each_name(files, key) for key in LISTS}
    current = (each.get("current-context") for each in files)
    return merged | {"current-context": next((each for each in current if each), "")}


def _first_of_each_name(files: list[Config], key: str) -> list[Config]:
    """The package takes no second entry of a name."""
    found: Config = {}
    for file in files:
        for each in file.get(key) or ():
            found.setdefault(each["name"], each)
    return [*found.values()]


def _chosen(merged: Config, context: str) -> tuple[str, Config]:
    """The named context, or else the current one. Raises ConfigException."""
    name = context or merged["current-context"]
    found = _named(merged["contexts"], name)
    if found is None:
        existing = ", ".join(str(each["name"]) for each in merged["contexts"]) or "none"
        message = f"there is no context {name!r}" if name else "no context is current"
        raise config.ConfigException(f"{message}; there are: {existing}")
    return name, found["context"]


def _check_credentials(configuration: client.Configuration, user: Config) -> None:
    """Raise ConfigException if a plugin failed: the package goes on without credentials."""
    exec_plugin = user.get("exec")
    if exec_plugin and not (configuration.api_key or configuration.cert_file):
        raise config.ConfigException(f"{exec_plugin.get('command')} gave no credentials")


def _file(path: Path) -> Config:
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.MarkedYAMLError as error:
        # Its text has the line, which may be a token.
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise config.ConfigException(f"{path}, line {line}: {error.problem}") from None
    if not isinstance(found, dict):
        raise config.ConfigException(f"{path} is no kubeconfig")
    for each in [*(found.get("clusters") or ()), *(found.get("users") or ())]:
        its = each.get("cluster") or each.get("user") or {}
        folder, exec_plugin = path.parent.absolute(), its.get("exec") or {}
        its |= {key: str(folder / its[key]) for key in PATHS if its.get(key)}
        # A command without a slash is found by PATH.
        if "/" in (command := str(exec_plugin.get("command"))):
            exec_plugin["command"] = str(folder / command)
    return found


def _named(entries: list[Config], name: object) -> Config | None:
    return next((each for each in entries if each["name"] == name), None)
