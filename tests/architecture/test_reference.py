"""What the pages name exists in the code, and what a user can see is on a page: metrics, reasons,
environment variables, labels, fields, subcommands and their options."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from typer.main import get_command

from architecture import metrics_page, pages, tree
from architecture.tree import Finding
from railwright_agent.__main__ import main as agent
from railwright_cli.__main__ import app
from railwright_testbed import images

METRIC = re.compile(r"railwright_[a-z_]+")
VARIABLE = re.compile(r"RAILWRIGHT_[A-Z_]*[A-Z]")
LABEL = re.compile(r"railwright\.dev/[a-z]+(?:-[a-z]+)*\b(?!:)")
FIELD = re.compile(r"\.?(?:status|spec)(?:\.[a-zA-Z]+(?:\[\])?)+")
REASON = re.compile(r"(?:[A-Z][a-z]+)+")
VERSION = re.compile(r"railwright\.dev/v\d")
REASON_FILES = ("status.py", "job_events.py", "reporter.py")
POD_FIELDS = {"spec.nodeName"}
NO_REASONS = {"True", "False", "Not"}
OPERATOR = tree.ROOT / "operator/railwright_operator"
SETTINGS = (
    OPERATOR / "settings.py",
    tree.ROOT / "operator/railwright_controllers/settings.py",
    tree.ROOT / "operator/railwright_process/environment.py",
)


def test_every_metric_on_a_page_exists() -> None:
    defined = {each.name for each in (*metrics_page.operator(), *metrics_page.controllers())}
    named = {word for page in pages.pages() for word in pages.code_words(page)}
    packages = {path.rpartition("/")[2] for path in tree.PACKAGES}
    packages |= {path.name for path in (tree.ROOT / "testbed").glob("railwright_*")}
    series = {word.removesuffix("_bucket") for word in named if METRIC.fullmatch(word)}
    stale = series - defined - packages
    assert not stale, f"no such metric: {stale}"


def test_every_reason_of_a_status_or_an_event_is_documented() -> None:
    found: set[str] = set()
    for name in REASON_FILES:
        found |= {text for text in _strings(OPERATOR / "report" / name) if REASON.fullmatch(text)}
    assert len(found) > 15
    named = {word for page in pages.explanations() for word in pages.code_words(page)}
    missing = sorted(found - named - NO_REASONS)
    assert not missing, f"not in docs/glossary.md: {missing}"


def test_every_setting_is_documented_and_every_variable_exists() -> None:
    defined = {
        text
        for path in tree.python_files(*tree.PRODUCT)
        for text in _strings(path)
        if VARIABLE.fullmatch(text)
    }
    named = {found for path in _written() for found in VARIABLE.findall(tree.text_of(path))}
    assert not named - defined, f"no such environment variable: {named - defined}"
    settings = {text for path in SETTINGS for text in _strings(path) if VARIABLE.fullmatch(text)}
    assert len(settings) > 6
    assert not settings - named, f"not in docs/operating.md: {settings - named}"


def test_every_label_that_is_named_exists() -> None:
    files = tree.python_files(*tree.PRODUCT, "testbed/railwright_demo")
    code = "\n".join(map(tree.text_of, files))
    defined = {
        f"railwright.dev/{name}" for name in re.findall(r"\{(?:names\.)?GROUP\}/([a-z-]+)", code)
    }
    applied = [*(tree.ROOT / "deploy").rglob("*.yaml"), tree.ROOT / "examples/images.yaml"]
    policies = "\n".join(map(tree.text_of, applied))
    defined |= set(LABEL.findall(code)) | set(LABEL.findall(policies))
    findings = [
        Finding(tree.name_of(page), 1, f"there is no {label}")
        for page in pages.pages()
        for label in sorted(set(LABEL.findall(tree.text_of(page))))
        if label not in defined and not VERSION.match(label)
    ]
    assert not findings, tree.report(findings, "labels are those of the code and of deploy/")


def test_every_field_that_is_named_exists() -> None:
    schemas = [*_schemas().values()]
    named = [
        (page, found[0].lstrip("."))
        for page in pages.pages()
        for word in sorted(pages.code_words(page))
        if (found := FIELD.fullmatch(word))
    ]
    assert len(named) > 10
    findings = [
        Finding(tree.name_of(page), 1, f"no kind has {field}")
        for page, field in named
        if field not in POD_FIELDS
        and not any(_has(schema, field.replace("[]", "").split(".")) for schema in schemas)
    ]
    assert not findings, tree.report(findings, "fields are spelled as in crds/")


def test_every_field_of_an_example_on_a_page_exists() -> None:
    schemas = _schemas()
    examples = [
        (page, value)
        for page in pages.pages()
        for text in pages.yaml_blocks(page)
        for value in yaml.safe_load_all(text)
        if value.get("kind", "TrainingJob") in schemas and "spec" in value
    ]
    assert len(examples) > 5
    findings = [
        Finding(tree.name_of(page), 1, f"no field {unknown}")
        for page, value in examples
        for unknown in _unknown(value, schemas[value.get("kind", "TrainingJob")], "")
    ]
    assert not findings, tree.report(findings, "examples have the fields of crds/")


def test_every_command_on_a_page_is_parsed() -> None:
    """An argument may be missing where a text names a command."""
    group: Any = get_command(app)
    commands = [
        (page, shlex.split(re.split(r" [|>]|#", line)[0].removesuffix("\\")))
        for page in pages.pages()
        for line in (each.removeprefix("kubectl ") for each in pages.commands(page))
        if line.startswith("railwright ")
    ]
    assert len(commands) > 50
    for page, (_, name, *words) in commands:
        if name.startswith("-"):
            assert name in group.get_help(typer.Context(group)), f"{tree.name_of(page)}: no {name}"
            continue
        command = group.get_command(typer.Context(group), name)
        try:
            command.make_context(name, words)
        except typer.BadParameter as error:
            if not str(error).startswith("Missing parameter"):
                raise


def test_every_command_of_the_agent_has_its_options(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "python -m railwright_agent"
    commands = [
        (page, line.removeprefix(program).split("#")[0].split())
        for page in pages.pages()
        for line in pages.commands(page)
        if line.startswith(f"{program} ")
    ]
    assert len(commands) > 3
    for page, (name, *words) in commands:
        monkeypatch.setattr("sys.argv", [program, name, "--help"])
        with pytest.raises(SystemExit) as ended:
            agent()
        help_text = capsys.readouterr().out
        assert ended.value.code == 0, f"{tree.name_of(page)}: {program} has no {name}"
        for option in (word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)):
            assert option in help_text, f"{tree.name_of(page)}: {program} {name} has no {option}"


def test_every_known_device_is_in_docs() -> None:
    file = tree.ROOT / "operator/railwright_conversion/machines.py"
    products = {text for text in _strings(file) if text.startswith(("NVIDIA-", "AMD-"))}
    assert len(products) > 4
    missing = products - pages.code_words(tree.ROOT / "docs/mapping.md")
    assert not missing, f"not in docs/mapping.md: {missing}"


def test_image_of_the_testbed_is_the_one_on_the_page() -> None:
    """Its nodes pull no images: a reader who applies an example there needs this one."""
    assert images.POD_IMAGE in tree.text_of(tree.ROOT / "README.md")


def _written() -> list[Path]:
    """Everything that an administrator or a user reads or applies."""
    folders = ("deploy", "examples")
    files = [path for name in folders for path in (tree.ROOT / name).rglob("*") if path.is_file()]
    return [*pages.pages(), *files]


def _strings(path: Path) -> set[str]:
    return {
        node.value
        for node in ast.walk(tree.parse(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def _schemas() -> dict[str, Any]:
    """The schema of each kind, by its name."""
    found = [
        yaml.safe_load(file.read_text(encoding="utf-8"))["spec"]
        for file in sorted((tree.ROOT / "crds").glob("*.yaml"))
    ]
    return {
        spec["names"]["kind"]: spec["versions"][0]["schema"]["openAPIV3Schema"] for spec in found
    }


def _has(schema: Any, path: list[str]) -> bool:
    """Whether a schema has the field at this path; what it leaves open may be any."""
    if not path or "properties" not in schema:
        return "items" not in schema or _has(schema["items"], path)
    below = schema["properties"].get(path[0])
    return below is not None and _has(below, path[1:])


def _unknown(value: Any, schema: Any, path: str) -> Iterator[str]:
    """The fields of a value that its schema does not have."""
    if isinstance(value, list):
        for item in value:
            yield from _unknown(item, schema.get("items", {}), path)
    if not isinstance(value, dict) or "properties" not in schema:
        return
    is_open = schema.get("x-kubernetes-preserve-unknown-fields", False)
    for name, below in value.items():
        defined = schema["properties"].get(name)
        if defined is not None:
            yield from _unknown(below, defined, f"{path}.{name}")
        elif name != "…" and path != ".metadata" and not is_open:
            yield f"{path}.{name}"
