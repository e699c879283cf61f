from __future__ import annotations

import struct

import pytest

from nacre.sandbox.backends import MACHINES, seccomp_program


def steps(code: bytes) -> list[tuple[int, int, int, int]]:
    return [struct.unpack("=HBBI", code[start : start + 8]) for start in range(0, len(code), 8)]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("netlink", [True, False])
def test_every_jump_lands_inside_the_program(machine: str, netlink: bool) -> None:
    code = steps(seccomp_program(machine, netlink=netlink))
    assert len(code) < 4096
    assert all(at + 1 + max(yes, no) < len(code) for at, (_code, yes, no, _value) in enumerate(code[:-1]))
    assert code[-1] == (0x06, 0, 0, 0x7FFF0000)


def verdict(code: bytes, number: int, *arguments: int, machine: str = "x86_64") -> int:
    """What the kernel would answer: a small machine for these five instructions."""
    words = (*arguments, *[0] * (6 - len(arguments)))
    data = struct.pack("=IIQ6Q", number, MACHINES[machine], 0, *words)
    program_steps, at, value = steps(code), 0, 0
    while True:
        kind, yes, no, constant = program_steps[at]
        at += 1
        match kind:
            case 0x20:
                (value,) = struct.unpack_from("=I", data, constant)
            case 0x54:
                value &= constant
            case 0x15:
                at += yes if value == constant else no
            case 0x45:
                at += yes if value & constant else no
            case _:
                return constant


ALLOWED, REFUSED, UNKNOWN, KILLED = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ((0, 0), ALLOWED),  # read
        ((101, 0), REFUSED),  # ptrace
        ((435,), UNKNOWN),  # clone3
        ((0x40000000 | 39,), KILLED),  # getpid of another interface
        ((56, 0x11), ALLOWED),  # clone, as fork does
        ((56, 0x10000011), REFUSED),  # … into a user namespace
        ((16, 0, 0x5413), ALLOWED),  # ioctl: the size of the window
        ((16, 0, 0x5412), REFUSED),  # … input for the terminal
        ((41, 2), ALLOWED),  # socket: Internet
        ((41, 1), REFUSED),  # … Unix
        ((41, 40), REFUSED),  # … the host of a virtual machine
        ((53, 1, 0o2000001), ALLOWED),  # socketpair: streams, closed on exec
        ((53, 1, 5), ALLOWED),
        ((53, 1, 2), REFUSED),  # … datagrams
        ((53, 1, 0o2000003), REFUSED),  # … the same by its other name
        ((90, 0, 0o755), ALLOWED),  # chmod
        ((90, 0, 0o2755), REFUSED),
        ((257, 0, 0, 0, 0o4755), ALLOWED),  # openat that makes nothing
        ((257, 0, 0, 0o100, 0o755), ALLOWED),
        ((257, 0, 0, 0o100, 0o4755), REFUSED),
        ((133, 0, 0o010644), ALLOWED),  # mknod: a pipe
        ((133, 0, 0o020644), REFUSED),  # … a device
        ((133, 0, 0o104755), REFUSED),  # … a set-id file
    ],
)
def test_calls_are_judged_by_their_arguments(call: tuple[int, ...], expected: int) -> None:
    assert verdict(seccomp_program("x86_64", netlink=False), *call) == expected


def test_another_machine_is_killed() -> None:
    assert verdict(seccomp_program("x86_64", netlink=True), 0, machine="aarch64") == KILLED
