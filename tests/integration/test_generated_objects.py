"""Whole objects from the CRDs' schemas, accepted by a real API server, harm no other job."""

from __future__ import annotations

from fixtures import generated_report
from railwright_testbed.api_client import ApiClient

ACCEPTED = 500
SEED = 14


def test_accepted_objects_raise_nothing_and_delay_no_other(admin: ApiClient) -> None:
    report = generated_report.run(admin, accepted=ACCEPTED, seed=SEED)
    assert report.generated > report.accepted >= ACCEPTED, "some are beyond their bounds"
    assert report.is_clean, "\n".join(report.examples)
