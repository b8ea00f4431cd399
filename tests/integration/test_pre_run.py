"""Real ranks (gloo) record what they send; it is what is derived of them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench import bench_profile, profile_cases
from bench.profile_cases import Case
from fixtures import launchers, pre_runs
from fixtures.operator_endpoint import OperatorEndpoint
from railwright import profile
from railwright.launcher import EXIT_REVOKED, EXIT_UNRECORDED
from railwright.profile import Operation, Profile

WITHIN = 0.02

EVERYTHING = """if 1:
    import os, torch, torch.distributed as dist, railwright
    from torch.distributed import _functional_collectives as functional
    dist.init_process_group("gloo")
    rank, here = dist.get_rank(), dist.group.WORLD
    alone = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    def step():
        dist.all_reduce(torch.ones(100), group=alone)
        functional.all_reduce(torch.ones(7, dtype=torch.float64), "sum", here) + 0
        dist.all_gather_into_tensor(torch.empty(40), torch.ones(10))
        dist.all_gather([torch.empty(5) for _ in range(4)], torch.ones(5))
        dist.reduce_scatter_tensor(torch.empty(10, dtype=torch.bfloat16),
                                   torch.ones(40, dtype=torch.bfloat16))
        dist.all_to_all_single(torch.empty(8), torch.ones(8))
        dist.broadcast(torch.ones(3), 1)
        dist.scatter(torch.empty(2), [torch.ones(2)] * 4 if rank == 0 else None)
        dist.gather(torch.ones(6), [torch.empty(6) for _ in range(4)] if rank == 0 else None)
        dist.barrier()
        if rank < 2:
            dist.send(torch.ones(9), rank + 2)
        else:
            dist.recv(torch.empty(9), rank - 2)
    for number in range(1, 9):
        step()
        railwright.report(number)
    assert "RAILWRIGHT_PROFILE_STEPS" not in os.environ
    dist.barrier()
    os._exit(0)
