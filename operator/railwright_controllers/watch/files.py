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
PROGRESS = "survey-progress.json.gz"
"""What the controllers store of a survey that has not ended, beside its last result. It is no
source."""


@dataclass(frozen=True, slots=True)
class FilesRecord:
    """The files of a ConfigMap, sorted by name. ``time`` is the time of its last write. A change of
    a survey's ``progress`` alone leaves the record equal: nothing is read or assembled again."""

    uid: str
    name: str
    files: tuple[File, ...]
    rv: int = field(compare=False)
    time: str = field(default="", compare=False)
    progress: File | None = field(default=None, compare=False)


def record(found: ConfigMap) -> FilesRecord:
    """The record of a ConfigMap. Raises ValueError for invalid base64."""
    metadata = found.metadata
    contents: dict[str, str | bytes] = {
        name: base64.b64decode(packed) for name, packed in found.binary_data.items()
    }
    contents |= found.data
    files = {name: File(metadata.name, name, each) for name, each in sorted(contents.items())}
    progress = files.pop(PROGRESS, None) if metadata.name == names.PROBES else None
    return FilesRecord(
        metadata.uid,
        metadata.name,
        tuple(files.values()),
        rv=int(metadata.resource_version),
        time=max((write.time for write in metadata.managed_fields), default=""),
        progress=progress,
    )
