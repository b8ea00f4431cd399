"""The launcher's parts that need no process: its environment, output, and termination message."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from fixtures import launchers
from fixtures.operator_endpoint import until
from railwright import environment, install, launcher, memory, output, protocol, ranks, registration

WORLD = protocol.WorldInfo(
    *(8, 4, 4, "10.0.0.1", 20_000), group_rank=2, role_rank=0, role_size=4, group="worker"
)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("RAILWRIGHT_JOB_NAME", "", "RAILWRIGHT_JOB_NAME is not set"),
        ("RAILWRIGHT_JOB_UID", "../other", "seen '../other', expected letters"),
        ("RAILWRIGHT_ATTEMPT", "0", "seen '0', expected a whole number from 1"),
        ("RAILWRIGHT_ATTEMPT", "٣", "expected a whole number from 1"),
        ("RAILWRIGHT_NUM_PROCESSES", "65", "expected a whole number from 1 to 64"),
        ("RAILWRIGHT_NODE_RANK", "9" * 30, "expected a whole number from 0 to 16383"),
        ("RAILWRIGHT_OPERATOR_URL", "10.0.0.1:80", "expected https://ADDRESS:PORT"),
        ("RAILWRIGHT_OPERATOR_URL", "http://a:99999", "expected https://ADDRESS:PORT"),
        ("RAILWRIGHT_POD_IP", "10.0.0", "RAILWRIGHT_POD_IP: seen '10.0.0', expected an IP address"),
    ],
)
def test_a_variable_that_is_wrong_is_named(
    tmp_path: Path, name: str, value: str, complaint: str
) -> None:
    environ = launchers.environment_of("http://10.0.0.1:80", tmp_path) | {name: value}
    with pytest.raises(environment.BadEnvironmentError) as refused:
        environment.pod(environ)
    assert complaint in str(refused.value)


def test_a_rank_keeps_the_pods_variables_and_gets_its_place(tmp_path: Path) -> None:
    environ = launchers.environment_of("http://10.0.0.1:80", tmp_path, node_rank=2)
    environ |= {"RAILWRIGHT_NUM_PROCESSES": "2", "RAILWRIGHT_ATTEMPT": "3", "LR": "0.1"}
    environ |= {"OMP_NUM_THREADS": "4", "PYTHONPATH": "of-the-user"}
    seen = environment.of_rank(
        environment.pod(environ), WORLD, local_rank=1, channel=tmp_path, env=environ
    )
    assert seen["PYTHONPATH"].split(os.pathsep)[0] == "of-the-user"
    expected = {"LR": "0.1", "OMP_NUM_THREADS": "4", "RANK": "5", "LOCAL_RANK": "1"}
    expected |= {"NODE_RANK": "2", "TORCHELASTIC_RESTART_COUNT": "2", "MASTER_PORT": "20000"}
    assert expected.items() <= seen.items()


def test_rank_records_stay_with_launcher_without_a_path(
    tmp_path: Path,
) -> None:
    """Without a path in the environment the launcher collects the recordings."""
    environ = launchers.environment_of("http://10.0.0.1:80", tmp_path)
    pod = environment.pod(environ)

    def left(**asked: str) -> str | None:
        rank = environment.of_rank(pod, WORLD, local_rank=0, channel=tmp_path, env=environ | asked)
        return rank.get("RAILWRIGHT_PROFILE_FOLDER")

    assert left() is None
    assert left(RAILWRIGHT_PROFILE_STEPS="3") == str(tmp_path)
    elsewhere = {"RAILWRIGHT_PROFILE_STEPS": "3", "RAILWRIGHT_PROFILE_FOLDER": "/shared"}
    assert left(**elsewhere) == "/shared"


def test_an_install_is_the_package_and_its_command(tmp_path: Path) -> None:
    install.install(tmp_path)
    install.install(tmp_path)
    package = Path(install.__file__).parent
    names = {"launch", "launch.py"} | {f"railwright/{path.name}" for path in package.glob("*.py")}
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert {name for name in written if not name.startswith("interpreter/")} == names


def passed_on(data: bytes, *, prefix: str = "") -> tuple[bytes, output.Output]:
    """What reaches the sink of a rank that prints this."""
    from_rank, to_launcher = os.pipe()
    from_sink, to_sink = os.pipe()
    rank = output.Output(prefix)
    with os.fdopen(to_sink, "wb") as sink, os.fdopen(from_sink, "rb") as seen:
        with os.fdopen(to_launcher, "wb") as pipe:
            rank.follow(os.fdopen(from_rank, "rb"), output.Sink(sink.fileno()))
            pipe.write(data)
        rank.settle(10)
        sink.close()
        return seen.read(), rank


def test_every_line_carries_the_prefix_once() -> None:
    seen, rank = passed_on(b"one\r\ntwo\rthree\n\nlast", prefix="[rank 1] ")
    assert seen.replace(b"\r", b"\n").split(b"\n") == [
        b"[rank 1] one",
        b"",
        b"[rank 1] two",
        b"[rank 1] three",
        b"[rank 1] ",
        b"[rank 1] last",
    ]
    assert rank.last_lines() == "one\ntwo\nthree\n\nlast"


def test_last_lines_are_bounded_clean_text_whatever_was_printed() -> None:
    started = time.monotonic()
    seen, rank = passed_on(b"\xff\x00" * 20_000 + "größer".encode())
    assert len(seen) == 40_008
    lines = rank.last_lines()
    assert lines.endswith("größer")
    assert len(lines.encode()) <= protocol.LAST_LINES_BYTES_MAX
    assert protocol.encode(protocol.Failure(rank=0, exit_code=1, last_lines=lines))
    assert time.monotonic() - started < 5, "a long line must not cost its length squared"


def test_open_line_is_among_the_last_while_a_child_holds_it() -> None:
    """Such as a data loader that outlives its rank."""
    from_rank, to_launcher = os.pipe()
    with Path(os.devnull).open("wb") as sink, os.fdopen(to_launcher, "wb") as pipe:
        rank = output.Output("")
        rank.follow(os.fdopen(from_rank, "rb"), output.Sink(sink.fileno()))
        pipe.write(b"one\nFATAL: no licence")
        pipe.flush()
        until(lambda: rank.last_lines() == "one\nFATAL: no licence")
    rank.settle(10)
    assert rank.last_lines() == "one\nFATAL: no licence"


def test_unreachable_termination_message_ends_nothing(tmp_path: Path) -> None:
    """A user may not enter its folder. As root can enter all, the name is too long here."""
    failure = protocol.Failure(rank=3, exit_code=1, last_lines="")
    launcher.write_termination_message(tmp_path / ("x" * 300), failure)


def test_output_without_a_reader_is_still_kept() -> None:
    from_rank, to_launcher = os.pipe()
    closed, to_sink = os.pipe()
    os.close(closed)
    rank = output.Output("")
    with os.fdopen(to_launcher, "wb") as pipe:
        rank.follow(os.fdopen(from_rank, "rb"), output.Sink(to_sink))
        pipe.write(b"one\ntwo\n")
    rank.settle(10)
    os.close(to_sink)
    assert rank.last_lines() == "one\ntwo\n"


def test_a_termination_message_keeps_the_end_within_4_kib(tmp_path: Path) -> None:
    path = tmp_path / "termination-log"
    lines = '"\\\n' * 1_000 + "the reason"
    failure = protocol.Failure(rank=3, exit_code=1, last_lines=lines)
    launcher.write_termination_message(path, failure)
    assert not path.exists(), "only the kubelet makes this file"
    path.touch()
    launcher.write_termination_message(path, failure)
    assert path.stat().st_size <= 4096
    read = protocol.decode(protocol.Failure, path.read_bytes())
    assert (read.rank, read.exit_code) == (3, 1)
    assert lines.endswith(read.last_lines)
    assert len(read.last_lines) > 1_500


@pytest.mark.parametrize(("code", "signal"), [(137, "SIGKILL"), (137, None), (1, None)])
def test_kill_for_memory_is_told_from_the_exit_code(code: int, signal: str | None) -> None:
    """A shell that ran the command has no signal of its own."""
    # A real one blocks signals of this process.
    silent = SimpleNamespace(settle=float, last_lines=tuple)
    processes = SimpleNamespace(
        outputs={0: silent}, memory=memory.Files(Path("none"), Path("none"))
    )
    exit_ = ranks.Exit(0, code, signal, memory_kills=1)
    failure = launcher._failure(cast("ranks.Ranks", processes), exit_)
    assert failure.out_of_memory == (code == 137)


def test_unreadable_authorities_are_an_error_of_the_environment(tmp_path: Path) -> None:
    environ = launchers.environment_of("https://10.0.0.1:80", tmp_path)
    cut = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
    environ |= {environment.AUTHORITIES: cut}
    with pytest.raises(environment.BadEnvironmentError, match="authorities of the operator"):
        launcher._join(environment.pod(environ))


def test_the_reserved_port_is_free_and_no_ephemeral_one() -> None:
    reserve = registration.reserve_port
    with reserve("127.0.0.1") as first, reserve("127.0.0.1") as second:
        ports = {first.getsockname()[1], second.getsockname()[1]}
    assert len(ports) == 2
    assert all(20_000 <= port < 30_000 for port in ports)
