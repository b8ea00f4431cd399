"""Plant every mutant: a named test, or the simulated run of a seed, must catch it.

``python -m simulation.mutants`` reports each on stderr; the last line on stdout is one JSON object,
and the exit code is 1 if any survives.
"""

from __future__ import annotations

import json
import sys

from simulation import hunting, tested_mutants
from simulation.hunts import HUNTS
from simulation.tested_mutants import TESTED_MUTANTS


def main() -> int:
    """Plant all."""
    by_tests, by_runs = tested_mutants.survivors(), hunting.survivors(HUNTS)
    figures = {
        "by_tests": len(TESTED_MUTANTS),
        "by_tests_caught": len(TESTED_MUTANTS) - len(by_tests),
        "by_runs": len(HUNTS),
        "by_runs_caught": len(HUNTS) - len(by_runs),
        "survivors": [*by_tests, *by_runs],
    }
    print(json.dumps(figures))
    return 1 if figures["survivors"] else 0


if __name__ == "__main__":
    sys.exit(main())
