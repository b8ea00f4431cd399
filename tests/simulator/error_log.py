"""An error that the operator logs breaks a run: the operator goes on after most of its errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from history.invariants import ViolationError
from railwright_operator.write.ledger import DeposedError


class LoggedError(Exception):
    """The operator logged an error."""


@contextmanager
def errors_end(
    broken: Callable[[BaseException], None],
    *,
    books_twice: bool,
    expects_findings: Callable[[], bool],
) -> Iterator[None]:
    """Call ``broken`` with each error that is logged in the block; warnings are dropped. Where
    somebody ``books_twice``, a double booking is no error, and while it ``expects_findings``, one
    of the live verification is none."""
    handler = _Errors(broken, books_twice=books_twice, expects_findings=expects_findings)
    disabled = logging.root.manager.disable
    logging.root.addHandler(handler)
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(disabled)
        logging.root.removeHandler(handler)


class _Errors(logging.Handler):
    def __init__(
        self,
        broken: Callable[[BaseException], None],
        *,
        books_twice: bool,
        expects_findings: Callable[[], bool],
    ) -> None:
        super().__init__(logging.ERROR)
        self._broken = broken
        self._books_twice = books_twice
        self._expects_findings = expects_findings

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        is_booking = self._books_twice and hasattr(record, "held")
        if not is_booking and not self._is_expected(record, error):
            self._broken(_error_of(record, error))

    def _is_expected(self, record: logging.LogRecord, error: BaseException | None) -> bool:
        """Whether a fault of the simulated cluster is the cause: another replica leads, or the live
        verification has a finding, as a watch lost an event or the process was paused."""
        message = record.getMessage()
        if message == "invariant violated":
            return hasattr(record, "finding") and self._expects_findings()
        return message == "work stopped" and error is not None and _is_deposed(error)


def _is_deposed(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_deposed, error.exceptions))
    return isinstance(error, DeposedError)


def _error_of(record: logging.LogRecord, error: BaseException | None) -> Exception:
    finding = getattr(record, "finding", None)
    if finding is not None:
        return ViolationError(f"the operator finds after all faults: {finding}")
    return LoggedError(f"{record.getMessage()}: {error!r}")
