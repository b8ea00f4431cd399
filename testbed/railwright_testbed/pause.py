"""The program that holds a pod's namespaces: it sleeps forever, and needs nothing, not even libc.

A pod's sandbox container does not get the host's mounts, so its program must stand alone. Nine
bytes of machine code in an ELF file do, and spare the testbed a compiler.
"""

from __future__ import annotations

import platform
import struct

from railwright_testbed.errors import TestbedError

_LOAD_ADDRESS = 0x400000
_ELF_HEADER_SIZE = 64
_PROGRAM_HEADER_SIZE = 56
_LOADABLE = 1
_READ_AND_EXECUTE = 5
_EXECUTABLE = 2

# Machine (the number ELF gives it) and code.
_CODE = {
    # again: mov eax, 34 (pause); syscall; jmp again
    "x86_64": (62, bytes.fromhex("b822000000 0f05 ebf7")),
    # again: x0 to x3 = 0; x8 = 73 (ppoll); svc 0; b again
    "aarch64": (
        183,
        struct.pack(
            "<7I",
            *(0xD2800000, 0xD2800001, 0xD2800002, 0xD2800003),
            *(0xD2800928, 0xD4000001, 0x17FFFFFA),
        ),
    ),
}


def program() -> bytes:
    """A static executable for this machine."""
    if platform.machine() not in _CODE:
        raise TestbedError(
            f"real nodes run on {' and '.join(_CODE)}; this machine is {platform.machine()}"
        )
    machine, code = _CODE[platform.machine()]
    headers_size = _ELF_HEADER_SIZE + _PROGRAM_HEADER_SIZE
    size = headers_size + len(code)
    # 64 bits, little-endian, version 1; the rest of the identification is zero.
    identification = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    elf_header = identification + struct.pack(
        "<HHIQQQIHHHHHH",
        *(_EXECUTABLE, machine, 1, _LOAD_ADDRESS + headers_size, _ELF_HEADER_SIZE, 0, 0),
        *(_ELF_HEADER_SIZE, _PROGRAM_HEADER_SIZE, 1, 0, 0, 0),
    )
    program_header = struct.pack(
        "<IIQQQQQQ",
        *(_LOADABLE, _READ_AND_EXECUTE, 0, _LOAD_ADDRESS, _LOAD_ADDRESS, size, size, 0x1000),
    )
    return elf_header + program_header + code
