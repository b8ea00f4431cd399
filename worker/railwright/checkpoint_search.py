"""Find the newest whole checkpoint that a group of ranks may read, on all of its ranks alike."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from railwright import channel, collectives, manifest, protocol


def newest_whole(
    volume: manifest.Volume, candidates: Iterable[protocol.Checkpoint], *, is_own: bool
) -> manifest.Manifest | None:
    """The first whole one of these candidates; None if there is none.

    ``is_own`` is whether they are those of the ranks' own group. These are reported to the operator
    where they are skipped. Each rank reads its share of the files: one rank alone would need longer
    than the others may wait for it. Raises OSError on all ranks when the volume of the own group
    does not answer.
    """
    search = _Search(volume, is_own=is_own)
    found = search.with_manifest(candidates)
    while True:
        contents = collectives.from_rank_zero(lambda: next(found, None))
        damage = None if contents is None else search.damage(contents)
        if contents is None or damage is None:
            break
        search.skip(protocol.Checkpoint(contents.attempt, contents.step), damage)
    if is_own:
        collectives.from_rank_zero(lambda: search.report(is_over=contents is None))
    return contents


class _Search:
    """A search on one rank, with what it ``skipped``; all of it on rank 0."""

    def __init__(self, volume: manifest.Volume, *, is_own: bool) -> None:
        self._volume = volume
        self._is_own = is_own
        self._skipped: list[str] = []
        self._unreadable = ""

    def with_manifest(
        self, candidates: Iterable[protocol.Checkpoint]
    ) -> Iterator[manifest.Manifest]:
        """On rank 0: the checkpoints that have a manifest."""
        for checkpoint in candidates:
            try:
                # Another group may be writing it now, or removing it.
                if not self._is_own and not self._volume.is_complete(checkpoint):
                    continue
                yield manifest.read(self._volume, checkpoint)
            except manifest.TornError as error:
                self.skip(checkpoint, error)
            except OSError as error:
                self.skip(checkpoint, self._torn(error))

    def damage(self, contents: manifest.Manifest) -> manifest.TornError | None:
        """What is wrong with the files of a checkpoint."""
        folder = self._volume.checkpoint(protocol.Checkpoint(contents.attempt, contents.step))
        mine = contents.files[collectives.rank() :: collectives.world_size()]

        def find() -> manifest.TornError | None:
            try:
                return manifest.find_damage(folder, mine)
            except OSError as error:
                return self._torn(error)

        return next(filter(None, collectives.from_all(find)), None)

    def _torn(self, error: OSError) -> manifest.TornError:
        """A checkpoint of another group, which may be removed meanwhile, is skipped until the next
        search. Raises the error for the own group: it must not go on without its checkpoints."""
        if self._is_own:
            raise error
        return manifest.TornError(str(error))

    def skip(self, checkpoint: protocol.Checkpoint, why: manifest.TornError) -> None:
        """Log a checkpoint that is skipped."""
        text = f"{self._volume.name(checkpoint)}: {why}"
        self._skipped.append(protocol.fitted(text, protocol.NAME_BYTES_MAX))
        if isinstance(why, manifest.UnreadableError):
            self._unreadable = self._unreadable or text
        if collectives.rank() == 0:
            print(f"railwright: skipped {self._skipped[-1]}", file=sys.stderr, flush=True)

    def report(self, *, is_over: bool) -> None:
        """On rank 0: report what was skipped. Raises OSError if nothing is left and reads failed:
        training from the beginning would replace what the volume may still have."""
        if is_over and self._unreadable:
            raise OSError(f"no checkpoint can be read: {self._unreadable}")
        if self._skipped:
            skipped = tuple(self._skipped[: protocol.SKIPPED_MAX])
            channel.ask(channel.Request(skipped=skipped))
