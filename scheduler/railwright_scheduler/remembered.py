"""Results that are kept between scheduling cycles, up to so many bytes.

What a cycle asks for jobs that wait or run is asked again in the next one. A function that is
``remembered`` computes it once for each key and budget. Whether it did so before changes no
outcome: the work of the first time is spent each time, in vain or not.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Concatenate, Generic, ParamSpec, TypeVar, cast

from railwright_scheduler.budget import OverBudgetError, WorkBudget

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Key:
    """What a result depends on, and about how many bytes both of them take."""

    value: Hashable
    size: int


@dataclass(frozen=True, slots=True)
class _Result(Generic[R]):
    """A function's value, and the work that it took; none if it ``is_over`` its budget."""

    work: int
    size: int
    value: R | None = None
    is_over: bool = False


class _Results(Generic[R]):
    """The least recently used ones leave first."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._kept: OrderedDict[Hashable, _Result[R]] = OrderedDict()

    def get(self, key: Hashable) -> _Result[R] | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    def keep(self, key: Hashable, result: _Result[R]) -> None:
        self._kept[key] = result
        self._bytes += result.size
        while self._bytes > self._bytes_max:
            _, oldest = self._kept.popitem(last=False)
            self._bytes -= oldest.size


def remembered(
    bytes_max: int, key: Callable[P, Key]
) -> Callable[[Callable[Concatenate[WorkBudget, P], R]], Callable[Concatenate[WorkBudget, P], R]]:
    """Keep a function's results by the ``key`` of its arguments."""

    def decorated(
        function: Callable[Concatenate[WorkBudget, P], R],
    ) -> Callable[Concatenate[WorkBudget, P], R]:
        results: _Results[R] = _Results(bytes_max)

        def found(work: WorkBudget, /, *args: P.args, **kwargs: P.kwargs) -> R:
            its = key(*args, **kwargs)
            asked = (its.value, work.left)
            result = results.get(asked)
            if result is None:
                result = _computed(function, its.size, WorkBudget(work.left), *args, **kwargs)
                results.keep(asked, result)
            work.spend(result.work)
            if result.is_over:
                raise OverBudgetError
            return cast(R, result.value)

        return found

    return decorated


def _computed(
    function: Callable[Concatenate[WorkBudget, P], R],
    size: int,
    work: WorkBudget,
    *args: P.args,
    **kwargs: P.kwargs,
) -> _Result[R]:
    try:
        value = function(work, *args, **kwargs)
    except OverBudgetError:
        return _Result(work.spent, size, is_over=True)
    return _Result(work.spent, size, value)
