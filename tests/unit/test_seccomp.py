"""The system call filter, run by a small interpreter of classic BPF, so that every jump is followed."""

from __future__ import annotations

import errno
import re
import struct
from pathlib import Path

import pytest

from sandbox.errors import RuntimeUnavailable
from sandbox.runtimes.namespaces import seccomp

EPERM, ENOSYS = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS


def judge(machine: str, number: int, *arguments: int, arch: int | None = None) -> int:
    """Run the program over one system call and return its verdict."""
    words = [a & 0xFFFFFFFFFFFFFFFF for a in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("<IIQ6Q", number, arch or seccomp.ARCHES[machine], 0, *words)
    code = seccomp.program(machine)
    assert len(code) % 8 == 0
    assert len(code) // 8 <= 4096, "the kernel takes no longer program"
    at, accumulator = 0, 0
    for _ in range(4096):
        operation, true, false, value = struct.unpack_from("=HBBI", code, at * 8)
        at += 1
        if operation == 0x06:
            return int(value)
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        else:
            hit = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}[operation]
            at += true if hit else false
    raise AssertionError("the program does not end")


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_every_denied_call_is_refused_and_ordinary_ones_are_not(machine: str) -> None:
    column = list(seccomp.ARCHES).index(machine)
    denied = {numbers[column] for numbers in seccomp.DENIED.values()} - {None}
    assert len(denied) >= 50
    special = {435, *(pair[column] for pair in ((56, 220), (41, 198), (16, 29), (135, 92)))}
    for number in range(470):
        verdict = judge(machine, number, 1 if number in special else 0)
        if number in denied:
            assert verdict == EPERM, number
        elif number == 435:
            assert verdict == ENOSYS
        elif number not in special:
            assert verdict == seccomp.ALLOW, number


HEADERS = {
    0: "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
    1: "/usr/include/asm-generic/unistd.h",
}  # arm64 uses the generic table


@pytest.mark.parametrize("column", HEADERS)
def test_numbers_are_those_of_the_kernel_headers(column: int) -> None:
    header = Path(HEADERS[column])
    if not header.exists():
        pytest.skip(f"no {header} on this machine")
    known = dict(re.findall(r"^#define __NR(?:3264)?_(\w+)\s+(\d+)$", header.read_text(), re.MULTILINE))
    listed = {name: numbers[column] for name, numbers in seccomp.DENIED.items() if numbers[column] is not None}
    assert {name: number for name, number in listed.items() if name in known and int(known[name]) != number} == {}
    assert len(listed.keys() & known.keys()) >= 45, "the header was not understood"


@pytest.mark.parametrize(("machine", "clone"), [("x86_64", 56), ("aarch64", 220)])
def test_a_thread_may_be_cloned_and_a_namespace_may_not(machine: str, clone: int) -> None:
    assert judge(machine, clone, 0x3D0F00) == seccomp.ALLOW  # what pthread_create asks for
    assert judge(machine, clone, 17) == seccomp.ALLOW  # fork
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert judge(machine, clone, flag | 17) == EPERM


@pytest.mark.parametrize(("machine", "socket", "ioctl", "personality"), [("x86_64", 41, 16, 135), ("aarch64", 198, 29, 92)])
def test_calls_are_judged_by_their_arguments(machine: str, socket: int, ioctl: int, personality: int) -> None:
    for family in (1, 2, 10, 16):
        assert judge(machine, socket, family) == seccomp.ALLOW
    for family in (0, 17, 38, 40):  # packet, alg, vsock
        assert judge(machine, socket, family) == 0x00050000 | errno.EAFNOSUPPORT
    assert judge(machine, ioctl, 0, 0x5401) == seccomp.ALLOW
    for request in (0x5412, 0x541C, 0x5412 | 0xFF << 32):  # the kernel looks at the low half only
        assert judge(machine, ioctl, 0, request) == EPERM
    assert judge(machine, personality, 0xFFFFFFFF) == seccomp.ALLOW
    assert judge(machine, personality, 0x0040000) == EPERM


def test_a_foreign_architecture_is_killed() -> None:
    assert judge("x86_64", 1, arch=0x40000003) == seccomp.KILL  # i386 calls
    assert judge("x86_64", 0x40000000 | 59) == seccomp.KILL  # x32 calls
    assert judge("aarch64", 1, arch=0x40000028) == seccomp.KILL


def test_calls_newer_than_the_list_are_unknown() -> None:
    assert judge("x86_64", 470) == ENOSYS
    assert judge("x86_64", 9999) == ENOSYS


def test_an_unknown_machine_is_refused_with_a_way_out() -> None:
    with pytest.raises(RuntimeUnavailable, match="riscv64"):
        seccomp.program("riscv64")
