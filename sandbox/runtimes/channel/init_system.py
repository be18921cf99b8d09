"""What the init asks of the kernel: starting commands, finding their descendants, reading /proc.

Part of the program that runs inside (see `init.py`): Python 3.9, standard library only, few imports.
"""

import _signal  # type: ignore[import-not-found]
import errno
import os
import time

from sandbox.runtimes.channel.wire import ERR, OUT

MARKER = b"AUTOCLAVE_COMMAND"
_DEFAULTS = [_signal.SIGPIPE, _signal.SIGXFSZ, _signal.SIGINT, _signal.SIGCHLD]  # Python ignores some, and ignoring is inherited


class Command:
    """A running command: its process group, pipes and bounds."""

    def __init__(self, number: int, cap: int, deadline: float) -> None:
        self.number, self.cap, self.deadline = number, cap, deadline
        self.started = time.monotonic()
        self.pid = 0
        self.streams: dict[int, int] = {}  # descriptor: OUT or ERR
        self.kept = {OUT: 0, ERR: 0}
        self.flags = 0
        self.stdin = -1
        self.pending = bytearray()
        self.stdin_ended = False
        self.victims: set[int] = set()  # killed with it; its end is told when they are gone
        self.give_up = 0.0
        self.code = 0


def spawn(argv: "list[bytes]", cwd: bytes, env: "list[bytes]", pipes: "list[int]") -> int:
    """Start a command in a session of its own, with `pipes` as stdout, stderr and, where there are three, stdin; return its pid."""
    table: dict[bytes, bytes] = {}
    for pair in env:
        name, _, value = pair.partition(b"=")
        table[name] = value
    program = _find_program(argv[0], table.get(b"PATH", b"/usr/local/bin:/usr/bin:/bin"), cwd)
    actions = [(os.POSIX_SPAWN_DUP2, pipes[0], 1), (os.POSIX_SPAWN_DUP2, pipes[1], 2)]
    if len(pipes) == 3:
        actions.append((os.POSIX_SPAWN_DUP2, pipes[2], 0))
    os.chdir(cwd)  # this process has one thread and no use for a directory of its own
    try:
        return os.posix_spawn(program, argv, table, file_actions=actions, setsid=True, setsigdef=_DEFAULTS)
    finally:
        os.chdir("/")


def _find_program(name: bytes, path: bytes, cwd: bytes) -> bytes:
    if b"/" in name:
        return name
    for folder in path.split(b":"):
        candidate = os.path.join(cwd, folder, name)
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):
            return candidate
    raise FileNotFoundError(errno.ENOENT, "not found")


