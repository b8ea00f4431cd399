"""The one error of the testbed: what was seen, what was expected, what to do."""

from __future__ import annotations


class TestbedError(RuntimeError):
    """A part of the testbed did not do what it must."""

    # Its name starts with "Test", and pytest would try to collect it.
    __test__ = False
