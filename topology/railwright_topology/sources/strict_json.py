"""JSON from a machine that nobody vouches for: numbers are numbers, and nothing counts twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeVar

from railwright_topology.sources.omissions import Omissions
from railwright_topology.wiring import WiringError

LENGTH_MAX = 8 * 1024 * 1024
TEXT_MAX = 1024
INTEGER_MAX = 1 << 53
"""Beyond it JSON's readers disagree on what a number is."""

T = TypeVar("T")


def read(source: str, text: str, omissions: Omissions) -> object:
    """The whole value. JSON keeps no lines; what is wrong with a value is told with its path. Of a
    name that stands twice in one object the first counts."""

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, object] = {}
        for name, value in pairs:
            if name in found:
                rule = f"{name[:80]!r} is said twice in one object: the first counts"
                omissions.note(0, rule)
            found.setdefault(name, value)
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


class Values:
    """Reads values that ``read`` returned, each with its path; raises WiringError with it."""

    def __init__(self, omissions: Omissions) -> None:
        self.omissions = omissions

    def entries(self, path: str, said: object) -> Mapping[str, object]:
        """Fields that this version does not have are skipped: a later agent may send them."""
        if not isinstance(said, dict):
            raise self.error(path, "an object stands here")
        return said

    def each(self, path: str, said: object, most: int, read: Callable[[str, object], T]) -> list[T]:
        if not isinstance(said, list) or len(said) > most:
            raise self.error(path, f"a list of up to {most} stands here")
        return [read(f"{path}[{at}]", each) for at, each in enumerate(said)]

    def some(self, path: str, said: object, most: int, read: Callable[[str, object], T]) -> list[T]:
        """Those of a list that break no rule."""
        found: list[T] = []
        values: list[object] = []
        with self.omissions.part():
            values = self.each(path, said, most, lambda _, value: value)
        for at, value in enumerate(values):
            with self.omissions.part():
                found.append(read(f"{path}[{at}]", value))
        return found

    def text(self, path: str, said: object, *, empty: bool = False) -> str:
        if not isinstance(said, str) or len(said) > TEXT_MAX or not said.isprintable():
            raise self.error(path, f"up to {TEXT_MAX} printable characters stand here")
        if not said and not empty:
            raise self.error(path, "a text stands here, and not an empty one")
        return said

    def whole(self, path: str, said: object, most: int = INTEGER_MAX) -> int:
        if not isinstance(said, int) or isinstance(said, bool) or not 0 <= said < most:
            raise self.error(path, f"a whole number below {most} stands here")
        return said

    def truth(self, path: str, said: object) -> bool | None:
        if said is not None and not isinstance(said, bool):
            raise self.error(path, "true, false or null stands here")
        return said

    def maybe(self, read: Callable[[str, object], T], path: str, said: object) -> T | None:
        return None if said is None else read(path, said)

    def one_of(self, known: Iterable[T], other: T | None = None) -> Callable[[str, object], T]:
        """Reads one of these: by its value where that is a word, else by its name. ``other`` is
        what a word of a later version is read as; without it, that is refused."""
        words: dict[str, T] = {}
        for each in known:
            value: Any = each
            words[value if isinstance(value, str) else value.name] = each

        def read(path: str, said: object) -> T:
            found = words.get(said, other) if isinstance(said, str) else None
            if found is None:
                raise self.error(path, f"one of these stands here: {', '.join(words)}")
            return found

        return read

    def error(self, path: str, rule: str) -> WiringError:
        return WiringError(self.omissions.source, 0, f"{path}: {rule}")
