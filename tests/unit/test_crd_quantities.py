"""Kubernetes quantities in exact integers: what is read, what is rounded up, what is refused."""

from __future__ import annotations

import pytest

from railwright_api import quantities
from railwright_api.quantities import QuantityError


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("8", 8000),
        ("1500m", 1500),
        ("1.5", 1500),
        (".5", 500),
        ("2.", 2000),
        ("0", 0),
        ("1e3", 1_000_000),
        ("100u", 1),
        ("1n", 1),
        ("0.0001", 1),
        ("+4", 4000),
        ("1E2", 100_000),
        ("-0", 0),
        ("-.0e1", 0),
        ("1e0001", 10_000),
        ("1e-1000", 1),
        ("0e99999", 0),
    ],
)
def test_cpu_is_read_in_millicores_rounded_up(text: str, millis: int) -> None:
    assert quantities.cpu_millis(text) == millis


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1Gi", 1 << 30),
        ("1G", 10**9),
        ("1.5Ki", 1536),
        ("0.1", 1),
        ("100m", 1),
        ("7E", 7 * 10**18),
        ("7Ei", 7 << 60),
        ("128974848", 128974848),
        ("129e6", 129_000_000),
        ("0.3Gi", 322122548),
    ],
)
def test_bytes_are_read_exactly_and_a_part_of_one_rounds_up(text: str, expected: int) -> None:
    assert quantities.bytes_of(text) == expected


@pytest.mark.parametrize(
    ("text", "count"), [("8", 8), ("0", 0), ("8.0", 8), ("1k", 1000), ("8000m", 8)]
)
def test_devices_are_whole(text: str, count: int) -> None:
    assert quantities.pieces(text) == count


def test_fraction_of_a_device_is_refused_with_nearest_integers() -> None:
    """The message has both nearest whole numbers."""
    with pytest.raises(QuantityError, match=r"'8\.5' is not a whole number.*nearest are 8 and 9"):
        quantities.pieces("8.5")


@pytest.mark.parametrize(
    "text",
    [
        "",
        " 8",
        "8 ",
        "0x8",
        "-1",
        "-0.1",
        "--0",
        "nan",
        "inf",
        "1_000",
        "٨",
        "8k8",
        "1.2.3",
        "Gi",
        ".",
        "1e",
        "8\n",
        "1ki",
        "8GB",
        "1e1000",
        "9" * 65,
    ],
)
def test_invalid_quantity_is_refused_with_its_text(text: str) -> None:
    for read in (quantities.cpu_millis, quantities.bytes_of, quantities.pieces):
        with pytest.raises(QuantityError) as caught:
            read(text)
        assert repr(text[:64]) in str(caught.value)


@pytest.mark.parametrize("text", ["1e19", "9223372036854775808", "8Ei"])
def test_quantity_beyond_63_bits_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="too large: at most 9223372036854775807"):
        quantities.bytes_of(text)


@pytest.mark.parametrize(
    ("resource", "text", "expected"),
    [
        ("cpu", "2", 2000),
        ("memory", "2Ki", 2048),
        ("ephemeral-storage", "1k", 1000),
        ("hugepages-2Mi", "4Mi", 4 << 20),
        ("nvidia.com/gpu", "8", 8),
        ("pods", "110", 110),
    ],
)
def test_each_resource_has_its_unit(resource: str, text: str, expected: int) -> None:
    assert quantities.amount(resource, text) == expected
