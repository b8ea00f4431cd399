"""What is read from kubeconfigs: credentials, plugins, proxies; and what is not printed of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fixtures import scripted_server
from fixtures.command import run
from fixtures.scripted_server import Response, Serve, in_turn, job
from kubernetes import client
from railwright_cli import kubeconfig
from railwright_cli.__main__ import COMMANDS
from railwright_cli.errors import RequestError

RUNNING = Response(job("a", phase="Running"))


def test_credentials_are_not_sent_in_the_clear(serve: Serve) -> None:
    server = serve(in_turn(RUNNING))
    assert run("status", "a") == 0
    assert "Authorization" not in server.requests[0].headers


def test_token_has_no_line_break(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package reads the file before each request."""
    token = tmp_path / "token"
    token.write_text("secret\n")
    file = scripted_server.ScriptedServer(in_turn(RUNNING)).kubeconfig(
        tmp_path, tokenFile=str(token)
    )
    monkeypatch.setenv("KUBECONFIG", str(file))
    configuration = kubeconfig.read("").client.configuration
    for _ in range(2):
        assert configuration.auth_settings()["BearerToken"]["value"] == "Bearer secret"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: secret: ", "line 2: mapping values are not allowed"),
        ("a: 1\nb: [secret", "line 2: "),
    ],
)
def test_unreadable_kubeconfig_is_not_printed(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(RequestError, match=message) as raised:
        kubeconfig.read("")
    assert "secret" not in str(raised.value)


def test_user_who_acts_as_another_is_refused(
    serve: Serve, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else commands would have more rights than that user."""
    server = serve(in_turn(RUNNING))
    server.kubeconfig(tmp_path, **{"token": "admin", "as": "viewer"})
    assert run("cancel", "a") == 2
    assert "acts as 'viewer'" in capsys.readouterr().err
    assert not server.requests


def test_home_is_not_needed_in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its user may have none. The message is then that of a missing kubeconfig."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", lambda _: (_ for _ in ()).throw(KeyError()))
    with pytest.raises(RequestError, match=r"no cluster: ~/\.kube/config"):
        kubeconfig.read("")


def test_first_entry_of_a_name_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of clusters and users: all files of kubeadm have the same names."""
    paths = [tmp_path / name for name in ("a", "b", "a")]
    for path in paths[:2]:
        server = scripted_server.ScriptedServer(in_turn(RUNNING))
        content = json.loads(server.kubeconfig(tmp_path).read_text())
        content["clusters"][0]["cluster"]["server"] = f"https://{path.name}.example.com"
        path.write_text(json.dumps(content))
    monkeypatch.setenv("KUBECONFIG", ":".join(map(str, paths)))
    assert kubeconfig.read("").client.configuration.host == "https://a.example.com"


def test_proxy_of_a_cluster_gets_its_credentials(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = serve(in_turn(RUNNING)).kubeconfig(tmp_path)
    content = json.loads(path.read_text())
    content["clusters"][0]["cluster"]["proxy-url"] = "http://user:p%40ss@proxy.example:3128"
    path.write_text(json.dumps(content))
    monkeypatch.setenv("NO_PROXY", "127.0.0.0/8")
    configuration = kubeconfig.read("").client.configuration
    assert configuration.proxy_headers == {"proxy-authorization": "Basic dXNlcjpwQHNz"}
    assert not configuration.no_proxy


def test_plugin_is_relative_to_its_kubeconfig(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in kubectl, if its command has a slash."""
    server = serve(in_turn(RUNNING))
    version = "client.authentication.k8s.io/v1"
    credential = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": "secret"}}
    program = tmp_path / "bin/plugin"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    program.chmod(0o755)
    monkeypatch.chdir(program.parent)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    for command in ("bin/plugin", "./bin/plugin", "plugin", str(program)):
        exec_plugin = {"apiVersion": version, "command": command, "interactiveMode": "Never"}
        server.kubeconfig(tmp_path, exec=exec_plugin)
        found = kubeconfig.read("").client.configuration
        assert found.auth_settings()["BearerToken"]["value"] == "Bearer secret"


CREDENTIALS = {"proxy-authorization": "Basic dXNlcjpwQHNz"}


@pytest.mark.parametrize(
    ("server", "variable", "proxy", "headers"),
    [
        ("http://127.0.0.1:6443", "http://proxy:3128", None, None),
        ("https://127.8.0.1", "http://user:p%40ss@proxy:3128", None, None),
        ("https://[::1]:6443", "http://proxy:3128", None, None),
        ("https://localhost:6443", "http://proxy:3128", None, None),
        ("https://a.example", "http://proxy:3128", "http://proxy:3128", {}),
        ("https://10.0.0.1", "proxy:3128", "http://proxy:3128", {}),
        ("https://a.example", "https://user:p%40ss@proxy:443", "https://proxy:443", CREDENTIALS),
        ("http://a.example", "user:p%40ss@proxy:3128", "http://proxy:3128", CREDENTIALS),
    ],
)
@pytest.mark.parametrize("in_a_pod", [False, True])
def test_proxy_of_variables_is_used_as_by_kubectl(
    server: str,
    variable: str,
    proxy: str | None,
    headers: dict[str, str] | None,
    in_a_pod: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, variable)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    path = scripted_server.ScriptedServer(in_turn(RUNNING)).kubeconfig(tmp_path)
    path.write_text(path.read_text().replace("http://127.0.0.1:0", server))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none" if in_a_pod else path))
    monkeypatch.setattr(kubeconfig, "IN_A_POD", path)
    loaded = "kubernetes.config.load_incluster_config"
    monkeypatch.setattr(loaded, lambda its: setattr(its, "host", server))
    pools = kubeconfig.read("").client.rest_client.pool_manager
    found = getattr(pools, "proxy", None)
    assert (found and f"{found.scheme}://{found.netloc}") == proxy
    assert getattr(pools, "proxy_headers", None) == headers


def test_socks_proxy_gets_no_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package sends it to the API server."""
    path = scripted_server.ScriptedServer(in_turn(RUNNING)).kubeconfig(tmp_path)
    path.write_text(path.read_text().replace("127.0.0.1", "a.example"))
    monkeypatch.setenv("KUBECONFIG", str(path))
    monkeypatch.setenv("http_proxy", "socks5://user:secret@proxy")
    # The client itself needs another package for SOCKS.
    made: list[client.Configuration] = []
    monkeypatch.setattr("kubernetes.client.ApiClient", made.append)
    kubeconfig.read("")
    assert (made[0].proxy, made[0].proxy_headers) == ("socks5://user:secret@proxy", None)


def test_named_kubeconfig_counts_before_the_variable(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name may have the character that separates the files of the variable."""
    server = serve(in_turn(RUNNING, RUNNING))
    file = server.kubeconfig(tmp_path).rename(tmp_path / "prod:staging")
    (tmp_path / "prod").write_text("no kubeconfig")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "another"))
    assert run("status", "a", "--kubeconfig", str(file)) == 0
    assert server.requests
    assert run("status", "a") == 2


@pytest.mark.parametrize(("name", "message"), [("none", "does not exist"), ("", "is a directory")])
def test_kubeconfig_that_is_no_file_is_refused(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a pod the account of that pod would be used instead."""
    assert run("status", "a", "--kubeconfig", str(tmp_path / name)) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_with_a_context_take_a_kubeconfig(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(name, "--help") == 0
    printed = capsys.readouterr().out
    assert ("--kubeconfig FILE" in printed) == ("--context" in printed)
