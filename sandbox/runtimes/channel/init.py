"""Pid 1 of an agent's sandbox: runs commands and moves files for the host, and answers to nobody inside.

This module and those that `starter.py` names are joined into one program, which runs inside with `-I -S` on the sandbox's Python,
3.9 or later; json, struct, subprocess and signal would double its start. The host's end is `channel.py`.

Pid 1 ignores every signal from inside that it has no handler for, SIGKILL and SIGSTOP included. It makes itself undumpable, so
that no process of the same user can open its memory or its descriptors, and its descriptors are close-on-exec.
"""

import _signal  # type: ignore[import-not-found]
import errno
import os
import select
import time

from sandbox.runtimes.channel.init_files import Writes, pieces
from sandbox.runtimes.channel.init_outbox import Outbox
from sandbox.runtimes.channel.init_system import (
    MARKER,
    Command,
    drop,
    facts,
    kill_tree,
    libc_call,
    lives,
    prefer_as_victim,
    read_some,
    remove_shared,
    signal_quietly,
    spawn,
)
from sandbox.runtimes.channel.wire import (
    CHUNK,
    CHUNK_BYTES,
    COMMIT,
    CREDIT,
    DATA,
    DONE,
    ERR,
    EXIT,
    FACTS,
    FAIL,
    HEADER,
    HELLO,
    KILL,
    MAX_FRAME,
    NO_MORE,
    OUT,
    PING,
    QUIESCE,
    READ,
    RENEW,
    RUN,
    STDIN,
    STDIN_END,
    TIMED_OUT,
    TRUNCATED,
    WRITE,
    pack,
    unpack,
)

HIGH_WATER = 1 << 20  # bytes waiting for the host; above it no pipe of a command is read
MAX_COMMANDS = 128
MAX_ORPHANS = 64  # pipes held open by processes that outlived their command
VICTIMS_S = 3.0
CHANNEL_FD = 60  # the next one is its other direction
LONGEST_WAIT_S = 3600.0


