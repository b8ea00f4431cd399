"""What a launcher reads from its pod's environment, and what it writes into that of a rank."""

from __future__ import annotations

import ipaddress
import os
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from railwright import wire

CHANNEL = "RAILWRIGHT_CHANNEL"
RESUME = "RAILWRIGHT_RESUME"
PROFILE_STEPS = "RAILWRIGHT_PROFILE_STEPS"
PROFILE_FOLDER = "RAILWRIGHT_PROFILE_FOLDER"
PRE_RUN = "RAILWRIGHT_PRE_RUN"
"""Set where ranks are to record and no more: what they would keep of themselves is not wanted."""

JOB_UID = "RAILWRIGHT_JOB_UID"
ATTEMPT = "RAILWRIGHT_ATTEMPT"
TERMINATION_FILE = "/dev/termination-log"


class BadEnvironmentError(ValueError):
    """A variable is missing or wrong: which, what was seen, what was expected."""


@dataclass(frozen=True, slots=True)
class Pod:
    """This pod's place in the job, and how to reach the operator."""

    operator_url: str
    token_file: Path
    member: wire.Member
    job_name: str
    num_processes: int
    address: str
    pre_run: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """The checkpoints a rank may read, as in wire.World.resume."""

    checkpoints: Annotated[tuple[wire.Checkpoint, ...], wire.AtMost(wire.RESUME_MAX)]


def pod(environ: Mapping[str, str]) -> Pod:
    """This pod. Raises BadEnvironmentError."""
    return Pod(
        operator_url=_url(environ),
        token_file=Path(_text(environ, "RAILWRIGHT_TOKEN_FILE")),
        member=wire.Member(
            job_uid=_uid(environ),
            attempt=_whole(environ, ATTEMPT, wire.Between(1, wire.ATTEMPT_MAX)),
            node_rank=_whole(environ, "RAILWRIGHT_NODE_RANK", wire.Between(0, wire.NODES_MAX - 1)),
        ),
        job_name=_text(environ, "RAILWRIGHT_JOB_NAME"),
        num_processes=_whole(
            environ, "RAILWRIGHT_NUM_PROCESSES", wire.Between(1, wire.PROCESSES_MAX)
        ),
        address=_address(environ),
        pre_run=PRE_RUN in environ,
    )


def termination_file(environ: Mapping[str, str]) -> Path:
    """Where the kubelet looks for the termination message.

    The operator sets RAILWRIGHT_TERMINATION_FILE where a template has a terminationMessagePath.
    """
    return Path(environ.get("RAILWRIGHT_TERMINATION_FILE", TERMINATION_FILE))


def run_of(environ: Mapping[str, str]) -> str:
    """What tells a run of an attempt from another one under the same number: where its first rank
    listens; empty where no launcher started it."""
    return ":".join(environ[name] for name in ("MASTER_ADDR", "MASTER_PORT") if name in environ)


def of_rank(
    pod: Pod, world: wire.World, *, local_rank: int, channel: Path, environ: Mapping[str, str]
) -> dict[str, str]:
    """A rank's whole environment: the pod's, torchrun's, and what ``import railwright`` reads."""
    rank = str(world.first_rank + local_rank)
    size = str(world.world_size)
    libraries = str(Path(__file__).resolve().parents[1])
    paths = [path for path in (environ.get("PYTHONPATH"), libraries) if path]
    # As torchrun does: the ranks of a pod would otherwise each take all of its cores.
    # What they record, the launcher hands over, unless they are told to leave it elsewhere.
    folder = {PROFILE_FOLDER: str(channel)} if PROFILE_STEPS in environ else {}
    threads = {"OMP_NUM_THREADS": "1"} if pod.num_processes > 1 else {}
    return {
        **threads,
        **folder,
        **environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": world.master_address,
        "MASTER_PORT": str(world.master_port),
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(pod.num_processes),
        "GROUP_RANK": str(pod.member.node_rank),
        "GROUP_WORLD_SIZE": str(world.num_nodes),
        "NODE_RANK": str(pod.member.node_rank),
        "ROLE_NAME": "default",
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": size,
        "TORCHELASTIC_RESTART_COUNT": str(pod.member.attempt - 1),
        "TORCHELASTIC_RUN_ID": pod.member.job_uid,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        CHANNEL: str(channel),
        RESUME: wire.encode(Resume(world.resume)).decode(),
    }


def _text(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise BadEnvironmentError(f"{name} is not set, expected a value")
    return value


def _whole(environ: Mapping[str, str], name: str, range_: wire.Between) -> int:
    text = _text(environ, name)
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
    if not range_.low <= value <= range_.high:
        limits = f"from {range_.low} to {range_.high}"
        raise BadEnvironmentError(f"{name}: seen {text[:40]!r}, expected a whole number {limits}")
    return value


def _uid(environ: Mapping[str, str]) -> str:
    uid = _text(environ, JOB_UID)
    # The checkpointer makes a folder of this name.
    if not uid.replace("-", "").isalnum() or len(uid.encode()) > 256:
        raise BadEnvironmentError(
            f"{JOB_UID}: seen {uid[:40]!r}, expected letters, digits and dashes"
        )
    return uid


def _url(environ: Mapping[str, str]) -> str:
    url = _text(environ, "RAILWRIGHT_OPERATOR_URL")
    try:
        parts = urllib.parse.urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise BadEnvironmentError(
            f"RAILWRIGHT_OPERATOR_URL: seen {url[:80]!r}, expected http://ADDRESS:PORT"
        )
    return url


def _address(environ: Mapping[str, str]) -> str:
    text = _text(environ, "RAILWRIGHT_POD_IP")
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise BadEnvironmentError(
            f"RAILWRIGHT_POD_IP: {error}, expected the pod's address"
        ) from error
