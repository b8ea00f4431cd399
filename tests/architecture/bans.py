"""Constructions that no file here may hold, found in syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator

Breach = tuple[int, str]

_MODULES_UNSAFE = frozenset({"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle"})
_NAMES_UNSAFE = frozenset({"eval", "exec"})
_ATTRIBUTES_UNSAFE = frozenset({("os", "system"), ("os", "popen"), ("yaml", "load")})
_BROAD = frozenset({"Exception", "BaseException"})


def unsafe_calls(module: ast.Module) -> Iterator[Breach]:
    """Loaders that run what they load, and shells."""
    restricted = _restricts_pickle(module)
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "pickle" and restricted:
                    continue
                if alias.name.partition(".")[0] in _MODULES_UNSAFE:
                    yield node.lineno, f"imports {alias.name}"
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").partition(".")[0] in _MODULES_UNSAFE:
                yield node.lineno, f"imports from {node.module}"
        elif isinstance(node, ast.Call):
            yield from _unsafe_call(node)


def _restricts_pickle(module: ast.Module) -> bool:
    """Whether a module uses of ``pickle`` only the base of a class with a ``find_class``."""
    used = [
        node
        for node in ast.walk(module)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pickle"
    ]
    bases = {
        id(base)
        for each in ast.walk(module)
        if isinstance(each, ast.ClassDef)
        and any(
            isinstance(part, ast.FunctionDef) and part.name == "find_class" for part in each.body
        )
        for base in each.bases
        if ast.unparse(base) == "pickle.Unpickler"
    }
    return bool(used) and all(id(node) in bases for node in used)


def _unsafe_call(call: ast.Call) -> Iterator[Breach]:
    keywords = {word.arg: word.value for word in call.keywords}
    if isinstance(call.func, ast.Name) and call.func.id in _NAMES_UNSAFE:
        yield call.lineno, f"calls {call.func.id}()"
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name):
        called = (call.func.value.id, call.func.attr)
        if called in _ATTRIBUTES_UNSAFE:
            yield call.lineno, f"calls {'.'.join(called)}()"
        if called == ("torch", "load") and not _is_true(keywords.get("weights_only")):
            yield call.lineno, "calls torch.load() without weights_only=True"
    if "shell" in keywords and _is_true(keywords["shell"]):
        yield call.lineno, "starts a shell"


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def broad_handlers(module: ast.Module) -> Iterator[Breach]:
    """Handlers that catch everything and neither raise it again, log it with its trace, nor keep it
    as a ``Fault``.

    The second is for what must outlive any error: a thread or a watch that starts over. The third
    is for the core, which logs nothing: the operator logs the faults of a plan.
    """
    for node in ast.walk(module):
        if isinstance(node, ast.ExceptHandler):
            kept = any(
                _raises_again(part) or _logs_trace(part) or _keeps_fault(part, node.name)
                for part in ast.walk(node)
            )
            if node.type is None or (_is_broad(node.type) and not kept):
                yield node.lineno, "catches everything"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("suppress"):
            yield from ((a.lineno, "swallows everything") for a in node.args if _is_broad(a))


def _raises_again(node: ast.AST) -> bool:
    return isinstance(node, ast.Raise) and node.exc is None


def _logs_trace(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "logger.exception"


def _keeps_fault(node: ast.AST, exception: str | None) -> bool:
    if not (isinstance(node, ast.Call) and ast.unparse(node.func) == "Fault"):
        return False
    return any(isinstance(part, ast.Name) and part.id == exception for part in node.args)


def _is_broad(node: ast.expr) -> bool:
    if isinstance(node, ast.Tuple):
        return any(_is_broad(part) for part in node.elts)
    return isinstance(node, ast.Name) and node.id in _BROAD


def hopeful_sleeps(module: ast.Module) -> Iterator[Breach]:
    """Sleeps outside a loop, or in a function that knows no deadline. ``sleep(0)`` only yields."""
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.unparse(function)
        bounded = any(word in text for word in ("deadline", "timeout", "monotonic", "_until"))
        loops = [n for n in ast.walk(function) if isinstance(n, ast.While | ast.For | ast.AsyncFor)]
        looped = {id(part) for loop in loops for part in ast.walk(loop)}
        for node in ast.walk(function):
            hopes = not (bounded and id(node) in looped)
            if isinstance(node, ast.Call) and _is_sleep(node) and hopes:
                yield node.lineno, ast.unparse(node)


def _is_sleep(call: ast.Call) -> bool:
    if ast.unparse(call.func) not in ("sleep", "time.sleep", "asyncio.sleep"):
        return False
    return not (call.args and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0)
