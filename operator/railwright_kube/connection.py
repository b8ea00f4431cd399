"""Address and credentials of the API server, read by the ``kubernetes`` package.

Tokens expire: the kubelet rotates the in-cluster file, and the output of an exec plugin has an
expiry. Reading the configuration again yields the current token, whatever its source.
"""

from __future__ import annotations

import ssl
from typing import Any

import yaml
from kubernetes.client.configuration import Configuration

from kubernetes import client, config

UNUSABLE = (
    config.ConfigException,
    yaml.YAMLError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
)
"""What the ``kubernetes`` package raises for an incomplete configuration."""


class CredentialsError(Exception):
    """The credentials cannot be read now."""


def load(kubeconfig: str | None) -> Configuration:
    """Read a kubeconfig file, or (None) the pod's service account.

    Raises ``kubernetes.config.ConfigException`` when that cannot be read.
    """
    settings = Configuration()
    if kubeconfig is None:
        config.load_incluster_config(  # type: ignore[no-untyped-call]
            client_configuration=settings
        )
    else:
        config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, client_configuration=settings, persist_config=False
        )
    return settings


def bearer_token(settings: Configuration) -> str | None:
    """The token that a configuration was read with; None where there are only certificates."""
    authorization = settings.api_key.get("BearerToken")
    return None if authorization is None else authorization.split(maxsplit=1)[-1].strip()


def token(kubeconfig: str | None) -> str | None:
    """Read the current token. This reads files and may run an exec plugin: not on an event loop.

    Raises CredentialsError: a file that is being replaced can have any content.
    """
    try:
        return bearer_token(load(kubeconfig))
    except UNUSABLE as error:
        raise CredentialsError(f"{type(error).__name__}: {error}") from error


def tls_context(settings: Configuration) -> ssl.SSLContext | None:
    """The TLS context: the CA of the server and the client certificate; None for plain HTTP."""
    if not settings.host.startswith("https:"):
        return None
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if settings.cert_file is not None:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    return context


def blocking_client(kubeconfig: str | None, *, deadline_s: float) -> client.ApiClient:
    """A client of the ``kubernetes`` package whose requests end within ``deadline_s``.

    Its own retries are off, as they would multiply the deadline.
    """
    settings = load(kubeconfig)
    settings.retries = 0
    return _BoundedClient(settings, deadline_s)


class _BoundedClient(client.ApiClient):
    """Puts a deadline on requests of callers that pass none, such as LeaseLock."""

    def __init__(self, settings: Configuration, deadline_s: float) -> None:
        super().__init__(configuration=settings)
        self._deadline_s = deadline_s

    def call_api(self, *args: Any, **options: Any) -> Any:
        options["_request_timeout"] = options.get("_request_timeout") or self._deadline_s
        return super().call_api(*args, **options)
