"""A real control plane: etcd, kube-apiserver and kube-controller-manager on this machine."""

from __future__ import annotations

import contextlib
import functools
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from railwright_testbed import (
    api_client,
    audit,
    backup,
    binaries,
    guardian,
    history,
    identity,
    state_folder,
    sweeping,
)
from railwright_testbed.api_client import ApiClient
from railwright_testbed.identity import Entrance
from railwright_testbed.kwok import Kwok, NodeSpec
from railwright_testbed.ports import PortReservation
from railwright_testbed.processes import Process
from railwright_testbed.state_folder import StateFolder

_READY_DEADLINE_S = 60.0
_KUBECTL_DEADLINE_S = 120.0
_TOKEN_LIFE_S = 24 * 3600
_RECORDED = ("--storage-media-type=application/json", "--etcd-compaction-interval=0")


@dataclass(frozen=True, slots=True)
class ControlPlaneOptions:
    """What differs between a control plane alone and one that real nodes join."""

    # Real nodes reach the API server on the address of their bridge.
    address: str = "127.0.0.1"
    service_subnet: str = "10.96.0.0/16"
    # A node's identity is fixed when the API server starts: its token is in a file.
    node_names: tuple[str, ...] = ()
    api_server_flags: tuple[str, ...] = ()
    # Thousands of simulated nodes that renew as kubelets do would leave no room for anything else.
    node_lease_s: int = 40
    # For how long a node may be silent before it is called NotReady.
    node_grace_s: int = 50
    # Whether `history` and `audit` can read all that was ever written and asked. Stored as JSON, a
    # pod costs the API server a tenth to a third more CPU time, so benchmarks leave it out.
    recorded: bool = True


