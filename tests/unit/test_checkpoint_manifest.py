"""Which folders count as checkpoints, and which may be removed."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from fixtures.checkpoints import verified
from railwright import manifest, protocol
from railwright.protocol import Checkpoint


def committed(job: Path, attempt: int, step: int, *, group: str = "worker") -> Path:
    """A checkpoint of two files."""
    folder = manifest.Volume(job, group).checkpoint(Checkpoint(attempt, step))
    manifest.begin(folder)
    names = ["__0_0.distcp", "rank-0.pt"]
    for name in names:
        manifest.write_durably(folder / name, f"{attempt} {step} {name}".encode())
    files = tuple(manifest.described(folder, names))
    manifest.prepare(folder, manifest.Manifest(group, attempt, step, world_size=1, files=files))
    manifest.publish(folder)
    return folder


def workers(job: Path) -> manifest.Volume:
    return manifest.Volume(job, "worker")


def left(job: Path) -> list[str]:
    return sorted(str(path.parent.relative_to(job)) for path in job.rglob("rank-0.pt"))


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_checkpoint_counts_only_with_its_manifest(tmp_path: Path) -> None:
    folder = committed(tmp_path, 1, 10)
    assert verified(workers(tmp_path), Checkpoint(1, 10)).world_size == 1
    (folder / manifest.NAME).rename(folder / f"{manifest.NAME}.partial")
    with pytest.raises(manifest.TornError, match=r"there is no manifest\.json"):
        verified(workers(tmp_path), Checkpoint(1, 10))


def test_attempt_number_used_again_moves_the_old_folder_aside(tmp_path: Path) -> None:
    """As after a restore of the cluster's store: the number comes twice, the checkpoints do not."""
    for _ in range(2):
        manifest.claim(workers(tmp_path), 2, run="10.0.0.1:20001")
    committed(tmp_path, 2, 10)
    manifest.claim(workers(tmp_path), 2, run="10.0.0.1:20001")
    assert workers(tmp_path).steps(2) == [10]
    manifest.claim(workers(tmp_path), 2, run="10.0.0.2:20007")
    assert (workers(tmp_path).attempts(), workers(tmp_path).steps(2)) == ([2], [])
    committed(tmp_path, 2, 10)
    (aside,) = tmp_path.glob("attempt-2/void-worker-*")
    assert (aside / "step-10" / manifest.NAME).exists()


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda folder: flip_a_bit(folder / "rank-0.pt"), r"rank-0\.pt is not as it was written"),
        (lambda folder: (folder / "rank-0.pt").unlink(), r"there is no rank-0\.pt"),
        (lambda folder: (folder / "rank-0.pt").write_bytes(b""), "not as it was written"),
        (lambda folder: (folder / manifest.NAME).write_bytes(b""), "Manifest: expected JSON"),
        (
            lambda folder: folder.rename(folder.parent / "step-20"),
            "the manifest is of step 10 ",
        ),
    ],
)
def test_damage_is_found_and_named(tmp_path: Path, damage: object, complaint: str) -> None:
    folder = committed(tmp_path, 1, 10)
    assert callable(damage)
    damage(folder)
    step = workers(tmp_path).steps(1)[0]
    with pytest.raises(manifest.TornError, match=complaint):
        verified(workers(tmp_path), Checkpoint(1, step))


def without_an_answer(path: Path) -> None:
    """From here on, the file system answers for this file with an error that tells nothing about
    it, as for one of a server that is away: a loop of links."""
    path.unlink()
    path.symlink_to(path.name)


def test_error_that_tells_nothing_is_no_damage(tmp_path: Path) -> None:
    folder = committed(tmp_path, 1, 10)
    without_an_answer(folder / "rank-0.pt")
    with pytest.raises(OSError, match="symbolic links"):
        verified(workers(tmp_path), Checkpoint(1, 10))
    without_an_answer(folder / manifest.NAME)
    with pytest.raises(OSError, match="symbolic links"):
        manifest.read(workers(tmp_path), Checkpoint(1, 10))
    with pytest.raises(OSError, match="symbolic links"):
        workers(tmp_path).is_complete(Checkpoint(1, 10))
    with pytest.raises(OSError, match="symbolic links"):
        manifest.begin(folder)
    assert (folder / "__0_0.distcp").exists()


