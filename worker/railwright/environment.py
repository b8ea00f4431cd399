"""What a launcher reads from its pod's environment, and what it writes into that of a rank."""

from __future__ import annotations

import ipaddress
import os
import re
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeVar

from railwright import protocol

CHANNEL = "RAILWRIGHT_CHANNEL"
RESUME = "RAILWRIGHT_RESUME"
PROFILE_STEPS = "RAILWRIGHT_PROFILE_STEPS"
PROFILE_FOLDER = "RAILWRIGHT_PROFILE_FOLDER"
PRE_RUN = "RAILWRIGHT_PRE_RUN"
"""Set in pre-runs: ranks record their traffic and save nothing."""

AUTHORITIES = "RAILWRIGHT_OPERATOR_AUTHORITIES"
"""The certificates, as PEM, of whom the operator's own is signed by."""

GROUP = "RAILWRIGHT_GROUP"
JOB_UID = "RAILWRIGHT_JOB_UID"
ATTEMPT = "RAILWRIGHT_ATTEMPT"
GRACE = "RAILWRIGHT_GRACE_SECONDS"
"""The time that the kubelet gives a pod from SIGTERM to SIGKILL."""

LD_PRELOAD = "RAILWRIGHT_LD_PRELOAD"
"""What ``launch`` kept from the launcher."""

GRACE_S = 30.0
"""That of Kubernetes."""

TERMINATION_FILE = "/dev/termination-log"
LOCAL_GROUP = "default"
"""The role that torchrun gives ranks by itself."""

GROUP_PATTERN = re.compile(r"\w[-.\w]{0,63}", re.ASCII)

Value = TypeVar("Value")


class BadEnvironmentError(ValueError):
    """A variable is missing or wrong: which, what was seen, what was expected."""


@dataclass(frozen=True, slots=True)
class Pod:
    """This pod's place in the job, and how to reach the operator."""

    operator_url: str
    authorities: str
    token_file: Path
    member: protocol.Member
    job_name: str
    role: str
    first_rank: int
    num_processes: int
    address: str
    grace_s: float
    pre_run: bool = False


@dataclass(frozen=True, slots=True)
class Resume:
    """The checkpoints a rank may read, as in protocol.WorldInfo.groups."""

    groups: Annotated[tuple[protocol.Group, ...], protocol.AtMost(protocol.GROUPS_MAX)]


def pod(environ: Mapping[str, str]) -> Pod:
    """This pod. Raises BadEnvironmentError."""
    address = "an IP address, the pod's own"
    url = _read(environ, "RAILWRIGHT_OPERATOR_URL", _url, "https://ADDRESS:PORT")
    encrypted = url.startswith("https:")
    return Pod(
        operator_url=url,
        authorities=_read(environ, AUTHORITIES, str, "certificates as PEM") if encrypted else "",
        token_file=_read(environ, "RAILWRIGHT_TOKEN_FILE", Path, "a path"),
        member=protocol.Member(
            job_uid=_read(environ, JOB_UID, _uid, "letters, digits and dashes"),
            attempt=whole(environ, ATTEMPT, 1, protocol.ATTEMPT_MAX),
            node_rank=whole(environ, "RAILWRIGHT_NODE_RANK", 0, protocol.NODES_MAX - 1),
        ),
        job_name=_read(environ, "RAILWRIGHT_JOB_NAME", str, "a name"),
        role=_read(environ, "RAILWRIGHT_ROLE", str, "a name"),
        first_rank=whole(environ, "RAILWRIGHT_FIRST_RANK", 0, protocol.RANKS_MAX - 1),
        num_processes=whole(environ, "RAILWRIGHT_NUM_PROCESSES", 1, protocol.PROCESSES_MAX),
        address=str(_read(environ, "RAILWRIGHT_POD_IP", ipaddress.ip_address, address)),
        grace_s=float(whole(environ, GRACE, 1, 86400)) if GRACE in environ else GRACE_S,
        pre_run=PRE_RUN in environ,
    )


def termination_file(environ: Mapping[str, str]) -> Path:
    """The path of the termination message that the kubelet reads.

    The operator sets RAILWRIGHT_TERMINATION_FILE where a template has a terminationMessagePath.
    """
    return Path(environ.get("RAILWRIGHT_TERMINATION_FILE", TERMINATION_FILE))


