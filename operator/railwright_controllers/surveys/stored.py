"""Store surveys in their ConfigMap."""

from __future__ import annotations

import base64
import gzip

from railwright_api import names
from railwright_kube import paths
from railwright_kube.client import Api

FILE = "probes.json.gz"
BYTES_MAX = 900_000
"""Compressed and in base64: the API server accepts 1 MiB for the whole object."""


class TooLargeError(Exception):
    """The survey is larger than the ConfigMap may be."""


async def keep(api: Api, namespace: str, text: str) -> None:
    """Replace the stored survey. Raises RequestFailed or TooLargeError."""
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    if len(packed) > BYTES_MAX:
        raise TooLargeError(f"{len(packed)} bytes packed, at most {BYTES_MAX}")
    await api.patch(paths.config_map(namespace, names.PROBES), {"binaryData": {FILE: packed}})
