"""The files of a site about its network: ConfigMaps in the controllers' namespace with a label.

kubectl -n railwright-system create configmap site --from-file=topology.conf
kubectl -n railwright-system label configmap site railwright.dev/fabric=default
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from railwright_api import names
from railwright_kube import projections
from railwright_kube.core_v1 import ConfigMap
from railwright_topology.sources.formats import File

CONFIG_MAPS = projections.of(ConfigMap)
SELECTOR = {"labelSelector": f"{names.LABEL_FABRIC}={names.SINGLETON}"}


@dataclass(frozen=True, slots=True)
class FilesRecord:
    """The files of a ConfigMap, sorted by name. ``time`` is the time of its last write."""

    uid: str
    name: str
    files: tuple[File, ...]
    rv: int = field(compare=False)
    time: str = field(default="", compare=False)


def record(found: ConfigMap) -> FilesRecord:
    """The record of a ConfigMap. Raises ValueError for invalid base64."""
    metadata = found.metadata
    contents: dict[str, str | bytes] = {
        name: base64.b64decode(packed) for name, packed in found.binary_data.items()
    }
    contents |= found.data
    files = (File(metadata.name, name, content) for name, content in sorted(contents.items()))
    return FilesRecord(
        metadata.uid,
        metadata.name,
        tuple(files),
        rv=int(metadata.resource_version),
        time=max((write.time for write in metadata.managed_fields), default=""),
    )
