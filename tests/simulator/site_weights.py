"""How often what happens in runs with the real controllers."""

from __future__ import annotations

SITE_WEIGHTS = {
    "job created": 8,
    "resume job": 1,
    "rank crash": 1,
    "take over": 1,
    "node down": 1,
    "node cut": 1,
    "node up": 4,
    "controllers killed": 3,
    "controllers killed at await": 6,
    "controllers paused": 2,
    "controllers cut": 1,
    "node left": 1,
    "node joined": 2,
    "node relabelled": 4,
    "file changed": 3,
    "file broken": 1,
    "file repaired": 2,
    "hardware changed": 5,
    "agent stopped": 1,
    "fabric deleted": 1,
    "health deleted": 1,
}
