"""The launcher's own lines on stderr, among those of the training script.

One line an entry: ``railwright: what happened key=value``, the keys being the record's extra
fields.
"""

from __future__ import annotations

import json
import logging

logger = logging.getLogger(__name__)

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def to_stderr() -> None:
    """Sends the package's log records there, from INFO up."""
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine())
    logger = logging.getLogger("railwright")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = {name: value for name, value in vars(record).items() if name not in STANDARD}
        pairs = [f"{name}={json.dumps(value, default=str)}" for name, value in fields.items()]
        return " ".join([f"railwright: {record.getMessage()}", *pairs])


class Milestones:
    """A count of what may happen thousands of times a second, and when a log line is due."""

    def __init__(self, message: str) -> None:
        self._message = message
        self._count = self._logged = 0

    def warn(self, times: int = 1, **fields: object) -> None:
        """Count, and log the message with these fields if that is due."""
        if count := self.add(times):
            logger.warning(self._message, extra={**fields, "count": count})

    def add(self, times: int = 1) -> int:
        """The count, if it has at least doubled since it was last logged; else 0."""
        self._count += times
        if self._count < 2 * self._logged:
            return 0
        self._logged = self._count
        return self._count
