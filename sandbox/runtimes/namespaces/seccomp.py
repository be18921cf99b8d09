"""The system call filter: a classic BPF program, assembled here, that refuses what no command of an agent needs.

A deny list in the spirit of the common container default: with all capabilities dropped most of these would fail anyway, and
the filter takes the kernel code behind them out of reach. Calls of another architecture kill the process; calls newer than the
list answer ENOSYS, so that programs fall back.
"""

from __future__ import annotations

import errno
import os
import struct

from sandbox.errors import RuntimeUnavailable

_LOAD, _JEQ, _JGE, _JSET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCH, _ARGUMENT = 0, 4, 16  # offsets in struct seccomp_data; an argument's low half comes first
ALLOW, KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
EPERM, ENOSYS, EAFNOSUPPORT = (_ERRNO | code for code in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT))

ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32 = 0x40000000
_FIRST_UNKNOWN = 470  # the first call number that this list has not judged

# name: numbers on (x86_64, aarch64); None where the architecture has no such call.
DENIED: dict[str, tuple[int | None, int | None]] = {
    # mounts and namespaces
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "mount_setattr": (442, 442), "open_tree_attr": (467, 467), "unshare": (272, 97), "setns": (308, 268),
    # other processes' memory and descriptors
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # the kernel itself
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "create_module": (174, None), "query_module": (178, None), "get_kernel_syms": (177, None),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "lookup_dcookie": (212, 18),
    "syslog": (103, 116), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "nfsservctl": (180, 42), "_sysctl": (156, None), "sysfs": (139, None),
    "uselib": (134, None), "ustat": (136, None), "vserver": (236, None), "ioperm": (173, None), "iopl": (172, None),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "fanotify_init": (300, 262), "open_by_handle_at": (304, 265), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "vhangup": (153, 58),
    # clocks and names
    "settimeofday": (164, 170), "clock_settime": (227, 112), "clock_adjtime": (305, 266), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162),
    # keys live in no namespace
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
}  # fmt: skip
_CLONE, _CLONE3, _SOCKET, _IOCTL, _PERSONALITY = (56, 220), 435, (41, 198), (16, 29), (135, 92)
# NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. NEWTIME shares its bit with the exit signal, which is
# never above 64, so it is left out for clone.
NEW_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
_FAMILIES = (1, 2, 10, 16)  # unix, inet, inet6, netlink; vsock would reach past the network namespace
_TERMINAL_INJECTION = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
_PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)


class _Program:
    """Instructions in order; every test is followed by its answer, so that no jump is longer than one list of arguments."""

    def __init__(self) -> None:
        self.code: list[bytes] = []

    def add(self, code: int, value: int, jump_true: int = 0, jump_false: int = 0) -> None:
        self.code.append(struct.pack("=HBBI", code, jump_true, jump_false, value))

    def answer_if(self, test: int, value: int, answer: int) -> None:
        self.add(test, value, 0, 1)
        self.add(_RETURN, answer)

    def by_argument(self, number: int, index: int, listed: tuple[int, ...], *, when_listed: int, otherwise: int) -> None:
        """For call `number`: answer by whether argument `index` (its low half) is one of `listed`."""
        self.add(_JEQ, number, 0, len(listed) + 3)
        self.add(_LOAD, _ARGUMENT + 8 * index)
        for place, value in enumerate(listed):
            self.add(_JEQ, value, len(listed) - place, 0)
        self.add(_RETURN, otherwise)
        self.add(_RETURN, when_listed)


def program(machine: str | None = None) -> bytes:
    """Assemble the filter for `machine` (default: this one); raise RuntimeUnavailable for an unknown architecture."""
    machine = machine or os.uname().machine
    if machine not in ARCHES:
        raise RuntimeUnavailable(
            f"the namespaces runtime has no system call filter for {machine}",
            fix=f"use one of {', '.join(ARCHES)}, or the docker runtime",
        )
    column = list(ARCHES).index(machine)
    p = _Program()
    p.add(_LOAD, _ARCH)
    p.add(_JEQ, ARCHES[machine], 1, 0)
    p.add(_RETURN, KILL)
    p.add(_LOAD, _NUMBER)
    if machine == "x86_64":
        p.answer_if(_JGE, _X32, KILL)
    p.answer_if(_JGE, _FIRST_UNKNOWN, ENOSYS)
    for numbers in DENIED.values():
        number = numbers[column]
        if number is not None:
            p.answer_if(_JEQ, number, EPERM)
    p.answer_if(_JEQ, _CLONE3, ENOSYS)  # its flags lie in memory, which a filter cannot read; libraries fall back to clone
    p.by_argument(_SOCKET[column], 0, _FAMILIES, when_listed=ALLOW, otherwise=EAFNOSUPPORT)
    p.by_argument(_PERSONALITY[column], 0, _PERSONALITIES, when_listed=ALLOW, otherwise=EPERM)
    p.by_argument(_IOCTL[column], 1, _TERMINAL_INJECTION, when_listed=EPERM, otherwise=ALLOW)
    p.add(_JEQ, _CLONE[column], 0, 3)
    p.add(_LOAD, _ARGUMENT)
    p.add(_JSET, NEW_NAMESPACES, 0, 1)
    p.add(_RETURN, EPERM)
    p.add(_RETURN, ALLOW)
    return b"".join(p.code)


def open_program() -> int:
    """Return a descriptor from which bubblewrap reads the program; the caller closes it."""
    fd = os.memfd_create("filter", os.MFD_CLOEXEC)
    os.write(fd, program())
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
