"""Which nodes hang together by chains of pairs."""

from __future__ import annotations

import numpy as np

from railwright_topology.probing.readings import Ints


def linked(nodes: int, ends: Ints) -> Ints:
    """For each node the first of those that these pairs link it with."""
    labels = np.arange(nodes)
    while True:
        found = labels.copy()
        groups = labels[ends]
        lower = groups.min(axis=0)
        for group in groups:
            # The first of its group takes the lower one too, so that whole groups move at once.
            np.minimum.at(found, group, lower)
        found = found[found]
        if (found == labels).all():
            return labels
        labels = found
