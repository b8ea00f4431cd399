"""Taking a testbed away completely, whatever state it is in: what `down` and a guardian do."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from railwright_testbed import kernel_objects, processes, state_folder
from railwright_testbed.state_folder import StateFolder

GUARDIAN = "guardian"


def sweep(folder: StateFolder) -> None:
    """End every process of a testbed and remove every object it left; safe to repeat."""
    for record in processes.read_records(folder.records):
        # The guardian ends by itself, or is ended last: until then it makes up for us.
        if record.name != GUARDIAN:
            processes.end(record)
    if os.geteuid() == 0:
        kernel_objects.remove_cgroup(kernel_objects.cgroup_name(folder.testbed_id))
        kernel_objects.remove_mounts(folder.path)
        kernel_objects.remove_links(folder.testbed_id)
        shutil.rmtree(kernel_objects.socket_folder(folder.testbed_id), ignore_errors=True)
    shutil.rmtree(folder.path, ignore_errors=True)


def sweep_crashed() -> None:
    """Clean up after testbeds whose owner died before it could."""
    with one_at_a_time():
        for folder in state_folder.every():
            if state_folder.is_crashed(folder):
                print(f"removing the crashed testbed {folder.path.name}", file=sys.stderr)
                sweep(folder)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """A lock over all testbeds of this user, for the moments in which they could meet."""
    root = state_folder.root()
    root.mkdir(parents=True, exist_ok=True)
    with (root / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