def group_of(environ: Mapping[str, str]) -> str:
    """The group of this rank; without a launcher the role that torchrun gives it.

    Raises BadEnvironmentError for a role that is no name of a folder.
    """
    if GROUP in environ:
        return environ[GROUP]
    role = environ.get("ROLE_NAME", LOCAL_GROUP)
    if not GROUP_PATTERN.fullmatch(role):
        expected = "letters, digits, dots, dashes and underscores"
        raise BadEnvironmentError(f"ROLE_NAME: seen {role[:80]!r}, expected {expected}")
    return role


def resume_of(environ: Mapping[str, str]) -> Resume | None:
    """The checkpoints that this rank may read; None outside a job."""
    text = environ.get(RESUME)
    return None if text is None else protocol.decode(Resume, text.encode())


def valid_group(group: str, environ: Mapping[str, str]) -> str:
    """The group, if the job has it. A pre-run has the group that trains alone. Raises
    ValueError."""
    resume = resume_of(environ)
    names = None if resume is None else [each.name for each in resume.groups]
    is_valid = GROUP_PATTERN.fullmatch(group) if names is None else group in names
    if not is_valid and PRE_RUN not in environ:
        expected = "the name of a group" if names is None else f"one of {', '.join(names)}"
        raise ValueError(f"group: seen {group!r}, expected {expected}")
    return group


def of_rank(
    pod: Pod, world: protocol.WorldInfo, *, local_rank: int, channel: Path, env: Mapping[str, str]
) -> dict[str, str]:
    """A rank's whole environment: the pod's, torchrun's, and what ``import railwright`` reads."""
    rank = str(world.first_rank + local_rank)
    size = str(world.world_size)
    libraries = str(Path(__file__).resolve().parents[1])
    paths = [path for path in (env.get("PYTHONPATH"), libraries) if path]
    # As torchrun does: the ranks of a pod would otherwise each take all of its cores.
    # The launcher sends the recordings in this folder, unless another folder is set.
    folder = {PROFILE_FOLDER: str(channel)} if PROFILE_STEPS in env else {}
    threads = {"OMP_NUM_THREADS": "1"} if pod.num_processes > 1 else {}
    preload = {"LD_PRELOAD": env[LD_PRELOAD]} if LD_PRELOAD in env else {}
    return {
        **threads,
        **folder,
        **env,
        **preload,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": world.master_address,
        "MASTER_PORT": str(world.master_port),
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(pod.num_processes),
        "GROUP_RANK": str(world.group_rank),
        "GROUP_WORLD_SIZE": str(world.num_nodes),
        "NODE_RANK": str(world.group_rank),
        "ROLE_NAME": pod.role,
        "ROLE_RANK": str(world.role_rank + local_rank),
        "ROLE_WORLD_SIZE": str(world.role_size),
        "TORCHELASTIC_RESTART_COUNT": str(pod.member.attempt - 1),
        "TORCHELASTIC_RUN_ID": pod.member.job_uid,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        CHANNEL: str(channel),
        GROUP: world.group,
        RESUME: protocol.encode(Resume(world.groups)).decode(),
    }


def whole(environ: Mapping[str, str], name: str, low: int, high: int) -> int:
    """A whole number within these bounds. Raises BadEnvironmentError."""

    def parse(text: str) -> int:
        return _checked(int(text), text.isascii() and text.isdigit() and low <= int(text) <= high)

    return _read(environ, name, parse, f"a whole number from {low} to {high}")


def _read(
    environ: Mapping[str, str], name: str, parse: Callable[[str], Value], expected: str
) -> Value:
    """The value of a variable. Raises BadEnvironmentError where ``parse`` raises ValueError."""
    text = environ.get(name, "")
    if not text:
        raise BadEnvironmentError(f"{name} is not set, expected a value")
    try:
        return parse(text)
    except ValueError as error:
        raise BadEnvironmentError(f"{name}: seen {text[:80]!r}, expected {expected}") from error


def _checked(value: Value, holds: object) -> Value:
    if not holds:
        raise ValueError
    return value


def _uid(text: str) -> str:
    # The checkpointer makes a folder of this name.
    return _checked(text, text.replace("-", "").isalnum() and len(text.encode()) <= 256)


def _url(text: str) -> str:
    parts = urllib.parse.urlsplit(text)
    valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    return _checked(text, valid)