"""


@pytest.fixture(scope="module")
def everything() -> Profile:
    return pre_runs.recorded([sys.executable, "-c", EVERYTHING], ranks=4)


def lines(found: Profile) -> Iterator[tuple[list[tuple[int, ...]], str, str, int, int, int]]:
    for kind in found.kinds:
        for each in kind.traffic:
            groups = [*profile.groups(kind)]
            yield groups, each.operation, each.element, each.calls, each.size, each.hop


def test_every_operation_is_recorded_with_group_and_bytes(everything: Profile) -> None:
    """All collectives and sends of a script are in the recording."""
    assert (everything.ranks, everything.steps) == (4, pre_runs.RECORDED_STEPS)
    every, pairs = [(0, 1, 2, 3)], [(0, 2), (1, 3)]
    steps = pre_runs.RECORDED_STEPS
    assert sorted(lines(everything)) == sorted(
        [
            (pairs, "all-reduce", "float32", steps, steps * 400, 0),
            (every, "all-reduce", "float64", steps, steps * 56, 0),
            (every, "all-gather", "float32", 2 * steps, steps * (160 + 80), 0),
            (every, "reduce-scatter", "bfloat16", steps, steps * 80, 0),
            (every, "all-to-all", "float32", steps, steps * 32, 0),
            (every, "broadcast", "float32", steps, steps * 12, 0),
            (every, "scatter", "float32", steps, steps * 32, 0),
            (every, "gather", "float32", steps, steps * 96, 0),
            (pairs, "send", "float32", steps, steps * 36, 1),
        ]
    )


def test_times_are_recorded_where_torch_has_ends_of_calls(everything: Profile) -> None:
    took = {each.operation: each.seconds for kind in everything.kinds for each in kind.traffic}
    assert took[Operation.SEND] is None
    assert took[Operation.REDUCE_SCATTER] is None
    finite = [seconds for seconds in took.values() if seconds is not None]
    assert len(finite) == len(took) - 2
    assert all(0 < seconds < everything.steps * everything.step_s for seconds in finite)
    assert everything.compute_s is not None
    assert 0 < everything.compute_s < everything.step_s


@pytest.mark.parametrize(
    "case",
    [profile_cases.FSDP, profile_cases.SPLIT],
    ids=lambda case: case.name,
)
def test_groups_send_as_many_bytes_as_is_derived(case: Case) -> None:
    found = bench_profile.compared(case)
    assert {group["kind"] for group in found["groups"]} >= {"data"}
    assert max(group["error"] for group in found["groups"]) <= WITHIN, json.dumps(found, indent=1)


def test_a_launcher_hands_over_what_its_ranks_recorded(tmp_path: Path) -> None:
    script = str(profile_cases.EXAMPLES / "ddp" / "train.py")
    command = [sys.executable, script, "--steps=7", f"--checkpoint-dir={tmp_path}"]
    with OperatorEndpoint().listening() as operator:
        environ = launchers.environment_of(operator.url, tmp_path)
        environ |= {"RAILWRIGHT_NUM_PROCESSES": "2", "RAILWRIGHT_PROFILE_STEPS": "3"}
        with launchers.launched(command, environ) as launcher:
            _, errors = launcher.communicate(timeout=pre_runs.TIMEOUT_S)
        assert launcher.returncode == 0, errors
    assert sorted(part.rank for part in operator.parts) == [0, 1]
    found = profile.merged(operator.parts)
    assert found.devices == ("cpu",)
    gradients = [
        (size, calls) for *_, element, calls, size, _ in lines(found) if element == "float32"
    ]
    # Of the 119,552 parameters, and of the loss.
    assert gradients == [(3 * 4 * (119_552 + 1), 6)]


def test_pre_run_hands_over_until_it_is_revoked(tmp_path: Path) -> None:
    """The operator forgets what it received first. Nothing is kept of the pre-run. A rank whose
    peers end before it may fail: by then the attempt is over."""
    script = str(profile_cases.EXAMPLES / "ddp" / "train.py")
    kept = tmp_path / "checkpoints"
    command = [sys.executable, script, "--steps=1000000", f"--checkpoint-dir={kept}"]
    command += ["--checkpoint-every=1", "--min-step-seconds=0.05"]
    asked = {"RAILWRIGHT_PROFILE_STEPS": "3", "RAILWRIGHT_PRE_RUN": "true"}
    with OperatorEndpoint(num_nodes=2, parts_lost=3, pre_run=True).listening() as operator:
        environs = [
            launchers.environment_of(operator.url, tmp_path, node_rank=node) | asked
            for node in range(2)
        ]
        with (
            launchers.launched(command, environs[0]) as first,
            launchers.launched(command, environs[1]) as second,
        ):
            errors = [each.communicate(timeout=pre_runs.TIMEOUT_S)[1] for each in (first, second)]
        codes = {first.returncode, second.returncode}
    assert EXIT_REVOKED in codes <= {EXIT_REVOKED, 1}, errors
    assert len(operator.parts) > 3
    reported = {part.rank: part for part in operator.parts}
    assert profile.merged(reported.values()).steps == 3
    assert not kept.exists()


def test_refused_recording_fails_pre_run_with_reason(tmp_path: Path) -> None:
    """The launcher reports the refusal as the failure of the pre-run."""
    script = str(profile_cases.EXAMPLES / "ddp" / "train.py")
    command = [sys.executable, script, "--steps=1000000", f"--checkpoint-dir={tmp_path}"]
    asked = {"RAILWRIGHT_PROFILE_STEPS": "3", "RAILWRIGHT_PRE_RUN": "true"}
    with OperatorEndpoint(parts_refused=True).listening() as operator:
        environ = launchers.environment_of(operator.url, tmp_path) | asked
        with launchers.launched(command, environ) as launcher:
            launcher.communicate(timeout=pre_runs.TIMEOUT_S)
    failure = operator.heartbeats[-1].failure
    assert failure is not None
    assert (launcher.returncode, failure.exit_code) == (EXIT_UNRECORDED, EXIT_UNRECORDED)
    assert "the recording was refused: " in str(failure.message)
    assert "parts do not go together" in str(failure.message)


@pytest.mark.parametrize(
    ("steps", "words"),
    [("many", "seen 'many', expected a whole number from 1 to 1000"), ("3", "no process groups")],
)
def test_failed_recording_is_reported_and_stops_nothing(
    tmp_path: Path, steps: str, words: str
) -> None:
    program = "import railwright\nfor step in range(9): railwright.report(step)\nprint('done')"
    environ = {"RAILWRIGHT_PROFILE_STEPS": steps, "RAILWRIGHT_PROFILE_FOLDER": str(tmp_path)}
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env=environ,
        capture_output=True,
        text=True,
        timeout=pre_runs.TIMEOUT_S,
    )
    assert (answer.returncode, answer.stdout) == (0, "done\n")
    assert words in answer.stderr
    assert not list(tmp_path.iterdir())


def test_script_without_profiling_does_not_load_it() -> None:
    program = (
        "import sys, railwright\nfor step in range(9): railwright.report(step)\n"
        "print({'railwright.prerun', 'torch'} & {*sys.modules})"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], env={}, capture_output=True, text=True, timeout=60
    )
    assert answer.stdout == "set()\n", answer.stderr
