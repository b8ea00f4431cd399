"""Another process of the same user cannot read the memory of a replica."""

from __future__ import annotations

import subprocess
import sys
from errno import EACCES

OTHER = """
import ctypes, errno, os, sys
from railwright_process import replica
if os.getuid() == 0:
    os.setgid(65532)
    os.setuid(65532)
    ctypes.CDLL(None).prctl(replica.PR_SET_DUMPABLE, 1, 0, 0, 0)  # As after a start as this user.
replica.keep_memory_private()
child = os.fork()
if child == 0:
    try:
        open(f"/proc/{os.getppid()}/mem", "rb")
    except PermissionError:
        os._exit(errno.EACCES)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_mapper_cannot_read_the_tokens_of_its_operator() -> None:
    """Some kernels refuse it anyway (``kernel.yama.ptrace_scope``), others do not."""
    assert subprocess.run([sys.executable, "-c", OTHER], timeout=60).returncode == EACCES