def test_nothing_is_removed_while_the_volume_does_not_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [committed(tmp_path, 1, step) for step in (10, 20, 30)]
    without_an_answer(folders[0] / manifest.NAME)
    manifest.prune(workers(tmp_path), [Checkpoint(1, 30)], keep=1)
    manifest.remove_partial(workers(tmp_path), Checkpoint(1, 10))
    assert all((folder / "rank-0.pt").exists() for folder in folders)
    assert capsys.readouterr().err.count("was not removed: ") == 2
    (folders[2].parent / manifest.RUN).symlink_to(manifest.RUN)
    with pytest.raises(OSError, match="symbolic links"):
        manifest.claim(workers(tmp_path), 1, run="another")
    assert workers(tmp_path).steps(1) == [30, 20, 10]


def test_all_that_is_left_is_set_aside(tmp_path: Path) -> None:
    """The restored store records step 30 of attempt 1, and attempt 3 begins."""
    for attempt, step in [(1, 80), (1, 90), (2, 100), (4, 5)]:
        committed(tmp_path, attempt, step)
    committed(tmp_path, 1, 30, group="evaluator")
    found = manifest.unread(workers(tmp_path), 3, [Checkpoint(1, 30)])
    assert found == [2, 1]
    for attempt in found:
        manifest.set_aside(workers(tmp_path), attempt)
    manifest.prune(workers(tmp_path), [Checkpoint(3, 9), Checkpoint(1, 30)], keep=1)
    assert [re.sub("void-worker-[^/]*", "void", path) for path in left(tmp_path)] == [
        "attempt-1/evaluator/step-30",
        "attempt-1/void/step-80",
        "attempt-1/void/step-90",
        "attempt-2/void/step-100",
        "attempt-4/worker/step-5",
    ]


def test_nothing_is_set_aside_beside_a_readable_checkpoint(tmp_path: Path) -> None:
    for step in (30, 40):
        committed(tmp_path, 1, step)
    assert not manifest.unread(workers(tmp_path), 2, [Checkpoint(1, 30)])


def test_a_manifest_reaches_no_file_outside_its_folder(tmp_path: Path) -> None:
    folder = committed(tmp_path, 1, 10)
    text = (folder / manifest.NAME).read_text()
    (folder / manifest.NAME).write_text(text.replace("rank-0.pt", "../../elsewhere"))
    with pytest.raises(manifest.TornError, match="is not a file of this folder"):
        verified(workers(tmp_path), Checkpoint(1, 10))


def test_half_written_folder_is_restarted_and_checkpoint_is_not(tmp_path: Path) -> None:
    """A folder without a manifest is written again; one with a manifest is kept."""
    folder = workers(tmp_path).checkpoint(Checkpoint(1, 10))
    manifest.begin(folder)
    (folder / "rank-3.pt").touch()
    manifest.begin(folder)
    assert not list(folder.iterdir())
    committed(tmp_path, 1, 10)
    with pytest.raises(FileExistsError, match="is a checkpoint already"):
        manifest.begin(folder)


def test_the_newest_readable_checkpoints_stay(tmp_path: Path) -> None:
    for attempt, step in [(1, 10), (1, 20), (1, 30), (2, 30), (2, 40), (3, 50)]:
        committed(tmp_path, attempt, step)
    torn = workers(tmp_path).checkpoint(Checkpoint(2, 45))
    manifest.begin(torn)
    manifest.prune(workers(tmp_path), [Checkpoint(2, 40), Checkpoint(1, 30)], keep=3)
    assert left(tmp_path) == [
        "attempt-1/worker/step-30",
        "attempt-2/worker/step-30",
        "attempt-2/worker/step-40",
        "attempt-3/worker/step-50",
    ]
    assert not torn.exists()


