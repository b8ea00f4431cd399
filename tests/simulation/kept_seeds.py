"""Seeds that failed once without a mutant, which the tests try every time: an emphasis and the seed
of a run, or ``course`` and its number, one a line of ``kept_seeds.txt``.

``make soak`` adds what fails: commit the file. A seed is another run once the simulation changes,
so a fault of the product that one found has a test of its own, named in docs/track-record.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FILE = Path(__file__).with_suffix(".txt")
COURSE = "course"


def runs() -> tuple[tuple[str, int], ...]:
    """The emphasis and the seed of each run."""
    return tuple(each for each in _kept() if each[0] != COURSE)


def courses() -> tuple[int, ...]:
    """The courses of plans."""
    return tuple(number for name, number in _kept() if name == COURSE)


@contextmanager
def kept_if_it_fails(name: str, number: int) -> Iterator[None]:
    """What is tried in the block is kept if the block raises, whatever it is."""
    try:
        yield
    except Exception:
        if (name, number) not in _kept():
            with FILE.open("a") as file:
                file.write(f"{name} {number}\n")
        raise


def _kept() -> list[tuple[str, int]]:
    lines = (line.split() for line in FILE.read_text().splitlines())
    return [(name, int(number)) for name, number in lines]