def descendants(root: int, number: int) -> "set[int]":
    """Every live process that descends from `root`, shares its group or session, or carries the marker of command `number`."""
    table: dict[int, tuple[int, int, int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and name != "1":
            stat = read_some("/proc/" + name + "/stat")
            fields = stat[stat.rfind(b")") + 2 :].split()
            if len(fields) > 3 and fields[0] != b"Z":
                table[int(name)] = (int(fields[1]), int(fields[2]), int(fields[3]))
    found = {pid for pid, (_, group, session) in table.items() if root in (pid, group, session)}
    marker = b"%s=%d" % (MARKER, number)
    for pid in table.keys() - found:
        if marker in read_some(f"/proc/{pid}/environ", 1 << 20).split(b"\0"):
            found.add(pid)
    grown = True
    while grown:
        more = {pid for pid, (parent, _, _) in table.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found


def kill_tree(root: int, number: int, alone: bool) -> set[int]:
    """Kill a command with every descendant, and return them. They are stopped before they are looked for, so that a process that
    forks faster than we read cannot win; when this is the only command, or they still multiply, everything is stopped for that
    moment."""
    signal_quietly(-root, _signal.SIGSTOP)
    known, frozen = {root}, False
    for _ in range(0 if alone else 3):
        found = descendants(root, number) - known
        for pid in found:
            signal_quietly(pid, _signal.SIGSTOP)
        known |= found
        if not found:
            break
    else:
        frozen = True
        signal_quietly(-1, _signal.SIGSTOP)
        known |= descendants(root, number)
    signal_quietly(-root, _signal.SIGKILL)
    for pid in known:
        signal_quietly(pid, _signal.SIGKILL)
    if frozen:
        signal_quietly(-1, _signal.SIGCONT)
    return known


def lives(pid: int) -> bool:
    """True until a process is gone or a zombie."""
    stat = read_some(f"/proc/{pid}/stat")
    return bool(stat) and stat[stat.rfind(b")") + 2 : stat.rfind(b")") + 3] not in (b"Z", b"X")


def signal_quietly(pid: int, number: int) -> None:
    """Signal a process or group that may be gone."""
    try:  # noqa: SIM105 - contextlib would cost a third of this program's start
        os.kill(pid, number)
    except OSError:
        pass


def prefer_as_victim(pid: int) -> None:
    """Make a command a better victim than this process when memory runs out; its children inherit it."""
    try:
        fd = os.open(f"/proc/{pid}/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, b"500")
        finally:
            os.close(fd)
    except OSError:
        pass


def drop(fd: int, once: bool = False) -> bool:
    """Read and forget what waits (or one piece of it); return False at the end of the file."""
    try:
        while True:
            if not os.read(fd, 65536):
                return False
            if once:
                return True
    except BlockingIOError:
        return True
    except OSError:
        return False


def read_some(path: str, limit: int = 65536) -> bytes:
    """Return the start of a file, empty where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    data = b""
    try:
        while len(data) < limit:
            piece = os.read(fd, limit - len(data))
            if not piece:
                break
            data += piece
    except OSError:
        pass
    finally:
        os.close(fd)
    return data


def libc_call(name: str, *arguments: object) -> "int | None":
    """Call a C function without the ctypes package, which takes 5 ms to import; None where this Python cannot."""
    try:
        import _ctypes

        library = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
        return int(_ctypes.call_function(_ctypes.dlsym(library, name), arguments))
    except Exception:  # noqa: BLE001 - private names of another Python version; the host is told that it is not known
        return None


def remove_shared() -> "list[bytes]":
    """Remove what outlives processes in this IPC namespace: shared memory, semaphores, message queues; return what could not be.
    For a first process that serves on while the state under it is replaced."""
    left: list[bytes] = []
    calls = ((b"shm", "shmctl"), (b"sem", "semctl"), (b"msg", "msgctl"))
    for kind, function in calls:
        for line in read_some("/proc/sysvipc/" + os.fsdecode(kind), 1 << 20).splitlines()[1:]:
            libc_call(function, int(line.split()[1]), 0, 0)  # IPC_RMID is 0, and so is the number of a semaphore
        left += [kind + b" " + line for line in read_some("/proc/sysvipc/" + os.fsdecode(kind)).splitlines()[1:]]
    try:
        for name in os.listdir("/dev/mqueue"):
            os.unlink("/dev/mqueue/" + name)
    except FileNotFoundError:
        pass  # none is mounted, and so none can be reached
    except OSError as error:
        left.append(b"mqueue " + os.strerror(error.errno or 0).encode())
    return left


def facts() -> "list[bytes]":
    """What holds inside, for the host's one-time check; the last lines try what must fail."""
    found = [b"status=" + read_some("/proc/self/status"), b"net=" + read_some("/proc/self/net/dev")]
    found.append(b"processes=%d" % len([name for name in os.listdir("/proc") if name.isdigit()]))
    attempts = (("unshare", (0x10000000,)), ("mount", (b"none", b"/tmp", b"tmpfs", 0, 0)), ("chroot", (b"/tmp",)), ("setuid", (0,)))
    for name, arguments in attempts:
        result = libc_call(name, *arguments)
        found.append(b"tried %s=%s" % (name.encode(), b"unknown" if result is None else b"%d" % result))
    return found
