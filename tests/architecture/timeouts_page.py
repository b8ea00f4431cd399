"""``docs/reference/timeouts.md``, made from the code: ``make generate`` writes it.

The fields of jobs and Fabrics are those of the schemas. Everything else is a constant: its value is
imported, and ``timeouts.toml`` has the sentences.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from architecture import constants, tree
from architecture.api_schema import Field, anchor, fields_of
from architecture.markdown import seconds, table
from railwright_api import fabric, training_job

PAGE = tree.ROOT / "docs/reference/timeouts.md"
NOT_READ = "railwright_scheduler.cost"
"""Its times are those of the cost model: latencies of hardware."""

HEAD = """# Time-outs and periods

Every time-out, interval and pause of Railwright, with what happens when it is over. Those of the \
first table are fields, which you can set. All others are constants of a version; a row names the \
field that replaces it, if there is one. A pause such as "5 s to 5 min" grows from the first \
value to the second, by the number of failures in a row unless its row says otherwise.
"""

UNIT = re.compile("Seconds|Hours$")
_VALUE = re.compile(r"\{([\w.]+)\}")


def rendered() -> str:
    """The text of the page."""
    written = _written()
    parts = [HEAD, "\n## Fields\n", table(("field", "default", "meaning"), _fields())]
    for section in written["section"]:
        rows = [_row(*row) for row in section["rows"]]
        parts += [f"\n## {section['title']}\n"]
        parts += [table(("time", "what it limits", "when it is over", "constant"), rows)]
    return "".join(parts)


def shown() -> set[str]:
    """The constants on the page, as ``module.NAME``."""
    sections = _written()["section"]
    return {place for section in sections for row in section["rows"] for place in _places(row[0])}


def left_out() -> set[str]:
    """The constants that are no time-outs."""
    return {place for places in _written()["left_out"].values() for place in places}


def _written() -> dict[str, Any]:
    path = tree.ROOT / "tests/architecture/timeouts.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _fields() -> Iterator[tuple[str, str, str]]:
    for definition in (training_job.DEFINITION, fabric.DEFINITION):
        for path, field in fields_of(definition):
            if UNIT.search(field.name) and field.type == "integer" and path.startswith("spec"):
                around = anchor(path.rpartition(".")[0])
                link = f"[`{path}`]({definition.kind.lower()}.md#{around})"
                yield f"{link} of {definition.kind}", _default(field), field.description


def _default(field: Field) -> str:
    if field.default is None:
        return ""
    return f"{field.default} h" if field.name.endswith("Hours") else seconds(field.default)


def _row(names: str, limits: str, then: str) -> tuple[str, str, str, str]:
    places = _places(names)
    times = [each for place in places for each in _times(constants.value(place))]
    time = " to ".join(map(seconds, times))
    return time, _filled(limits), _filled(then), "<br>".join(f"`{place}`" for place in places)


def _times(value: Any) -> tuple[float, ...]:
    """The times of a constant: a back-off has two."""
    return value if isinstance(value, tuple) else (value,)


def _places(names: str) -> list[str]:
    module, _, rest = names.partition(": ")
    return [f"{module}.{name}" for name in rest.split(", ")]


def _filled(text: str) -> str:
    return _VALUE.sub(lambda found: f"{constants.value(found[1]):g}", text)