class Init:
    """The loop. One epoll for the channel and signals; a nested one for commands' pipes, left alone while the host is slow."""

    def __init__(self, channel: int, answers: int) -> None:
        self.channel, self.inbox = channel, bytearray()
        self.out = Outbox(answers)
        self.commands: dict[int, Command] = {}  # by number
        self.by_pid: dict[int, Command] = {}
        self.ended: list[Command] = []  # reaped, not told yet
        self.owner: dict[int, Command] = {}  # by pipe
        self.orphans: list[int] = []  # read and dropped, so that what a command left behind does not die of SIGPIPE
        self.writes = Writes()
        self.pipes, self.main = select.epoll(), select.epoll()
        self.wake, wake_end = os.pipe()
        for fd in (self.wake, wake_end, channel, answers):
            os.set_blocking(fd, False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # Python's own handler would let anyone inside interrupt pid 1
        _signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        for fd in (channel, self.wake, self.pipes.fileno()):
            self.main.register(fd, select.EPOLLIN)
        self.main.register(answers, 0)
        self.listening, self.writing = True, False

    def loop(self) -> None:
        self.out.send(HELLO, 0, read_some("/proc/self/status"))
        libc_call("prctl", 4, 0, 0, 0, 0)  # PR_SET_DUMPABLE; before the first command, while the host looks at this process
        while True:
            for fd, events in self.main.poll(self.patience()):
                if fd == self.channel:
                    self.receive()
                elif fd == self.out.fd:
                    if not events & select.EPOLLOUT:
                        os._exit(0)  # the host has gone
                    self.out.flush()
                elif fd == self.wake:
                    drop(self.wake)
                    self.reap()
                else:
                    for pipe, _ in self.pipes.poll(0):
                        self.serve_pipe(pipe)
            self.expire()
            self.settle()
            self.balance()

    def patience(self) -> "float | None":
        if self.ended:
            return 0.002
        deadlines = [c.deadline for c in self.by_pid.values() if not c.flags & TIMED_OUT]
        return max(0.0, min(LONGEST_WAIT_S, min(deadlines) - time.monotonic())) if deadlines else None

    def balance(self) -> None:
        """Leave commands' pipes alone while the host lags; wait for room to write only when there is something to write."""
        listen = len(self.out.waiting) < HIGH_WATER
        if listen and not self.listening:
            self.main.register(self.pipes.fileno(), select.EPOLLIN)
        elif self.listening and not listen:
            self.main.unregister(self.pipes.fileno())
        self.listening = listen
        if bool(self.out.waiting) != self.writing:
            self.writing = bool(self.out.waiting)
            self.main.modify(self.out.fd, select.EPOLLOUT if self.writing else 0)

    def receive(self) -> None:
        try:
            data = os.read(self.channel, CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            os._exit(0)
        self.inbox += data
        while len(self.inbox) >= HEADER:
            size = int.from_bytes(self.inbox[:4], "big")
            if size > MAX_FRAME:
                os._exit(70)
            if len(self.inbox) < HEADER + size:
                return
            kind, number = self.inbox[4], int.from_bytes(self.inbox[5:HEADER], "big")
            payload = bytes(self.inbox[HEADER : HEADER + size])
            del self.inbox[: HEADER + size]
            try:
                self.handle(kind, number, payload)
            except OSError as error:
                self.writes.abort(number)
                self.fail(number, error.errno or errno.EIO)

    def handle(self, kind: int, number: int, payload: bytes) -> None:
        if kind == RUN:
            self.run(number, unpack(payload))
        elif kind in (STDIN, STDIN_END):
            self.feed(number, payload, kind == STDIN_END)
        elif kind == KILL:
            self.cancel(number)
        elif kind == READ:
            path, limit = unpack(payload)
            self.read_file(number, path, int(limit))
        elif kind == WRITE:
            path, mode = unpack(payload)
            self.writes.begin(number, path, int(mode))
        elif kind == DATA:
            self.writes.add(number, payload)
        elif kind == COMMIT:
            if self.writes.commit(number):
                self.out.send(DONE, number)
        elif kind == QUIESCE:
            self.quiesce(number)
        elif kind == RENEW:
            self.quiesce(number, renew=True)
        elif kind == PING:
            self.out.send(DONE, number)
        elif kind == FACTS:
            self.out.send(DONE, number, pack(facts()))
        else:
            os._exit(70)

    def fail(self, number: int, code: int) -> None:
        self.out.send(FAIL, number, code.to_bytes(4, "big"))

    def read_file(self, number: int, path: bytes, limit: int) -> None:
        for data in pieces(path, limit):
            self.out.send(CHUNK, number, data)
            if len(self.out.waiting) > HIGH_WATER:
                self.out.flush(wait=True)
        self.out.send(DONE, number)

    # commands

    def run(self, number: int, words: "list[bytes]") -> None:
        limit_ms, cap, has_stdin, count = (int(word) for word in words[:4])
        cwd, argv, env = words[4], words[5 : 5 + count], words[5 + count :]
        if len(self.commands) >= MAX_COMMANDS:
            return self.fail(number, errno.EUSERS)
        command = Command(number, cap, time.monotonic() + limit_ms / 1000)
        ours: list[int] = []
        theirs: list[int] = []
        try:
            for _ in range(3 if has_stdin else 2):
                pair = os.pipe()
                ours.append(pair[0])
                theirs.append(pair[1])
            if has_stdin:  # the third pipe runs the other way
                ours[2], theirs[2] = theirs[2], ours[2]
            command.pid = spawn(argv, cwd, [*env, MARKER + b"=%d" % number], theirs)
        except OSError as error:
            for fd in ours:
                os.close(fd)
            said = f"autoclave: cannot start {os.fsdecode(argv[0])}: {os.strerror(error.errno or 0)}\n"
            self.out.send(ERR, number, os.fsencode(said)[:cap])
            return self.send_exit(command, 127 if error.errno in (errno.ENOENT, errno.ENOTDIR) else 126)
        finally:
            for fd in theirs:
                os.close(fd)
        prefer_as_victim(command.pid)
        self.commands[number] = self.by_pid[command.pid] = command
        for fd in ours:
            os.set_blocking(fd, False)
            self.owner[fd] = command
        command.streams = {ours[0]: OUT, ours[1]: ERR}
        for fd in command.streams:
            self.pipes.register(fd, select.EPOLLIN)
        if has_stdin:
            command.stdin = ours[2]
            self.pipes.register(command.stdin, 0)
        return None

    def serve_pipe(self, fd: int) -> None:
        command = self.owner.get(fd)
        if command is not None and fd == command.stdin:
            self.push(command)
        elif command is not None:
            self.pull(command, fd)
        elif fd in self.orphans and not drop(fd, once=True):
            self.close_pipe(fd)

    def pull(self, command: Command, fd: int) -> bool:
        """Pass on one piece of output up to the cap, and drop the rest; return False when there is nothing more to read."""
        try:
            data = os.read(fd, 65536)
        except BlockingIOError:
            return False
        kind = command.streams[fd]
        if not data:
            del command.streams[fd]
            self.close_pipe(fd)
            return False
        room = command.cap - command.kept[kind]
        if len(data) > room:
            command.flags |= TRUNCATED
            data = data[:room]
        if data:
            command.kept[kind] += len(data)
            self.out.send(kind, command.number, data)
        return True

    def feed(self, number: int, payload: bytes, end: bool) -> None:
        command = self.commands.get(number)
        if command is not None and command.stdin >= 0:
            command.pending += payload
            command.stdin_ended = command.stdin_ended or end
            self.push(command)

    def push(self, command: Command) -> None:
        """Write waiting stdin; what the command took is given back to the host as credit."""
        try:
            while command.pending:
                taken = os.write(command.stdin, command.pending[:65536])
                del command.pending[:taken]
                self.out.send(CREDIT, command.number, taken.to_bytes(4, "big"))
        except BlockingIOError:
            self.pipes.modify(command.stdin, select.EPOLLOUT)
            return
        except OSError:  # the command closed it
            self.close_stdin(command)
            self.out.send(CREDIT, command.number, NO_MORE.to_bytes(4, "big"))
            return
        if command.stdin_ended:
            self.close_stdin(command)
        else:
            self.pipes.modify(command.stdin, 0)

    def close_stdin(self, command: Command) -> None:
        if command.stdin >= 0:
            self.close_pipe(command.stdin)
            command.stdin = -1
            command.pending.clear()

    def close_pipe(self, fd: int) -> None:
        self.owner.pop(fd, None)
        if fd in self.orphans:
            self.orphans.remove(fd)
        self.pipes.unregister(fd)
        os.close(fd)

    def reap(self) -> bool:
        """Take in every child that has ended, orphans too; return False when there is no child at all."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            command = self.by_pid.pop(pid, None)
            if command is not None:
                command.code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
                self.ended.append(command)

    def settle(self) -> None:
        """Finish the commands that have ended, those that were killed when every victim is gone."""
        for command in list(self.ended):
            command.victims = {pid for pid in command.victims if lives(pid)}
            if not command.victims or time.monotonic() > command.give_up:
                self.ended.remove(command)
                self.finish(command)

    def finish(self, command: Command) -> None:
        del self.commands[command.number]
        self.close_stdin(command)
        for fd in list(command.streams):
            for _ in range(20):  # more than a pipe holds; what a survivor writes later belongs to nobody
                if not self.pull(command, fd):
                    break
        for fd in command.streams:
            del self.owner[fd]
            self.orphans.append(fd)
        while len(self.orphans) > MAX_ORPHANS:
            self.close_pipe(self.orphans[0])
        self.send_exit(command, command.code)

    def send_exit(self, command: Command, code: int) -> None:
        taken = int((time.monotonic() - command.started) * 1e6)
        self.out.send(EXIT, command.number, code.to_bytes(4, "big") + bytes([command.flags]) + taken.to_bytes(8, "big"))

    def expire(self) -> None:
        now = time.monotonic()
        for command in [c for c in self.by_pid.values() if not c.flags & TIMED_OUT and c.deadline <= now]:
            command.flags |= TIMED_OUT
            self.kill(command)

    def kill(self, command: Command) -> None:
        command.give_up = time.monotonic() + VICTIMS_S
        command.victims |= kill_tree(command.pid, command.number, len(self.commands) == 1)

    def cancel(self, number: int) -> None:
        if number in self.commands:
            self.kill(self.commands[number])
        elif self.writes.abort(number):
            self.fail(number, errno.ECANCELED)

    def quiesce(self, number: int, renew: bool = False) -> None:
        while True:
            signal_quietly(-1, _signal.SIGKILL)
            if not self.reap():
                break
            time.sleep(0.0005)
        self.settle()
        for fd in list(self.orphans):
            self.close_pipe(fd)
        self.out.send(DONE, number, pack(remove_shared()) if renew else b"")


def main() -> None:
    """Take the channel away from descriptors 0 and 1, then serve it. It is one socket, or a pipe for each direction."""
    socket = os.fstat(0).st_mode & 0o170000 == 0o140000
    os.dup2(0, CHANNEL_FD, inheritable=False)
    os.dup2(0 if socket else 1, CHANNEL_FD + 1, inheritable=False)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)
    os.umask(0o022)
    os.chdir("/")
    Init(CHANNEL_FD, CHANNEL_FD + 1).loop()


if __name__ == "__main__":
    main()
