"""Report the size and the language of the code as numbers: ``make code-report``.

The product is operator, scheduler, topology and worker.

    code_lines             lines of code: no blank lines, comments and docstrings
    modules                files with code
    module_lines_p90       lines of the module at the 90th percentile, all lines counted
    functions_over_15      functions with a cyclomatic complexity above 15 (radon)
    duplicate_class_names  names of public classes that are defined more than once; those of the API
                           and of the worker's messages may share a name with a value
    retired_words          uses of the identifiers and messages of ``retired.toml``, tests included
    longest_test_name      characters
    one_job_modules        modules on ``docs/one-job.md``, without those of ``one_job.NOT_COUNTED``;
                           ``tests/e2e/test_one_job.py`` traces a job and shows that these are all
    import_cycles          groups of modules that import each other

``test_code_report.py`` holds each number to ``code_report.toml``, so that none rises unnoticed.
"""

from __future__ import annotations

import ast
import collections
import functools
import io
import itertools
import json
import math
import tokenize
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import grimp
import networkx
from radon.visitors import ComplexityVisitor, Function

from architecture import one_job, tree
from architecture.tree import Finding

COMPLEXITY_MAX = 15
SHARED_NAMES = ("operator/railwright_api/", "worker/railwright/")
"""An API kind or a message may have the name of the value that it becomes."""

RETIRED = tree.ROOT / "tests/architecture/retired.toml"

_NO_CODE = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    | {tokenize.ENCODING, tokenize.ENDMARKER}
)


def figures() -> dict[str, int]:
    """All numbers, in the order of the module's docstring."""
    sizes = sorted(tree.text_of(path).count("\n") for path in product_files())
    return {
        "code_lines": sum(code_lines(tree.text_of(path)) for path in product_files()),
        "modules": len(sizes),
        "module_lines_p90": sizes[math.ceil(0.9 * len(sizes)) - 1],
        "functions_over_15": len(complex_functions(product_files())),
        "duplicate_class_names": len(duplicate_classes(product_files())),
        "retired_words": len(list(retired_uses(tree.python_files(), Retired.read()))),
        "longest_test_name": max(map(len, test_names(tree.python_files("tests")))),
        "one_job_modules": len(one_job.counted(set(one_job.modules()))),
        "import_cycles": len(import_cycles()),
    }


@functools.cache
def product_files() -> tuple[Path, ...]:
    """The product's modules that hold code; a package's bare docstring is none."""
    return tuple(
        path for path in tree.python_files(*tree.PACKAGES) if code_lines(tree.text_of(path))
    )


@functools.cache
def code_lines(source: str) -> int:
    """Lines that hold code: a token that is no comment and no part of a docstring."""
    docstrings = _docstring_lines(ast.parse(source))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def _docstring_lines(module: ast.Module) -> set[int]:
    """Also of the strings that document an attribute: statements that are nothing but a string."""
    return {
        line
        for node in ast.walk(module)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def complex_functions(files: Iterable[Path]) -> list[Finding]:
    """Functions and methods above ``COMPLEXITY_MAX``."""
    found = []
    for path in files:
        visited = ComplexityVisitor.from_ast(tree.parse(path))
        methods = itertools.chain.from_iterable(each.methods for each in visited.classes)
        for function in itertools.chain(visited.functions, methods):
            found += _over(function, path)
    return sorted(found)


def _over(function: Function, path: Path) -> list[Finding]:
    if function.complexity <= COMPLEXITY_MAX:
        return []
    text = f"{function.fullname} has complexity {function.complexity}"
    return [Finding(tree.name_of(path), function.lineno, text)]


def duplicate_classes(files: Iterable[Path]) -> dict[str, list[Finding]]:
    """Public classes of one name, where one is neither an API kind nor a message."""
    places: dict[str, list[Finding]] = collections.defaultdict(list)
    for path in files:
        if tree.name_of(path).startswith(SHARED_NAMES):
            continue
        for node in ast.walk(tree.parse(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(Finding(tree.name_of(path), node.lineno, node.name))
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


@dataclass(frozen=True, slots=True)
class Retired:
    """What language no longer has: names of modules, exact identifiers, and parts of messages.
    ``methods`` are identifiers that libraries have as methods."""

    modules: frozenset[str]
    identifiers: frozenset[str]
    messages: tuple[str, ...]
    methods: frozenset[str] = frozenset()

    @classmethod
    def read(cls, text: str | None = None) -> Retired:
        """The list of the repository, or this one."""
        table = tomllib.loads(RETIRED.read_text(encoding="utf-8") if text is None else text)
        return cls(
            frozenset(table["modules"]),
            frozenset(table["identifiers"]),
            tuple(table["messages"]),
            frozenset(table["methods"]),
        )


def retired_uses(files: Iterable[Path], retired: Retired) -> Iterator[Finding]:
    """Each module, name, attribute, parameter and message that the list retires."""
    for path in files:
        name = tree.name_of(path)
        for part in {path.stem, path.parent.name} & retired.modules:
            yield Finding(name, 1, f"module {part}")
        for node in ast.walk(tree.parse(path)):
            exempt = retired.methods if isinstance(node, ast.Attribute) else frozenset()
            for word in _identifiers(node):
                if word.strip("_") in retired.identifiers - exempt:
                    yield Finding(name, getattr(node, "lineno", 1), word)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for message in retired.messages:
                    if message in node.value:
                        yield Finding(name, node.lineno, repr(message))


def _identifiers(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name):
            yield name
        case ast.keyword(arg=str(name)):
            yield name
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name


def test_names(files: Iterable[Path]) -> Iterator[str]:
    """The names of test functions."""
    for path in files:
        for node in ast.walk(tree.parse(path)):
            match node:
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                    if name.startswith("test_"):
                        yield name


def import_cycles() -> list[list[str]]:
    """Groups of product modules of which each imports, directly or not, all others."""
    graph = grimp.build_graph(*(Path(package).name for package in tree.PACKAGES))
    imports = networkx.DiGraph(
        (module, imported)
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
    )
    groups = networkx.strongly_connected_components(imports)
    return sorted(sorted(group) for group in groups if len(group) > 1)


if __name__ == "__main__":
    print(json.dumps(figures()))