class ControlPlane:
    """One control plane. `start` it, use it as a context manager or `stop` it."""

    def __init__(self, folder: StateFolder, options: ControlPlaneOptions) -> None:
        self._folder = folder
        self._options = options
        self._programs = binaries.find(binaries.CONTROL_PLANE)
        self._ports = {
            "etcd": PortReservation("127.0.0.1"),
            "etcd-peer": PortReservation("127.0.0.1"),
            "kube-apiserver": PortReservation(options.address),
        }
        self._guardian: Process | None = None
        self._parts: dict[str, Process] = {}
        self._kwoks: list[Kwok] = []
        self._admin = identity.new_admin()
        self._simulated_nodes = identity.new_simulated_nodes()
        self._parts_of_nodes = {
            "kube-proxy": identity.new_proxy(),
            "kube-scheduler": identity.new_scheduler(),
            "coredns": identity.new_dns(),
        }
        self._node_tokens = {name: identity.new_node(name) for name in options.node_names}
        self.directory: Path = folder.path / "control-plane"
        self.url: str = f"https://{options.address}:{self._ports['kube-apiserver'].port}"
        self.token: str = self._admin.token
        self.ca_file: Path = self.directory / "serving" / "apiserver.crt"
        self.signing_key: Path = self.directory / "service-accounts.key"
        self.entrance = Entrance(self.url, self.ca_file)
        self.etcd_port: int = self._ports["etcd"].port
        self.kubeconfig: Path = self.directory / "admin.kubeconfig"
        self.etcd: str = f"127.0.0.1:{self.etcd_port}"
        self.audit_log: Path = audit.log(self.directory)

    def __repr__(self) -> str:
        alive = [name for name, part in self._parts.items() if part.alive]
        return f"ControlPlane({self.url}, alive: {', '.join(alive) or 'nothing'})"

    @classmethod
    def start(cls, name: str = "it", *, options: ControlPlaneOptions | None = None) -> ControlPlane:
        """A control plane of its own, guarded: it is gone when this Python process is gone."""
        sweeping.sweep_crashed()
        binaries.find(binaries.CONTROL_PLANE)
        folder = state_folder.new(name)
        plane: ControlPlane | None = None
        try:
            folder.make()
            watch = guardian.start(folder)
            plane = cls(folder, options or ControlPlaneOptions())
            plane._guardian = watch
            plane.start_all()
        except BaseException:
            if plane is not None:
                plane.stop()
            sweeping.sweep(folder)
            raise
        return plane

    def start_all(self) -> None:
        """Start the three parts and wait until a pod could be created."""
        self.directory.mkdir(parents=True)
        controller_manager = identity.new_controller_manager()
        nodes = [self._simulated_nodes, *self._node_tokens.values()]
        tokens = [self._admin, controller_manager, *self._parts_of_nodes.values(), *nodes]
        identity.write_tokens(self.directory / "tokens.csv", tokens)
        identity.write_signing_key(self.signing_key)
        self._start("etcd", self._etcd_flags())
        self.start_api_server()
        identity.write_kubeconfig(self.kubeconfig, self.entrance, token=self.token)
        kubeconfig = identity.write_kubeconfig(
            self.directory / "controller-manager.kubeconfig",
            self.entrance,
            token=controller_manager.token,
        )
        manager = self._start("kube-controller-manager", self._controller_manager_flags(kubeconfig))
        with contextlib.closing(self.client()) as client:
            # Without its namespace's default service account no pod can be created.
            path = "/api/v1/namespaces/default/serviceaccounts/default"
            manager.until(
                lambda: api_client.answers(client, path),
                "the default service account",
                deadline_s=_READY_DEADLINE_S,
            )

    def stop(self) -> None:
        """End everything and remove its folder; a second call does nothing."""
        for kwok in self._kwoks:
            kwok.stop()
        for name in reversed(list(self._parts)):
            self._parts.pop(name).end()
        for reservation in self._ports.values():
            reservation.release()
        if self._guardian is not None:
            sweeping.sweep(self._folder)
            self._guardian.end()
            self._guardian = None

    def release(self) -> None:
        """Leave everything running when this Python process ends."""
        for process in self._parts.values():
            process.release()
        for kwok in self._kwoks:
            kwok.release()
        for reservation in self._ports.values():
            reservation.release()

    def __enter__(self) -> ControlPlane:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop_api_server(self) -> None:
        """Kill the API server; etcd and the controller manager go on."""
        self._parts["kube-apiserver"].end()

    def start_api_server(self) -> None:
        """Start it, on the same port as before, and wait until it is ready."""
        self._serve("kube-apiserver", self.entrance, etcd_port=self.etcd_port)

    def back_up(self, target: Path) -> None:
        """Copy the files of etcd, while everything runs."""
        backup.copy(self._parts["etcd"], self._etcd_data, target)

    def restore(self, source: Path) -> None:
        """Put etcd back to this copy and start the API server anew; connections to it are lost."""
        self.stop_api_server()
        revision = history.mark(self.etcd, {})
        self._parts["etcd"].end()
        backup.replace(self._etcd_data, source)
        etcd = self._start("etcd", self._etcd_flags())
        etcd.until(
            lambda: backup.answers(self.etcd), "etcd to answer", deadline_s=_READY_DEADLINE_S
        )
        backup.pass_revision(self.etcd, revision)
        self.start_api_server()

    @property
    def _etcd_data(self) -> Path:
        return self.directory / "etcd"

    @contextlib.contextmanager
    def second_api_server(self, *, etcd_port: int) -> Iterator[Entrance]:
        """Start another API server; ``etcd_port`` is the port of etcd or of a proxy in front of
        it."""
        port = PortReservation(self._options.address)
        url = f"https://{self._options.address}:{port.port}"
        entrance = Entrance(url, self.directory / "second-serving" / "apiserver.crt")
        try:
            self._serve("second-kube-apiserver", entrance, etcd_port=etcd_port)
            yield entrance
        finally:
            self._parts.pop("second-kube-apiserver").end()
            port.release()

    def _serve(self, name: str, entrance: Entrance, *, etcd_port: int) -> None:
        flags = self._api_server_flags(entrance, etcd_port=etcd_port)
        server = self._start(name, flags, program="kube-apiserver")
        server.until(
            lambda: _is_certificate(entrance.ca_file),
            "its certificate",
            deadline_s=_READY_DEADLINE_S,
        )
        server.until(
            lambda: self._is_ready(entrance), "/readyz to answer", deadline_s=_READY_DEADLINE_S
        )

    def client(self) -> ApiClient:
        """A new connection to the API server as its admin."""
        return ApiClient(self.url, ca_file=self.ca_file, token=self.token)

    def node_kubeconfig(self, node: str) -> Path:
        """The kubeconfig of a kubelet; the node must have been named at the start."""
        return identity.write_kubeconfig(
            self.directory / "nodes" / f"{node}.kubeconfig",
            self.entrance,
            token=self._node_tokens[node].token,
        )

    def part_kubeconfig(self, part: str) -> Path:
        """The kubeconfig of kube-proxy, kube-scheduler or coredns."""
        path = self.directory / f"{part}.kubeconfig"
        token = self._parts_of_nodes[part].token
        return identity.write_kubeconfig(path, self.entrance, token=token)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as admin; CalledProcessError holds its stderr in its message."""
        command = [str(self._programs["kubectl"]), "--kubeconfig", str(self.kubeconfig), *arguments]
        answer = subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=_KUBECTL_DEADLINE_S,
        )
        if answer.returncode != 0:
            raise KubectlError(answer.returncode, command, answer.stdout, answer.stderr)
        return answer.stdout

    def kubeconfig_for_service_account(
        self, namespace: str, name: str, *, through: Entrance | None = None
    ) -> Path:
        """A kubeconfig with a fresh token of a service account, so with its rights only."""
        entrance = through or self.entrance
        port = entrance.url.rpartition(":")[2]
        return identity.write_kubeconfig(
            self.directory / "service-accounts" / f"{namespace}-{name}-{port}.kubeconfig",
            entrance,
            token=self._service_account_token(namespace, name),
        )

    def service_account_client(self, namespace: str, name: str) -> ApiClient:
        """A new connection to the API server as a service account."""
        token = self._service_account_token(namespace, name)
        return ApiClient(self.url, ca_file=self.ca_file, token=token)

    def _service_account_token(self, namespace: str, name: str) -> str:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        with contextlib.closing(self.client()) as client:
            answer = client.post(path, {"spec": {"expirationSeconds": _TOKEN_LIFE_S}})
        return str(answer["status"]["token"])

    def run(self, name: str, command: Sequence[str], *, environment: Mapping[str, str]) -> Process:
        """Start a process that ends with this testbed, with its log beside the others'."""
        return Process(
            name,
            command,
            log=self._folder.logs / f"{name}.log",
            records=self._folder.records,
            environment=environment,
        )

    def kwok(self, nodes: Sequence[NodeSpec] = ()) -> Kwok:
        """Simulated nodes on this control plane."""
        kubeconfig = identity.write_kubeconfig(
            self.directory / "kwok.kubeconfig", self.entrance, token=self._simulated_nodes.token
        )
        kwok = Kwok(
            self._folder,
            kubeconfig=kubeconfig,
            certificates=self.ca_file.parent,
            new_client=functools.partial(
                ApiClient, self.url, ca_file=self.ca_file, token=self._simulated_nodes.token
            ),
            lease_s=self._options.node_lease_s,
        )
        self._kwoks.append(kwok)
        kwok.start(nodes)
        return kwok

    def _is_ready(self, entrance: Entrance) -> bool:
        client = ApiClient(entrance.url, ca_file=entrance.ca_file, token=self.token)
        with contextlib.closing(client):
            return api_client.answers(client, "/readyz")

    def _start(self, name: str, flags: Sequence[str], *, program: str = "") -> Process:
        process = Process(
            name,
            [str(self._programs[program or name]), *flags],
            log=self._folder.logs / f"{name}.log",
            records=self._folder.records,
        )
        self._parts[name] = process
        return process

    def _etcd_flags(self) -> list[str]:
        client = f"http://{self.etcd}"
        peer = f"http://127.0.0.1:{self._ports['etcd-peer'].port}"
        return [
            "--name=testbed",
            f"--data-dir={self._etcd_data}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=testbed={peer}",
            # This data is not needed after a power loss.
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _api_server_flags(self, entrance: Entrance, *, etcd_port: int) -> list[str]:
        # A loopback address is refused as the advertised one. This one (TEST-NET-1) is in no
        # endpoint of the service `kubernetes`, which only real nodes read.
        loopback = self._options.address.startswith("127.")
        advertised = "192.0.2.1" if loopback else self._options.address
        endpoints = "none" if loopback else "lease"
        return [
            f"--etcd-servers=http://127.0.0.1:{etcd_port}",
            *((*audit.flags(self.directory), *_RECORDED) if self._options.recorded else ()),
            f"--bind-address={self._options.address}",
            f"--advertise-address={advertised}",
            f"--secure-port={entrance.url.rpartition(':')[2]}",
            f"--cert-dir={entrance.ca_file.parent}",
            f"--token-auth-file={self.directory / 'tokens.csv'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-account-key-file={self.signing_key}",
            f"--service-account-signing-key-file={self.signing_key}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={self._options.service_subnet}",
            f"--endpoint-reconciler-type={endpoints}",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged",
            *self._options.api_server_flags,
        ]

    def _controller_manager_flags(self, kubeconfig: Path) -> list[str]:
        return [
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            f"--service-account-private-key-file={self.signing_key}",
            f"--root-ca-file={self.ca_file}",
            "--use-service-account-credentials",
            "--controllers=*,-nodeipam,-node-route-controller,-cloud-node-lifecycle",
            "--leader-elect=false",
            f"--node-monitor-grace-period={self._options.node_grace_s}s",
            # With the default of 20 it takes a minute to remove the taints of 1,000 new nodes.
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            # Its own endpoint is not used, so it needs no port.
            "--secure-port=0",
        ]


class KubectlError(subprocess.CalledProcessError):
    """kubectl failed; the message has its output."""

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.stderr}"


def _is_certificate(file: Path) -> bool:
    """Whether the API server has written its certificate, and not only created the file."""
    return file.exists() and "END CERTIFICATE" in file.read_text(encoding="ascii")
