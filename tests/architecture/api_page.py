"""The pages of the kinds in ``docs/reference``, made from their models: ``make generate`` writes
them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from architecture import api_schema, tree
from architecture.api_schema import Field
from architecture.markdown import table
from railwright_api import names, training_job
from railwright_api.kinds import DEFINITIONS
from railwright_api.schema import Definition, Json
from railwright_operator.report import status
from railwright_scheduler.attempt.causes import CauseCode
from railwright_scheduler.attempt.phases import Phase
from railwright_scheduler.attempt.record import JobRecord
from railwright_scheduler.model import reasons

FOLDER = tree.ROOT / "docs/reference"

HEAD = """# API reference

The kinds of the API group `{version}`. `kubectl explain` prints the same descriptions, for \
example `kubectl explain tj.spec.roles`.
"""

FIELDS = ("field", "type", "limits", "default", "description")

POD_TEMPLATE = """
An ordinary [pod template](https://kubernetes.io/docs/concepts/workloads/pods/#pod-templates): \
`kubectl explain pod.spec` describes its fields, and they work as in any pod. The API server \
refuses what Railwright sets itself or cannot do. Its answers, with `…` for what it has found:

"""

CONDITIONS = "../glossary.md#conditions"
WAITS, STARTS = "../glossary.md#why-a-job-waits", "../glossary.md#why-an-attempt-has-not-started"
ILL, ENDED = "../glossary.md#why-a-job-is-not-healthy", "../glossary.md#why-an-attempt-ended"
PHASES = "../glossary.md#phases-of-a-job"


def rendered() -> dict[Path, str]:
    """The text of each page."""
    pages = {_path(each): _page(each) for each in DEFINITIONS}
    return pages | {FOLDER / "api.md": _index()}


def _path(definition: Definition) -> Path:
    return FOLDER / f"{definition.kind.lower()}.md"


def _index() -> str:
    rows = [
        (
            f"[{each.kind}]({_path(each).name})",
            ", ".join(f"`{name}`" for name in (each.plural, *each.short_names)),
            each.scope,
            _escaped(api_schema.schema_of(each)["description"]),
        )
        for each in DEFINITIONS
    ]
    head = HEAD.format(version=names.API_VERSION)
    return head + table(("kind", "names", "scope", "what it is"), rows)


def _page(definition: Definition) -> str:
    schema = api_schema.schema_of(definition)
    return "".join(
        [
            f"# {definition.kind}\n\n{_escaped(schema['description'])}\n",
            *_facts(definition),
            *_rules(schema, "The object"),
            *_columns(definition),
            *_objects(definition, schema),
            *(_closed_sets() if definition is training_job.DEFINITION else ()),
        ]
    )


def _facts(definition: Definition) -> Iterator[str]:
    names_of_it = ", ".join(f"`{each}`" for each in (definition.plural, *definition.short_names))
    yield f"\n- API version: `{names.API_VERSION}`\n- Scope: {definition.scope}\n"
    yield f"- Names for kubectl: {names_of_it}\n"
    if definition.selectable:
        paths = ", ".join(f"`{path.lstrip('.')}`" for path in definition.selectable)
        yield f"- Fields for `--field-selector`, beside those of `metadata`: {paths}\n"


def _columns(definition: Definition) -> Iterator[str]:
    yield f"\n## Columns of `kubectl get {definition.plural}`\n"
    rows = [
        (each.name, f"`{each.path.lstrip('.')}`", "`-o wide` only" if each.wide else "")
        for each in definition.columns
    ]
    yield table(("column", "field", "shown"), rows)


def _objects(definition: Definition, schema: Json) -> Iterator[str]:
    """A section for each object with fields."""
    every = dict(api_schema.fields_of(definition))
    for field in every.values():
        if field.is_object:
            yield from _section(field)


def _section(field: Field) -> Iterator[str]:
    yield f"\n{'###' if '.' in field.inner_path else '##'} `{field.inner_path}`\n"
    yield f"\n{_escaped(field.description)}\n"
    if field.path == api_schema.POD_TEMPLATE:
        yield POD_TEMPLATE
        yield from (f"- `{each}`\n" for each in api_schema.messages_below(field.schema))
        return
    nested = api_schema.children(field.inner_path, field.inner)
    yield table(FIELDS, map(_row, nested))
    yield from _rules(field.inner, f"`{field.inner_path}`", *map(_of_values, nested))


def _row(field: Field) -> tuple[str, str, str, str, str]:
    kind = (
        f"[{field.type}](#{api_schema.anchor(field.inner_path)})" if field.is_object else field.type
    )
    default = "required" if field.required else _default(field.default)
    limits = "; ".join(api_schema.limits(field.schema))
    return f"`{field.name}`", kind, limits, default, _escaped(field.description)


def _default(value: Any) -> str:
    match value:
        case None:
            return ""
        case Mapping():
            return "its defaults"
        case bool():
            return f"`{str(value).lower()}`"
    return f"`{value}`"


def _of_values(field: Field) -> list[str]:
    """The rules of a field without fields of its own."""
    inner = [] if field.inner is field.schema else api_schema.messages(field.schema)
    return inner if field.is_object else [*inner, *api_schema.messages(field.inner)]


def _rules(schema: Json, what: str, *more: list[str]) -> Iterator[str]:
    found = [*api_schema.messages(schema), *(each for part in more for each in part)]
    if found:
        yield f"\n{what} is refused with one of these messages, with `…` for what is in it:\n\n"
        yield from (f"- `{each}`\n" for each in found)


def _closed_sets() -> Iterator[str]:
    """The words that programs find in a status. The glossary explains each."""
    found = status.render(status.StatusInput(JobRecord(), {}, 1, now="", failures_used=""))
    conditions = [each["type"] for each in found["conditions"]]
    yield "\n## Phases, reasons and conditions\n"
    yield "\nA later version may have more; programs should keep a word that they do not know.\n"
    rows = [
        ("`status.phase`", PHASES, Phase),
        ("type of `status.conditions[]`", CONDITIONS, conditions),
        ("`status.reason` of a job that waits", WAITS, (status.QUEUED, *reasons.CODES)),
        ("`status.reason` of a job that starts", STARTS, sorted(status.START_STEPS)),
        ("reason of the condition `Healthy`", ILL, status.UNHEALTHY),
        ("`status.lastTermination.cause`", ENDED, CauseCode),
    ]
    yield table(
        ("where", "values"),
        [(f"{where} ([meaning]({link}))", _listed(words)) for where, link, words in rows],
    )


def _listed(words: Any) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _escaped(text: str) -> str:
    """The text of a description, in which Markdown and HTML mean nothing."""
    return re.sub(r"([*_<\[])", r"\\\1", text)