def test_attempts_without_a_checkpoint_leave_no_folder(tmp_path: Path) -> None:
    """A job that restarts for months has thousands, and each save lists them all. What somebody
    else left there stays, as do folders of the caller's own attempt, later ones and other groups.
    """
    for attempt in range(1, 8):
        manifest.claim(workers(tmp_path), attempt, run=f"10.0.0.1:{attempt}")
        committed(tmp_path, attempt, 10 * attempt)
    committed(tmp_path, 2, 20, group="evaluator")
    foreign = tmp_path / "attempt-3/worker/notes.txt"
    foreign.touch()
    manifest.claim(workers(tmp_path), 8, run="10.0.0.1:8")
    manifest.claim(workers(tmp_path), 9, run="10.0.0.1:9")
    manifest.prune(workers(tmp_path), [Checkpoint(8, 80), Checkpoint(7, 70)], keep=1)
    folders = {str(each.relative_to(tmp_path)) for each in tmp_path.glob("attempt-*/*")}
    assert folders == {
        "attempt-2/evaluator",
        *(f"attempt-{attempt}/worker" for attempt in (3, 7, 8, 9)),
    }
    assert foreign.exists()
    assert not (tmp_path / "attempt-1").exists()


def test_late_write_of_revoked_attempt_evicts_nothing(
    tmp_path: Path,
) -> None:
    """Checkpoints beyond the resume point do not count for `keep`."""
    for attempt, step in [(1, 10), (1, 20), (1, 30), (1, 40), (2, 30)]:
        committed(tmp_path, attempt, step)
    manifest.prune(workers(tmp_path), [Checkpoint(2, 30), Checkpoint(1, 20)], keep=2)
    assert left(tmp_path) == ["attempt-1/worker/step-20", "attempt-2/worker/step-30"]


def test_a_manifest_may_be_larger_than_a_message() -> None:
    file = manifest.File(name="rank-0.pt", size_bytes=2**40, sha256="0" * 64)
    large = manifest.Manifest("worker", 1, 10, world_size=1, files=(file,) * 1_000)
    data = protocol.encode(large, bytes_max=manifest.BYTES_MAX)
    assert len(data) > protocol.MESSAGE_BYTES_MAX
    assert protocol.decode(manifest.Manifest, data, bytes_max=manifest.BYTES_MAX) == large


def test_groups_remove_and_claim_their_own_folders_alone(tmp_path: Path) -> None:
    """The evaluator keeps its checkpoints, however often the workers save, and the reverse."""
    for step in (10, 20, 30):
        committed(tmp_path, 1, step)
        committed(tmp_path, 1, step, group="evaluator")
    manifest.prune(manifest.Volume(tmp_path, "evaluator"), [Checkpoint(1, 30)], keep=1)
    assert left(tmp_path) == [
        "attempt-1/evaluator/step-30",
        *(f"attempt-1/worker/step-{step}" for step in (10, 20, 30)),
    ]
    manifest.claim(workers(tmp_path), 1, run="10.0.0.1:20001")
    assert workers(tmp_path).steps(1) == []
    assert manifest.Volume(tmp_path, "evaluator").steps(1) == [30]


def test_checkpoint_of_another_group_in_a_folder_is_torn(tmp_path: Path) -> None:
    folder = committed(tmp_path, 1, 10, group="evaluator")
    folder.parent.rename(folder.parent.with_name("worker"))
    with pytest.raises(manifest.TornError, match="of group evaluator in attempt 1, not of this"):
        verified(workers(tmp_path), Checkpoint(1, 10))


def test_checkpoint_whose_name_is_not_synced_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that cannot sync folders, or a disk that fails just then."""

    def fail(folder: Path) -> None:
        raise OSError(errno.EINVAL, "no sync of folders")

    monkeypatch.setattr(manifest, "_sync_folder", fail)
    folder = workers(tmp_path).checkpoint(Checkpoint(1, 10))
    manifest.begin(folder)
    manifest.prepare(folder, manifest.Manifest("worker", 1, 10, world_size=1, files=()))
    assert manifest.publish(folder) is False
    assert workers(tmp_path).is_complete(Checkpoint(1, 10))
    # NFS may send the rename a second time.
    assert manifest.publish(folder) is False
    (folder / manifest.NAME).unlink()
    with pytest.raises(FileNotFoundError):
        manifest.publish(folder)
