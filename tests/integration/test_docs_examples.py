"""The API server accepts every example of the pages."""

from __future__ import annotations

import json

import pytest

from fixtures import doc_examples
from fixtures.doc_examples import Example
from railwright_testbed import ControlPlane
from railwright_topology.sources import formats
from railwright_topology.sources.formats import File


@pytest.mark.parametrize("example", doc_examples.examples(), ids=lambda it: it.page)
def test_example_is_accepted(control_plane: ControlPlane, namespace: str, example: Example) -> None:
    """What is no object is a topology file."""
    for found in example.objects:
        text = json.dumps(found)
        place = ("-n", namespace) if found["kind"] == "TrainingJob" else ()
        strict = ("create", "--dry-run=server", "--validate=strict", "-f", "-")
        control_plane.kubectl(*place, *strict, stdin=text)
    if not example.objects:
        assert [*formats.read(File("", "plan.yaml", example.text))]
