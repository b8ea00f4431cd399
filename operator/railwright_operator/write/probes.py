"""What surveys found, in the ConfigMap that is kept for it."""

from __future__ import annotations

import base64
import gzip

from railwright_api import names
from railwright_operator.kube import paths
from railwright_operator.kube.client import Api

FILE = "probes.json.gz"
BYTES_MAX = 900_000
"""Packed and in base64: the API server takes 1 MiB, all else of the object included."""


class TooLargeError(Exception):
    """It has more bytes than can be kept, and how many."""


async def keep(api: Api, namespace: str, text: str) -> None:
    """Put it in place of what was there. Raises RequestFailed, and TooLargeError."""
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    if len(packed) > BYTES_MAX:
        raise TooLargeError(f"{len(packed)} bytes packed, at most {BYTES_MAX}")
    await api.patch(paths.config_map(namespace, names.PROBES), {"binaryData": {FILE: packed}})
