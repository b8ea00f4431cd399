"""Log lines as JSON objects."""

from __future__ import annotations

import logging
import sys

from pythonjsonlogger.core import RESERVED_ATTRS
from pythonjsonlogger.json import JsonFormatter

OBJECTS = ("settings", "k8s_skip")
"""What kopf adds to its records for its own handlers; it cannot be written as JSON."""


def start() -> None:
    """Log one JSON object a line; the ``extra`` fields of a call are beside its message."""
    formatter = JsonFormatter(
        ("levelname", "name", "message"),
        reserved_attrs=(*RESERVED_ATTRS, *OBJECTS),
        rename_fields={"levelname": "level", "name": "logger", "exc_info": "trace"},
        timestamp="time",
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
