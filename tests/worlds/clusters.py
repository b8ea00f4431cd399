"""What the end-to-end tests run on."""

from __future__ import annotations

from dataclasses import dataclass

from railwright_testbed import Testbed
from railwright_testbed.operator_process import OperatorProcess


@dataclass(frozen=True, slots=True)
class Cluster:
    """A testbed with the product on it."""

    bed: Testbed
    operator: OperatorProcess
