"""Iterations over sets, whose order differs between two runs, found in syntax trees.

An order is harmless where nothing can see it: inside ``sorted``, or an aggregate of which every
order gives the same. Everything else must sort first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

Breach = tuple[int, str]

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_SET_TYPES = frozenset({"set", "frozenset", "Set", "AbstractSet", "MutableSet", "FrozenSet"})
_SET_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference"})
_SET_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
_ORDER_KEEPING = frozenset(
    {"list", "tuple", "enumerate", "iter", "zip", "map", "filter", "join", "fromkeys"}
    | {"array", "fromiter", "asarray", "deque", "chain"}
)
_ORDER_BLIND = frozenset({"sorted", "set", "frozenset", "any", "all", "sum", "len", "min", "max"})


@dataclass(slots=True)
class Declared:
    """Names that are sets wherever they are met: attributes and functions annotated as such."""

    attributes: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)


def declared(modules: list[ast.Module]) -> Declared:
    """What the annotations of these modules say is a set, and never anything else."""
    names = Declared()
    other: set[str] = set()
    for module in modules:
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                for line in node.body:
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                        into = names.attributes if _says_set(line.annotation) else other
                        into.add(line.target.id)
            elif isinstance(node, ast.FunctionDef) and _says_set(node.returns):
                names.functions.add(node.name)
    names.attributes -= other
    return names


def iterations(module: ast.Module, declarations: Declared) -> Iterator[Breach]:
    """Every place where the order of a set can reach what comes out."""
    parents = {child: node for node in ast.walk(module) for child in ast.iter_child_nodes(node)}
    yield from sorted(set(_in_scope(module, frozenset(), declarations, parents)))


def _in_scope(
    scope: ast.AST,
    inherited: frozenset[str],
    declarations: Declared,
    parents: dict[ast.AST, ast.AST],
) -> Iterator[Breach]:
    nodes = list(_own_nodes(scope))
    local = (inherited - _bound_names(nodes)) | _set_names(nodes, declarations)
    for node in nodes:
        for iterated in _iterated(node, parents):
            if _is_set(iterated, local, declarations):
                yield iterated.lineno, f"the order of {ast.unparse(iterated)}"
        if isinstance(node, _FUNCTIONS) and node is not scope:
            yield from _in_scope(node, local, declarations, parents)


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The scope and what is in it; of an inner function only the function itself."""
    yield scope
    for child in ast.iter_child_nodes(scope):
        if isinstance(child, _FUNCTIONS):
            yield child
        else:
            yield from _own_nodes(child)


def _bound_names(nodes: list[ast.AST]) -> set[str]:
    names = {node.arg for node in nodes if isinstance(node, ast.arg)}
    stored = (n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return names | {node.id for node in stored}


def _iterated(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> Iterator[ast.expr]:
    if isinstance(node, ast.For):
        yield node.iter
    elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
        if not _is_order_blind(parents.get(node)):
            yield from (generator.iter for generator in node.generators)
    elif isinstance(node, ast.Starred | ast.YieldFrom):
        if not isinstance(parents.get(node), ast.Set) and not _is_order_blind(parents.get(node)):
            yield node.value
    elif isinstance(node, ast.Call):
        keeps = _called(node) in _ORDER_KEEPING and not _is_order_blind(parents.get(node))
        if keeps or _returns_the_first(node):
            yield from node.args
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "pop" and not node.args:
            yield node.func.value
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple | ast.List):
        yield node.value


def _is_order_blind(parent: ast.AST | None) -> bool:
    if not isinstance(parent, ast.Call) or _called(parent) not in _ORDER_BLIND:
        return False
    return not _returns_the_first(parent)


def _returns_the_first(call: ast.Call) -> bool:
    """Of several that a key calls equal, min and max return the one they meet first."""
    keyed = any(keyword.arg == "key" for keyword in call.keywords)
    return keyed and _called(call) in ("min", "max")


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Name):
        return call.func.id
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _set_names(nodes: list[ast.AST], declarations: Declared) -> frozenset[str]:
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.arg) and _says_set(node.annotation):
            names.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            if _says_set(node.annotation):
                names.add(node.target.id)
        elif isinstance(node, ast.Assign) and _is_set(node.value, frozenset(names), declarations):
            names.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return frozenset(names)


def _is_set(node: ast.expr, local: frozenset[str], declarations: Declared) -> bool:
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Name):
        return node.id in local
    if isinstance(node, ast.Attribute):
        return node.attr in declarations.attributes
    if isinstance(node, ast.BinOp) and isinstance(node.op, _SET_OPERATORS):
        sides = (node.left, node.right)
        return any(_is_set(side, local, declarations) or _is_view(side) for side in sides)
    if isinstance(node, ast.IfExp):
        return _is_set(node.body, local, declarations) or _is_set(node.orelse, local, declarations)
    if isinstance(node, ast.Call):
        called = _called(node)
        return called in ("set", "frozenset") or called in declarations.functions | _SET_METHODS
    return False


def _is_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _called(node) in ("keys", "items")


def _says_set(annotation: ast.expr | None) -> bool:
    """Whether an annotation names a set itself, not something that holds sets."""
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        annotation = ast.parse(annotation.value, mode="eval").body
    if isinstance(annotation, ast.BinOp):
        return _says_set(annotation.left) or _says_set(annotation.right)
    if isinstance(annotation, ast.Subscript):
        return _says_set(annotation.value)
    name = annotation.attr if isinstance(annotation, ast.Attribute) else ""
    name = annotation.id if isinstance(annotation, ast.Name) else name
    return name in _SET_TYPES
