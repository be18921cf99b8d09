"""The catalogue's part for what runs: processes and sockets that outlive their command."""

from __future__ import annotations

from probes.leaks.leak import ShellLeak

PYTHON = "python3 -c"

LEAKS: tuple[ShellLeak, ...] = (
    ShellLeak(name="background-process", what="a process that goes on", shell="setsid sleep 600 >/dev/null 2>&1 </dev/null &"),
    ShellLeak(
        name="rewriter",
        what="a process that keeps writing a file",
        shell="setsid sh -c 'while :; do date > planted; sleep 1; done' >/dev/null 2>&1 </dev/null &",
    ),
    ShellLeak(
        name="deaf-process",
        what="a process that ignores SIGTERM",
        shell="setsid sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' >/dev/null 2>&1 </dev/null &",
    ),
    ShellLeak(
        name="tcp-listener",
        what="a server on a port",
        shell=f"setsid {PYTHON} 'import socket, time; s = socket.create_server((\"127.0.0.1\", 8765)); time.sleep(600)' "
        ">/dev/null 2>&1 </dev/null &",
    ),
    ShellLeak(
        name="abstract-socket",
        what="a server on a socket without a file",
        shell=f'setsid {PYTHON} \'import socket, time; s = socket.socket(socket.AF_UNIX); s.bind("\\0planted"); s.listen(); '
        "time.sleep(600)' >/dev/null 2>&1 </dev/null &",
    ),
    ShellLeak(
        name="udp-socket",
        what="a bound datagram socket",
        shell=f'setsid {PYTHON} \'import socket, time; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(("127.0.0.1", 8766)); '
        "time.sleep(600)' >/dev/null 2>&1 </dev/null &",
    ),
    ShellLeak(
        name="renamed-process",
        what="a process that calls itself by another name",
        shell="setsid bash -c 'exec -a autoclave-init sleep 600' >/dev/null 2>&1 </dev/null &",
    ),
)
