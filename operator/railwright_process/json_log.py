"""Log lines as JSON objects."""

from __future__ import annotations

import logging
import sys

from pythonjsonlogger.json import JsonFormatter


def start() -> None:
    """Log one JSON object a line; the ``extra`` fields of a call are beside its message."""
    formatter = JsonFormatter(
        ("levelname", "name", "message"),
        rename_fields={"levelname": "level", "name": "logger", "exc_info": "trace"},
        timestamp="time",
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
