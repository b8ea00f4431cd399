"""Results that are cached between scheduling cycles, up to a number of bytes.

Each cycle needs the same results for waiting and running jobs. A function that is ``remembered``
computes them once for each key and budget. A cached result changes no outcome, as its work is spent
each time. ``within`` is for callers with more results than one cycle can compute: there the cache
does change outcomes.
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


class Remembered(Generic[P, R]):
    """A function whose results are cached by the ``key`` of its arguments; the least recently used
    ones leave first."""

    def __init__(
        self,
        bytes_max: int,
        key: Callable[P, Key],
        function: Callable[Concatenate[WorkBudget, P], R],
    ) -> None:
        self._key, self._function = key, function
        self._bytes_left = bytes_max
        self._kept: OrderedDict[Hashable, _Result[R]] = OrderedDict()

    def __call__(self, work: WorkBudget, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """The function's result, which takes no more than what is left of ``work``."""
        return self.within(WorkBudget(work.left), work, *args, **kwargs)

    def within(self, new: WorkBudget, work: WorkBudget, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """The same; what is not kept yet is spent from ``new`` as well.

        Raises OverBudgetError, and computes and keeps nothing, where that could be more than is
        left of ``new``.
        """
        its = self._key(*args, **kwargs)
        key = (its.value, work.left)
        result = self._kept.pop(key, None)
        if result is None:
            if work.left > new.left:
                raise OverBudgetError
            result = self._computed(new, its.size, WorkBudget(work.left), *args, **kwargs)
            self._bytes_left -= its.size
        self._kept[key] = result
        while self._bytes_left < 0:
            _, oldest = self._kept.popitem(last=False)
            self._bytes_left += oldest.size
        work.spend(result.work)
        if result.is_over:
            raise OverBudgetError
        return cast(R, result.value)

    def _computed(
        self, new: WorkBudget, size: int, work: WorkBudget, *args: P.args, **kwargs: P.kwargs
    ) -> _Result[R]:
        try:
            value = self._function(work, *args, **kwargs)
        except OverBudgetError:
            return _Result(work.spent, size, is_over=True)
        finally:
            new.spend(work.spent)
        return _Result(work.spent, size, value)


def remembered(
    bytes_max: int, key: Callable[P, Key]
) -> Callable[[Callable[Concatenate[WorkBudget, P], R]], Remembered[P, R]]:
    """Keep a function's results by the ``key`` of its arguments."""
    return lambda function: Remembered(bytes_max, key, function)
