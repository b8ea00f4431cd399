"""Renewal of a server's certificate after the wall clock was set, verified by OpenSSL's clock."""

from __future__ import annotations

import base64
import ssl
import time
from random import Random
from typing import Any, cast

import pytest

from railwright_kube.client import Api
from railwright_process import authority, tls
from railwright_process.tls import CLOCK_STEP_S, Certificates

HOST = "railwright-operator.railwright-system"
DAY_S = 86_400.0


class Secrets:
    """One Secret, with an authority that was made a month ago."""

    def __init__(self) -> None:
        made = authority.new(HOST, time.time() - 30 * DAY_S)
        values = {
            tls.CERTIFICATE: made.certificate,
            tls.KEY: made.key,
            tls.TRUSTED: made.trusted,
        }
        self._data = {name: base64.b64encode(value).decode() for name, value in values.items()}

    async def get(self, path: str) -> Any:
        return {"data": self._data}


class Clocks:
    """The clocks of a process: ``age_s`` moves both, ``step_s`` the wall clock alone."""

    def __init__(self, step_s: float) -> None:
        self.age_s, self.step_s = 0.0, step_s
        self._began_s = time.time()

    def wall_clock(self) -> float:
        return self._began_s + self.age_s + self.step_s

    def certificates(self) -> Certificates:
        return Certificates(
            cast(Api, Secrets()),
            f"https://{HOST}:8443",
            namespace="railwright-system",
            name="tls",
            may_write=lambda: False,
            clock=lambda: self.age_s,
            wall_clock=self.wall_clock,
            rng=lambda: Random(0),
        )


def is_valid(certificates: Certificates) -> bool:
    """Whether a client accepts the certificate now."""
    context = certificates.context()
    assert context is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tls, "NO_CHECK_TIME", ssl.VerifyFlags(0))
        try:
            tls._verify(context, certificates.authorities(), HOST)
        except ssl.SSLCertVerificationError:
            return False
    return True


@pytest.mark.parametrize("days", [-10.0, 3.0])
async def test_clock_that_was_set_renews_certificate(days: float) -> None:
    """The process began with a wrong clock, which is set a minute later."""
    clocks = Clocks(days * DAY_S)
    certificates = clocks.certificates()
    await certificates.refresh()
    assert not is_valid(certificates)
    clocks.age_s, clocks.step_s = 60.0, 0.0
    await certificates.refresh()
    assert certificates.problem == ""
    assert is_valid(certificates)


async def test_clock_that_drifts_renews_no_certificate() -> None:
    clocks = Clocks(0.0)
    certificates = clocks.certificates()
    await certificates.refresh()
    first = certificates.context()
    for step_s in (CLOCK_STEP_S - 1, 1 - CLOCK_STEP_S):
        clocks.age_s, clocks.step_s = clocks.age_s + 3600.0, step_s
        await certificates.refresh()
        assert certificates.context() is first
