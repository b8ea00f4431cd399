"""The certificates of a server, from a Secret of a real API server."""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa

from fixtures import authorities, shell
from railwright_kube import errors, paths
from railwright_process import authority, tls
from railwright_process.authority import Authority
from railwright_process.tls import Certificates
from railwright_testbed import ControlPlane

NAME = "operator-tls"
URL = "https://operator.system:8470"
DAY_S = 86_400.0


class Clock:
    """Monotonic seconds that a test moves, and with them the wall clock, which is two days behind
    OpenSSL's at first."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self._behind_s = 1000.0 + 2 * DAY_S

    def __call__(self) -> float:
        return self.now_s

    def wall_clock(self) -> float:
        return time.time() - self._behind_s + self.now_s


class Replicas:
    """Replicas of one server, by whether they lead."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self._kubeconfig = shell.connect(plane)
        self._namespace = namespace
        self._path = paths.secret(namespace, NAME)
        self.clock = Clock()

    @asynccontextmanager
    async def replica(self, *, leads: bool) -> AsyncIterator[Certificates]:
        async with shell.api(self._kubeconfig, may_write=lambda: leads) as api:
            yield Certificates(
                api,
                URL,
                namespace=self._namespace,
                name=NAME,
                may_write=lambda: leads,
                clock=self.clock,
                wall_clock=self.clock.wall_clock,
                rng=lambda: Random(0),
            )

    async def store(self, data: dict[str, Any] | None) -> None:
        """Replace what the Secret has, or create it."""
        secret = {"metadata": {"name": NAME}, "data": data or {}}
        async with shell.api(self._kubeconfig) as api:
            try:
                await api.create(self._path.rpartition("/")[0], secret)
            except errors.AlreadyExistsError:
                await api.replace(self._path, secret)

    async def delete(self) -> None:
        async with shell.api(self._kubeconfig) as api:
            await api.delete(self._path)

    async def stored(self) -> dict[str, bytes]:
        async with shell.api(self._kubeconfig) as api:
            found = (await api.get(self._path)).get("data") or {}
        return {name: base64.b64decode(value) for name, value in found.items()}


async def test_leader_fills_the_secret_and_standbys_read_it(
    control_plane: ControlPlane, namespace: str
) -> None:
    replicas = Replicas(control_plane, namespace)
    await replicas.store(None)
    async with replicas.replica(leads=False) as standby, replicas.replica(leads=True) as leader:
        await standby.refresh()
        assert standby.context() is None
        assert standby.problem == f"{paths.secret(namespace, NAME)} is empty; the leader fills it"
        await leader.refresh()
        await standby.refresh()
        assert leader.problem == standby.problem == ""
        assert leader.authorities() == standby.authorities() != ""
        stored = await replicas.stored()
        assert stored[tls.TRUSTED].decode() == leader.authorities()
        assert is_accepted(standby, by=leader)


async def test_clients_of_the_leader_trust_its_successor(
    control_plane: ControlPlane, namespace: str
) -> None:
    replicas = Replicas(control_plane, namespace)
    await replicas.store(None)
    async with replicas.replica(leads=True) as leader:
        await leader.refresh()
        async with replicas.replica(leads=True) as successor:
            await successor.refresh()
            assert is_accepted(successor, by=leader)


async def test_emptied_secret_gets_the_same_authority_again(
    control_plane: ControlPlane, namespace: str
) -> None:
    replicas = Replicas(control_plane, namespace)
    await replicas.store(None)
    async with replicas.replica(leads=True) as leader:
        await leader.refresh()
        before = await replicas.stored()
        await replicas.store(None)
        await leader.refresh()
        assert await replicas.stored() == before
        assert leader.problem == ""


async def test_certificate_is_renewed_each_day(control_plane: ControlPlane, namespace: str) -> None:
    replicas = Replicas(control_plane, namespace)
    await replicas.store(None)
    async with replicas.replica(leads=True) as leader:
        await leader.refresh()
        first, trusted = leader.context(), leader.authorities()
        replicas.clock.now_s += DAY_S - 1
        await leader.refresh()
        assert leader.context() is first
        replicas.clock.now_s += 1
        await leader.refresh()
        assert leader.context() is not first
        assert leader.authorities() == trusted


async def test_authority_of_the_site_is_used_and_followed(
    control_plane: ControlPlane, namespace: str
) -> None:
    replicas = Replicas(control_plane, namespace)
    own = [authority.new("site", replicas.clock.wall_clock()) for _ in range(2)]
    async with replicas.replica(leads=False) as standby:
        for made in own:
            await replicas.store(encoded(values(made)))
            await standby.refresh()
            assert standby.authorities() == made.certificate.decode()
            assert is_accepted(standby, by=standby)


async def test_secret_that_cannot_be_used_ends_no_certificate(
    control_plane: ControlPlane, namespace: str
) -> None:
    replicas = Replicas(control_plane, namespace)
    await replicas.store(None)
    async with replicas.replica(leads=True) as leader:
        await leader.refresh()
        held = leader.context()
        half = {tls.CERTIFICATE: (await replicas.stored())[tls.CERTIFICATE]}
        for data, reason in ((half, "certificate cannot"), ({tls.KEY: b"x"}, "certificate cannot")):
            await replicas.store(encoded(data))
            await leader.refresh()
            assert reason in leader.problem
            assert leader.context() is held
            assert await replicas.stored() == data
        other = authority.new("other", replicas.clock.wall_clock()).trusted
        good = authority.new("site", replicas.clock.wall_clock())
        await replicas.store(encoded(values(good) | {tls.TRUSTED: other}))
        await leader.refresh()
        assert "CERTIFICATE_VERIFY_FAILED" in leader.problem
        assert leader.context() is held
        await replicas.delete()
        await leader.refresh()
        assert "404" in leader.problem
        assert leader.context() is held
        assert leader.missing == ""
        replicas.clock.now_s += DAY_S
        await leader.refresh()
        assert leader.context() is not held


async def test_authority_with_a_short_key_ends_no_process(
    control_plane: ControlPlane, namespace: str
) -> None:
    """OpenSSL refuses it, which cryptography accepts."""
    replicas = Replicas(control_plane, namespace)
    await replicas.store(encoded(values(authorities.stored(rsa.generate_private_key(65537, 1024)))))
    async with replicas.replica(leads=True) as leader:
        await leader.refresh()
        assert "key too small" in leader.problem
        assert leader.context() is None


def values(made: Authority) -> dict[str, bytes]:
    return {tls.CERTIFICATE: made.certificate, tls.KEY: made.key, tls.TRUSTED: made.trusted}


def encoded(data: dict[str, bytes]) -> dict[str, str]:
    return {name: base64.b64encode(value).decode() for name, value in data.items()}


def is_accepted(server: Certificates, *, by: Certificates) -> bool:
    """Whether who trusts ``by`` accepts a connection to the server."""
    context = server.context()
    assert context is not None
    arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.create_default_context(cadata=by.authorities())
    client = trusting.wrap_bio(arriving, leaving, server_hostname="operator.system")
    connection = tls.TlsConnection(context)
    for _ in range(4):
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            connection.decrypt(memoryview(leaving.read()))
            arriving.write(connection.replies())
        else:
            return True
    return False
