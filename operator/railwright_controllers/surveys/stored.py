"""Store the files of surveys in their ConfigMap."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Mapping

from railwright_api import names
from railwright_kube import paths
from railwright_kube.client import Api

RESULT = "probes.json.gz"
BYTES_MAX = 900_000
"""Compressed and in base64: the API server accepts 1 MiB for the whole object."""


class TooLargeError(Exception):
    """The survey is larger than the ConfigMap may be."""


async def keep(api: Api, namespace: str, texts: Mapping[str, str]) -> None:
    """Replace these stored files in one write. Raises RequestFailed or TooLargeError."""
    packed = {
        name: base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
        for name, text in texts.items()
    }
    if (size := sum(map(len, packed.values()))) > BYTES_MAX:
        raise TooLargeError(f"{size} bytes packed, at most {BYTES_MAX}")
    await api.patch(paths.config_map(namespace, names.PROBES), {"binaryData": packed})
