"""The language tests are written in: worlds as tables, as values by keyword, and by chance."""

from __future__ import annotations

from worlds.jobs import GPU, cluster, job, node
from worlds.text import outcome, table, world

__all__ = ["GPU", "cluster", "job", "node", "outcome", "table", "world"]
