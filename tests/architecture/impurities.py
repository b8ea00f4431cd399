"""What makes a function's answer depend on more than its arguments, found in syntax trees.

Import contracts see modules, not calls, and nothing of hash order, floats or hidden state. These
checks see no types: a set is known by its display, its constructor, its annotation, or the
operators and methods that give one. A set that arrives without an annotation is missed; the
property test that compares bytes under two hash seeds is there for those.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_CALLS_BANNED = frozenset(
    {"open", "print", "input", "eval", "exec", "compile", "__import__", "globals", "breakpoint"}
    # These two differ between processes.
    | {"hash", "id"}
)
_NUMPY_BANNED = frozenset({"random", "load", "save", "savez", "fromfile", "memmap"})
_MUTABLE_CALLS = frozenset(
    {"list", "dict", "set", "bytearray", "defaultdict", "deque", "Counter", "OrderedDict"}
    | {"array", "zeros", "ones", "empty", "full", "arange"}
)

_SUMMED_BY_THREADS = frozenset({"dot", "vdot", "inner", "matmul", "tensordot", "einsum", "linalg"})
"""BLAS shares these out among threads: how sums are rounded depends on how many a machine has, and
a decision's CPU time on what else runs there."""

Breach = tuple[int, str]


def banned_calls(module: ast.Module) -> Iterator[Breach]:
    """Calls that reach outside, run text, or differ between two processes."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in _CALLS_BANNED:
                yield node.lineno, f"calls {node.func.id}()"
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in ("np", "numpy") and node.attr in _NUMPY_BANNED:
                yield node.lineno, f"uses {node.value.id}.{node.attr}"
            elif node.value.id in ("np", "numpy") and node.attr in _SUMMED_BY_THREADS:
                yield node.lineno, f"sums with {node.value.id}.{node.attr} (write out the sum)"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            yield node.lineno, "sums with @ (write out the sum)"
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("numpy"):
            if node.module == "numpy.random" or any(a.name in _NUMPY_BANNED for a in node.names):
                yield node.lineno, f"imports from {node.module} what is not pure"
        elif isinstance(node, ast.Global):
            yield node.lineno, f"rebinds the global {', '.join(node.names)}"


def module_state(module: ast.Module) -> Iterator[Breach]:
    """Mutable values that outlive a call: at module level or shared by all of a class.

    A table that is annotated as a mapping of constants and named in capitals is no state.
    """
    bodies: list[list[ast.stmt]] = [module.body]
    bodies += [node.body for node in ast.walk(module) if isinstance(node, ast.ClassDef)]
    for statement in (statement for body in bodies for statement in body):
        if isinstance(statement, ast.AnnAssign | ast.Assign) and statement.value is not None:
            targets = (
                [statement.target] if isinstance(statement, ast.AnnAssign) else statement.targets
            )
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            if _is_mutable(statement.value) and not all(_is_constant_name(name) for name in names):
                yield statement.lineno, f"{', '.join(names)} can be changed by any call"


def floats_for_amounts(module: ast.Module) -> Iterator[Breach]:
    """Floats where amounts are counted. Only a time may be one: the value of a name in ``_s``."""
    times = {
        id(part)
        for statement in ast.walk(module)
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
        if all(name.lower().endswith("_s") for name in _target_names(statement))
        for part in ast.walk(statement.value)
    }
    for node in ast.walk(module):
        if id(node) in times or not isinstance(node, ast.expr):
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, float):
            yield node.lineno, f"the float {node.value}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "float":
                yield node.lineno, "makes a float"
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            yield node.lineno, "divides into a float (// stays exact)"


def _target_names(statement: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return [target.id if isinstance(target, ast.Name) else "" for target in targets]


def _is_mutable(value: ast.expr) -> bool:
    if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp):
        return True
    if not isinstance(value, ast.Call):
        return False
    name = value.func.attr if isinstance(value.func, ast.Attribute) else ""
    name = value.func.id if isinstance(value.func, ast.Name) else name
    return name in _MUTABLE_CALLS


def _is_constant_name(name: str) -> bool:
    # Nothing assigns to, or calls a method on, a name in capitals: see mutated_constants.
    return name == "__all__" or name.isupper()


_MUTATORS = frozenset(
    {"append", "extend", "insert", "remove", "clear", "sort", "reverse", "add", "discard"}
    | {"update", "setdefault", "pop", "popitem"}
)


def mutated_constants(module: ast.Module) -> Iterator[Breach]:
    """Writes into tables named in capitals, after the statement that made them."""
    for node in ast.walk(module):
        if not isinstance(node, ast.Attribute | ast.Subscript):
            continue
        if isinstance(node, ast.Attribute):
            writes = node.attr in _MUTATORS
        else:
            writes = isinstance(node.ctx, ast.Store | ast.Del)
        if writes and isinstance(node.value, ast.Name) and node.value.id.isupper():
            yield node.lineno, f"changes {node.value.id}"
