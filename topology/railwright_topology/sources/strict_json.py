"""JSON from a machine that nobody vouches for: numbers are numbers, and nothing is said twice."""

from __future__ import annotations

import collections
import json
from typing import NoReturn

from railwright_topology.wiring import WiringError

LENGTH_MAX = 8 * 1024 * 1024


def read(source: str, text: str) -> object:
    """The whole value. JSON keeps no lines; what is wrong with a value is told with its path."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) < len(pairs):
            ((twice, _),) = collections.Counter(name for name, _ in pairs).most_common(1)
            raise WiringError(source, 1, f"{twice[:80]!r} is said twice in one object")
        return found

    def no_number(said: str) -> NoReturn:
        raise WiringError(source, 1, f"{said} is no number")

    if len(text) > LENGTH_MAX:
        raise WiringError(source, 1, f"{len(text)} characters: {LENGTH_MAX} are read at most")
    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=no_number)
    except WiringError:
        raise
    except json.JSONDecodeError as error:
        raise WiringError(source, error.lineno, f"no whole JSON document: {error.msg}") from error
    except RecursionError as error:
        raise WiringError(source, 1, "values lie too deep in each other") from error
    except ValueError as error:
        raise WiringError(source, 1, "a number has too many digits") from error
