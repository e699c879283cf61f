"""Attempts to get out of a sandbox, run inside it: each gives True if it got out, or raises what stopped it."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
World = dict[str, Any]
ATTEMPTS: dict[str, Callable[[World], bool]] = {}
FREE: set[str] = set()
ALONE: set[str] = set()
FATAL: set[str] = set()


def attempt(
    *, free: bool = False, alone: bool = False, fatal: bool = False
) -> Callable[[Callable[[World], bool]], Callable[[World], bool]]:
    """An attempt: `free` ones succeed without a sandbox, `alone` ones want their own call, `fatal` ones may die."""

    def keep(function: Callable[[World], bool]) -> Callable[[World], bool]:
        ATTEMPTS[function.__name__] = function
        FREE.update([function.__name__] if free else [])
        ALONE.update([function.__name__] if alone else [])
        FATAL.update([function.__name__] if fatal else [])
        return function

    return keep


def call(number: int, *arguments: Any) -> int:
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    result = int(libc.syscall(ctypes.c_long(number), *wide))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def number(x86: int, arm: int) -> int:
    return x86 if os.uname().machine == "x86_64" else arm


# ---- paths


@attempt(free=True)
def read_outside_by_its_path(world: World) -> bool:
    return "SECRET" in Path(world["outside"], "secret").read_text()


@attempt(free=True)
def read_outside_by_dots(world: World) -> bool:
    return "SECRET" in Path("../outside/secret").read_text()


@attempt(free=True)
def read_outside_through_a_link(world: World) -> bool:
    link = Path("link-out")
    link.unlink(missing_ok=True)
    link.symlink_to(Path(world["outside"], "secret"))
    return "SECRET" in link.read_text()


@attempt(free=True)
def read_outside_through_a_link_to_a_folder(world: World) -> bool:
    link = Path("folder-out")
    link.unlink(missing_ok=True)
    link.symlink_to(world["outside"])
    return "SECRET" in (link / "secret").read_text()


@attempt(free=True)
def read_outside_through_a_hard_link(world: World) -> bool:
    Path("hard").unlink(missing_ok=True)
    os.link(Path(world["outside"], "secret"), "hard")
    return "SECRET" in Path("hard").read_text()


@attempt()
def read_outside_through_proc_root(world: World) -> bool:
    return "SECRET" in Path("/proc/1/root" + world["outside"], "secret").read_text()


@attempt(free=True)
def read_outside_through_own_proc_root(world: World) -> bool:
    return "SECRET" in Path("/proc/self/root" + world["outside"], "secret").read_text()


@attempt()
def read_outside_through_the_working_folder_of_another(world: World) -> bool:
    return "SECRET" in Path(f"/proc/{world['victim']}/cwd/secret").read_text()


@attempt(free=True)
def list_outside(world: World) -> bool:
    return any(path.name == "secret" for path in Path(world["outside"]).iterdir())


@attempt(free=True)
def write_outside(world: World) -> bool:
    return Path(world["outside"], "victim").write_text("changed") > 0


@attempt(free=True)
def create_outside(world: World) -> bool:
    Path(world["outside"], "planted").touch()
    return True


@attempt(free=True)
def make_a_folder_outside(world: World) -> bool:
    Path(world["outside"], "planted-folder").mkdir(exist_ok=True)
    return True


@attempt(free=True)
def move_something_outside(world: World) -> bool:
    Path("moved").touch()
    Path("moved").rename(Path(world["outside"], "moved"))
    return True


@attempt(free=True)
def remove_something_outside(world: World) -> bool:
    Path(world["outside"], "removable").unlink()
    return True


@attempt(free=True)
def truncate_outside(world: World) -> bool:
    os.truncate(Path(world["outside"], "victim"), 0)
    return True


@attempt(free=True)
def change_the_mode_outside(world: World) -> bool:
    Path(world["outside"], "victim").chmod(0o777)
    return True


@attempt(free=True)
def change_the_times_outside(world: World) -> bool:
    os.utime(Path(world["outside"], "victim"), (1, 1))
    return True


@attempt(free=True)
def set_an_attribute_outside(world: World) -> bool:
    os.setxattr(Path(world["outside"], "victim"), "user.nacre", b"x")
    return True


@attempt()
def read_the_passwords(world: World) -> bool:
    return bool(Path("/etc/shadow").read_text())


@attempt()
def write_to_usr(world: World) -> bool:
    Path("/usr/nacre-planted").touch()
    Path("/usr/nacre-planted").unlink()
    return True


@attempt()
def write_to_etc(world: World) -> bool:
    Path("/etc/nacre-planted").touch()
    Path("/etc/nacre-planted").unlink()
    return True


@attempt()
def list_what_others_have_installed(world: World) -> bool:
    return any(path.name in world["installed"] for path in Path("/opt").iterdir())


@attempt()
def list_the_home_of_root(world: World) -> bool:
    return bool(list(Path("/root").iterdir()))


@attempt(free=True)
def open_by_handle(world: World) -> bool:
    handle = ctypes.create_string_buffer(struct.pack("=Ii", 128, 0) + bytes(128))
    mount = ctypes.c_int()
    target = os.fsencode(Path(world["outside"], "secret"))
    call(number(303, 264), -100, target, handle, ctypes.byref(mount), 0)
    return True


# ---- what is hidden, though it lies in the workspace


@attempt(free=True)
def read_the_hidden_store(world: World) -> bool:
    return "SECRET" in Path("deep/er/store/log").read_text()


@attempt(free=True)
def list_the_hidden_store(world: World) -> bool:
    return any(path.name == "log" for path in Path("deep/er/store").iterdir())


@attempt(free=True)
def append_to_the_hidden_store(world: World) -> bool:
    with Path("deep/er/store/log").open("a") as file:
        return file.write("forged") > 0


@attempt(free=True)
def create_in_the_hidden_store(world: World) -> bool:
    Path("deep/er/store/planted").touch()
    return True


@attempt(free=True)
def read_the_hidden_file(world: World) -> bool:
    return "SECRET" in Path("config").read_text()


@attempt()
def write_the_hidden_file(world: World) -> bool:
    return Path("config").write_text("forged") > 0


@attempt()
def replace_the_hidden_file(world: World) -> bool:
    Path("forged").write_text("forged")
    Path("forged").replace("config")
    return True


@attempt()
def remove_the_hidden_file(world: World) -> bool:
    Path("config").unlink()
    return True


@attempt()
def rename_the_hidden_store(world: World) -> bool:
    Path("deep/er/store").rename("deep/er/taken")
    return True


@attempt()
def rename_the_folder_of_the_hidden_store(world: World) -> bool:
    Path("deep/er").rename("deep/taken")
    return True


@attempt()
def rename_the_folder_of_that_folder(world: World) -> bool:
    Path("deep").rename("taken")
    return True


@attempt()
def exchange_the_folder_of_the_hidden_store(world: World) -> bool:
    Path("other").mkdir(exist_ok=True)
    call(number(316, 276), -100, b"deep", -100, b"other", 2)
    return True


@attempt()
def link_to_the_hidden_file(world: World) -> bool:
    os.link("config", "config-link")
    return True


@attempt()
def uncover_the_hidden_store(world: World) -> bool:
    call(number(166, 39), b"deep/er/store", 2)
    return True


@attempt(free=True)
def read_the_hidden_store_through_proc(world: World) -> bool:
    return "SECRET" in Path("/proc/self/cwd/deep/er/store/log").read_text()


@attempt()
def learn_what_is_hidden_from_a_command_line(world: World) -> bool:
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.name != str(os.getpid())]
    return any(b"deep/er/store" in line for line in lines)


# ---- what is frozen, though it lies in the workspace


@attempt(free=True)
def read_what_is_hidden_beside_the_skills(world: World) -> bool:
    return "SECRET" in Path("kept/log").read_text()


@attempt(free=True)
def read_what_is_hidden_through_the_skills(world: World) -> bool:
    return "SECRET" in Path("kept/skills/../log").read_text()


@attempt(free=True)
def write_a_skill(world: World) -> bool:
    return Path("kept/skills/script").write_text("forged") > 0


@attempt(free=True)
def create_a_skill(world: World) -> bool:
    Path("kept/skills/planted").touch()
    return True


@attempt(free=True)
def create_beside_the_skills(world: World) -> bool:
    Path("kept/planted").touch()
    return True


@attempt()
def rename_the_skills(world: World) -> bool:
    Path("kept/skills").rename("kept/others")
    return True


@attempt()
def rename_the_folder_of_the_skills(world: World) -> bool:
    Path("kept").rename("others")
    return True


@attempt(free=True)
def write_the_frozen_file(world: World) -> bool:
    return Path("fixed/file").write_text("forged") > 0


@attempt(free=True)
def create_in_the_frozen_folder(world: World) -> bool:
    Path("frozen/planted").touch()
    return True


@attempt()
def change_the_mode_of_the_frozen_file(world: World) -> bool:
    Path("fixed/file").chmod(0o777)
    return True


@attempt()
def replace_the_frozen_file(world: World) -> bool:
    Path("forged").write_text("forged")
    Path("forged").replace("fixed/file")
    return True


@attempt()
def remove_what_is_frozen(world: World) -> bool:
    with contextlib.suppress(OSError):
        Path("frozen/file").unlink()
        return True
    Path("fixed/file").unlink()
    return True


@attempt()
def rename_the_frozen_folder(world: World) -> bool:
    Path("frozen").rename("taken")
    return True


@attempt()
def rename_the_folder_of_the_frozen_file(world: World) -> bool:
    Path("fixed").rename("taken")
    return True


@attempt()
def write_the_frozen_file_through_a_link(world: World) -> bool:
    os.link("fixed/file", "fixed-link")
    return True


@attempt()
def unmount_the_frozen_folder(world: World) -> bool:
    call(number(166, 39), b"frozen", 2)
    return True


# ---- secrets and other processes


@attempt()
def find_secrets_in_the_environment(world: World) -> bool:
    return any("SECRET" in value for value in os.environ.values())


@attempt()
def find_secrets_in_the_environment_of_the_first(world: World) -> bool:
    return b"SECRET" in Path("/proc/1/environ").read_bytes()


@attempt(free=True)
def read_the_environment_of_the_parent(world: World) -> bool:
    return b"SECRET" in Path(f"/proc/{world['parent']}/environ").read_bytes()


@attempt()
def use_inherited_descriptors(world: World) -> bool:
    return any(_is_open(descriptor) for descriptor in range(3, 256))


def _is_open(descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_GETFD)
        return True
    return False


@attempt()
def use_the_descriptors_of_the_first(world: World) -> bool:
    names = {str(path.readlink()) for path in Path("/proc/1/fd").iterdir() if int(path.name) > 2}
    return any(not name.startswith("anon_inode:") for name in names)


@attempt()
def write_the_memory_of_the_first(world: World) -> bool:
    return os.open("/proc/1/mem", os.O_RDWR) > 0


@attempt(free=True)
def see_other_processes(world: World) -> bool:
    return f"nacre-victim-{world['parent']}".encode() in Path(f"/proc/{world['victim']}/cmdline").read_bytes()


@attempt(free=True)
def signal_the_parent(world: World) -> bool:
    os.kill(world["parent"], 0)
    return True


@attempt(free=True)
def signal_a_process_of_the_same_user(world: World) -> bool:
    os.kill(world["victim"], 0)
    return True


@attempt()
def stop_the_first(world: World) -> bool:
    os.kill(1, signal.SIGSTOP)
    os.kill(1, signal.SIGKILL)
    os.kill(1, signal.SIGINT)
    return Path("/proc/1/stat").read_text().split()[2] not in "SR"


@attempt(free=True)
def trace_a_process_outside(world: World) -> bool:
    return call(number(101, 117), 0x4206, world["victim"], 0, 0) == 0


@attempt(free=True)
def trace_a_child(world: World) -> bool:
    return call(number(101, 117), 0, 0, 0, 0) == 0


@attempt(free=True)
def read_the_memory_of_another(world: World) -> bool:
    buffer = ctypes.create_string_buffer(8)
    here = struct.pack("@PN", ctypes.addressof(buffer), 8)
    there = struct.pack("@PN", world["address"], 8)
    return call(number(310, 270), world["parent"], here, 1, there, 1, 0) == 8


@attempt(free=True)
def take_a_descriptor_of_another(world: World) -> bool:
    return call(438, os.pidfd_open(world["victim"]), 0, 0) > 0


@attempt()
def share_memory_with_another(world: World) -> bool:
    libc.shmat.restype = ctypes.c_void_p
    return bool(libc.shmat(world["shared"], None, 0) != ctypes.c_void_p(-1).value)


@attempt()
def push_input_into_the_terminal(world: World) -> bool:
    with Path("/dev/tty").open("rb") as terminal:
        fcntl.ioctl(terminal, termios.TIOCSTI, b"x")
    return True


@attempt()
def get_a_controlling_terminal(world: World) -> bool:
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[4] != "0"


# ---- the network


@attempt(free=True)
def connect_by_tcp(world: World) -> bool:
    with socket.create_connection(("127.0.0.1", world["tcp"]), timeout=2) as connection:
        return connection.fileno() > 0


@attempt(free=True)
def connect_by_udp(world: World) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.settimeout(2)
        sender.connect(("127.0.0.1", world["udp"]))
        sender.send(b"ping")
        return sender.recv(16) == b"pong"


@attempt(free=True)
def connect_to_a_unix_socket(world: World) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(world["unix"])
    return True


@attempt(free=True)
def connect_to_an_abstract_socket(world: World) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("\0" + world["abstract"])
    return True


@attempt(free=True)
def connect_to_a_unix_socket_in_the_workspace(world: World) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("agent.socket")
    return True


@attempt(free=True)
def connect_to_a_unix_socket_through_a_link(world: World) -> bool:
    link = Path("link-to-a-socket")
    link.unlink(missing_ok=True)
    link.symlink_to("agent.socket")
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(link))
    return True


@attempt(free=True)
def send_to_a_unix_socket_in_the_workspace(world: World) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        return sender.sendto(b"x", "log.socket") == 1


@attempt(free=True)
def send_to_a_unix_socket_from_one_of_a_pair(world: World) -> bool:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        one.connect("log.socket")
        return one.send(b"x") == 1


@attempt(free=True)
def send_to_a_unix_socket_from_a_raw_pair(world: World) -> bool:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
    with one, other:
        return one.sendto(b"x", "log.socket") == 1


@attempt()
def connect_one_of_a_pair_of_streams(world: World) -> bool:
    one, other = socket.socketpair()
    other.close()
    with one:
        one.connect("agent.socket")
    return True


@attempt()
def see_the_interfaces(world: World) -> bool:
    return any(not line.strip().startswith("lo:") for line in Path("/proc/net/dev").read_text().splitlines()[2:])


@attempt()
def open_a_raw_socket(world: World) -> bool:
    return socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).fileno() > 0


@attempt()
def open_a_packet_socket(world: World) -> bool:
    return socket.socket(17, socket.SOCK_RAW, 0).fileno() > 0


@attempt()
def open_a_vsock(world: World) -> bool:
    return socket.socket(40, socket.SOCK_STREAM, 0).fileno() > 0


@attempt(free=True)
def open_a_netlink_socket(world: World) -> bool:
    return socket.socket(16, socket.SOCK_RAW, 0).fileno() > 0


# ---- rights and the kernel


@attempt()
def hold_capabilities(world: World) -> bool:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return any(int(lines[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb"))


@attempt()
def gain_rights_by_running_a_program(world: World) -> bool:
    return bool(libc.prctl(39, 0, 0, 0, 0) != 1)


@attempt()
def become_another_user(world: World) -> bool:
    os.setresuid(12345, 12345, 12345)
    return True


@attempt(free=True)
def make_a_file_set_id(world: World) -> bool:
    Path("setid").touch()
    Path("setid").chmod(0o4755)
    return True


@attempt(free=True)
def create_a_file_set_id(world: World) -> bool:
    Path("setid-new").unlink(missing_ok=True)
    os.close(os.open("setid-new", os.O_CREAT | os.O_WRONLY, 0o4755))
    return bool(Path("setid-new").stat().st_mode & 0o4000)


@attempt(free=True)
def create_a_file_set_id_by_another_call(world: World) -> bool:
    Path("setid-other").unlink(missing_ok=True)
    how = struct.pack("=QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    return call(437, -100, b"setid-other", how, len(how)) > 0


@attempt()
def make_a_character_device(world: World) -> bool:
    os.mknod("null-device", 0o020666, os.makedev(1, 3))
    return True


@attempt()
def make_a_block_device(world: World) -> bool:
    os.mknod("disk-device", 0o060666, os.makedev(254, 0))
    return True


@attempt()
def open_the_memory_of_the_machine(world: World) -> bool:
    return os.open("/dev/mem", os.O_RDONLY) > 0


@attempt()
def open_the_disk(world: World) -> bool:
    names = [name for name in ("/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0") if os.path.lexists(name)]
    return any(os.open(name, os.O_RDONLY) > 0 for name in names)


@attempt()
def mount_a_file_system(world: World) -> bool:
    Path("mounted").mkdir(exist_ok=True)
    return call(number(165, 40), b"none", b"mounted", b"tmpfs", 0, 0) == 0


@attempt()
def mount_everything_writable_again(world: World) -> bool:
    return call(number(165, 40), b"none", b"/", b"none", 0x20 | 0x1000, 0) == 0


@attempt()
def open_a_mount_tree(world: World) -> bool:
    return call(428, -100, b"/", 1) > 0


@attempt(free=True)
def enter_a_user_namespace(world: World) -> bool:
    return call(number(272, 97), 0x10000000) == 0


@attempt(free=True)
def start_a_child_in_a_user_namespace(world: World) -> bool:
    return subprocess.run(["unshare", "-U", "true"], capture_output=True, check=False).returncode == 0


@attempt()
def clone_into_a_user_namespace(world: World) -> bool:
    child = call(number(56, 220), 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    return True


@attempt()
def join_another_namespace(world: World) -> bool:
    return call(number(308, 268), os.open("/proc/1/ns/mnt", os.O_RDONLY), 0) == 0


@attempt()
def change_the_root(world: World) -> bool:
    os.chroot(".")
    return True


@attempt()
def pivot_the_root(world: World) -> bool:
    return call(number(155, 41), b".", b".") == 0


@attempt(free=True)
def use_the_key_rings(world: World) -> bool:
    return call(number(248, 217), b"user", b"nacre-test", b"x", 1, -2) > 0


@attempt(free=True)
def read_the_session_key_ring(world: World) -> bool:
    return call(number(250, 219), 0, -3, 1) != 0


@attempt(free=True)
def set_up_a_ring_of_calls(world: World) -> bool:
    return call(425, 4, ctypes.create_string_buffer(256)) > 0


@attempt()
def load_a_program_into_the_kernel(world: World) -> bool:
    return call(number(321, 280), 0, struct.pack("=IIII112x", 2, 4, 4, 1), 128) > 0


@attempt()
def watch_the_machine(world: World) -> bool:
    return call(number(298, 241), struct.pack("=IIQ104x", 1, 120, 0), 0, -1, -1, 0) > 0


@attempt()
def load_a_module(world: World) -> bool:
    return call(number(175, 105), b"", 0, b"") == 0


@attempt()
def rename_the_machine(world: World) -> bool:
    socket.sethostname("nacre")
    return True


@attempt()
def set_the_clock(world: World) -> bool:
    return call(number(164, 170), None, None) == 0  # to no time at all, so that nothing is harmed


@attempt()
def change_the_kernel_by_proc(world: World) -> bool:
    return os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY) > 0


@attempt()
def pull_the_emergency_brake(world: World) -> bool:
    return os.open("/proc/sysrq-trigger", os.O_WRONLY) > 0


@attempt()
def leave_the_control_group(world: World) -> bool:
    return any(list(Path(place).iterdir()) for place in ("/sys/fs/cgroup", "/sys/kernel"))


@attempt(fatal=True)
def call_the_kernel_by_its_other_door(world: World) -> bool:
    if os.uname().machine != "x86_64":
        raise OSError("there is no such door")
    return bool(libc.syscall(ctypes.c_long(0x40000000 | 39)) > 0)


# ---- using things up


@attempt(free=True)
def use_up_the_memory(world: World) -> bool:
    try:
        return len(mmap.mmap(-1, 2 << 30)) > 0
    except (MemoryError, OSError):
        return False


@attempt(free=True)
def use_up_the_disk(world: World) -> bool:
    with Path("large").open("wb") as file:
        file.truncate(64 << 20)
    Path("large").unlink()
    return True


@attempt()
def raise_a_limit(world: World) -> bool:
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return True


@attempt()
def dump_core(world: World) -> bool:
    child = os.fork()
    if child == 0:
        os.abort()
    return os.WCOREDUMP(os.waitpid(child, 0)[1])


@attempt(free=True, alone=True)
def start_too_many_processes(world: World) -> bool:
    begin, end = os.pipe()
    for _ in range(450):
        if os.fork() == 0:
            os.close(end)
            os.read(begin, 1)  # until everyone else is gone
            os._exit(0)
    return True


@attempt(alone=True)
def stay_behind(world: World) -> bool:
    """Leave a process in a session of its own that holds a lock; the test looks whether it is still held."""
    begin, end = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            file = Path("lock").open("w")  # noqa: SIM115 - held until death
            fcntl.flock(file, fcntl.LOCK_EX)
            os.write(end, b"x")
            for descriptor in (0, 1, 2):
                os.close(descriptor)
            signal.pause()
        os._exit(0)
    os.read(begin, 1)
    return False


def main() -> None:
    """Run each attempt in a child of its own, and print a line for each."""
    world = json.loads(sys.argv[2])
    for name in sys.argv[1].split(","):
        child = os.fork()
        if child == 0:
            say(f"{name}: {outcome(name, world)}")
            os._exit(0)
        died = os.WTERMSIG(os.waitpid(child, 0)[1])
        if died:
            say(f"{name}: died of {died}")


def outcome(name: str, world: World) -> str:
    try:
        return "ESCAPED" if ATTEMPTS[name](world) else "held"
    except (OSError, ValueError) as error:
        return f"held: {error}"
    except Exception as error:  # noqa: BLE001 - an attempt that is broken proves nothing, and must be seen
        return f"broken: {error!r}"


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    main()
