"""Quantities against arithmetic written differently: decimal digits shifted, never divided."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from railwright_api import quantities
from railwright_api.quantities import QuantityError

UNITS = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
}

numbers = st.tuples(
    st.integers(0, 1000), st.text("0123456789", max_size=6), st.sampled_from(sorted(UNITS))
)


@given(numbers)
def test_value_is_rounded_up_by_less_than_one_unit(
    number: tuple[int, str, str],
) -> None:
    """The parsed integer is at least the written amount and less than one unit above it."""
    whole, decimals, unit = number
    text = f"{whole}.{decimals}{unit}"
    exact = (whole + Fraction(int(decimals or 0), 10 ** len(decimals))) * UNITS[unit]
    assert 0 <= quantities.bytes_of(text) - exact < 1
    assert 0 <= quantities.cpu_millis(text) - exact * 1000 < 1


@given(numbers)
def test_the_python_client_of_kubernetes_reads_the_same(number: tuple[int, str, str]) -> None:
    whole, decimals, unit = number
    text = f"{whole}.{decimals}0{unit}"
    assert quantities.bytes_of(text) == math.ceil(parse_quantity(text))  # type: ignore[no-untyped-call]


@given(st.integers(0, quantities.QUANTITY_MAX))
def test_a_plain_integer_is_itself(number: int) -> None:
    assert quantities.pieces(str(number)) == number
    assert quantities.bytes_of(str(number)) == number


@given(st.integers(0, 10**9), st.integers(0, 9))
def test_an_exponent_is_zeros_appended(number: int, zeros: int) -> None:
    text = f"{number}e{zeros}"
    assert quantities.pieces(text) == int(str(number) + "0" * zeros)
    assert quantities.pieces(text) == quantities.pieces(text.replace("e", "E"))


@given(st.integers(1, 10**9))
def test_a_device_is_never_split(millis: int) -> None:
    whole, rest = divmod(millis, 1000)
    assert quantities.pieces(f"{whole * 1000}m") == whole
    if rest:
        with pytest.raises(QuantityError, match=f"the nearest are {whole} and {whole + 1}$"):
            quantities.pieces(f"{millis}m")


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused_never_worse(text: str) -> None:
    try:
        amount = quantities.bytes_of(text)
    except QuantityError:
        return
    assert 0 <= amount <= quantities.QUANTITY_MAX
