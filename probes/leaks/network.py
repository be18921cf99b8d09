"""The catalogue's part for the network of a sandbox or a container: sockets that outlive their command, and where names lead.

Interfaces, routes and packet filters are not here: nobody whom an environment lets in has the right to change them.
"""

from __future__ import annotations

from probes.leaks.catalogue import Catalogue
from probes.leaks.leak import Needs, ShellLeak
from sandbox.model import ResetMethod

EITHER = ("python3|perl",)
# Both take the socket, and only then leave it to a process of its own: when the command ends, it is there, or has failed.
_PYTHON = """import os, socket, time
{}
if os.fork(): os._exit(0)
os.setsid()
for n in (0, 1, 2): os.dup2(os.open("/dev/null", os.O_RDWR), n)
time.sleep(600)"""
_PERL = """use Socket qw(:all); use POSIX ();
{}
fork and exit;
POSIX::setsid(); open(STDIN, "<", "/dev/null"); open(STDOUT, ">", "/dev/null"); open(STDERR, ">", "/dev/null");
sleep 600;"""


def _held(python: str, perl: str) -> str:
    """Shell text that leaves a process behind which holds what either of them made."""
    programs = _PYTHON.format(python), _PERL.format(perl)
    assert not any("'" in text for text in programs)
    return f"if command -v python3 >/dev/null; then python3 -c '{programs[0]}'; else perl -e '{programs[1]}'; fi"


def _inet(kind: str, address: str, port: int, *, listens: bool) -> str:
    family = "AF_INET6" if ":" in address else "AF_INET"
    end = "sockaddr_in6" if ":" in address else "sockaddr_in"
    python = f's = socket.socket(socket.{family}, socket.SOCK_{kind}); s.bind(("{address}", {port}))'
    perl = f'socket(S, {family}, SOCK_{kind}, 0) or die "$!\\n"; '
    perl += f'bind(S, pack_{end}({port}, inet_pton({family}, "{address}"))) or die "$!\\n";'
    return _held(python + ("; s.listen()" if listens else ""), perl + (' listen(S, 5) or die "$!\\n";' if listens else ""))


def _unix(kind: str, name: str, *, listens: bool) -> str:
    python = f's = socket.socket(socket.AF_UNIX, socket.SOCK_{kind}); s.bind("{name}")'
    perl = f'socket(S, AF_UNIX, SOCK_{kind}, 0) or die "$!\\n"; bind(S, pack_sockaddr_un("{name}")) or die "$!\\n";'
    return _held(python + ("; s.listen()" if listens else ""), perl + (' listen(S, 5) or die "$!\\n";' if listens else ""))


INTERNET = (
    ShellLeak(
        name="tcp-listener",
        what="a server on a port",
        programs=EITHER,
        shows="socket/*/tcp listen 127.0.0.1:8765",
        shell=_inet("STREAM", "127.0.0.1", 8765, listens=True),
    ),
    ShellLeak(
        name="tcp-listener-everywhere",
        what="a server on a port of every address",
        programs=EITHER,
        shows="socket/*/tcp listen 0.0.0.0:8767",
        shell=_inet("STREAM", "0.0.0.0", 8767, listens=True),
    ),
    ShellLeak(
        name="tcp-listener-elsewhere",
        what="a server at another address of the loopback interface",
        programs=EITHER,
        shows="socket/*/tcp listen 127.0.0.53:8053",
        shell=_inet("STREAM", "127.0.0.53", 8053, listens=True),
    ),
    ShellLeak(
        name="tcp6-listener",
        what="a server on a port, over IPv6",
        programs=EITHER,
        shows="socket/*/tcp listen ?::1?:8765",
        shell=_inet("STREAM", "::1", 8765, listens=True),
    ),
    ShellLeak(
        name="taken-port",
        what="a port that is taken and serves nothing: no table of the kernel has it, the process that holds it is seen",
        programs=EITHER,
        shell=_inet("STREAM", "127.0.0.1", 8768, listens=False),
    ),
    ShellLeak(
        name="tcp-connection",
        what="a connection that stays open",
        programs=EITHER,
        shows="socket/*/tcp connected 127.0.0.1:*",
        shell=_held(
            's = socket.create_server(("127.0.0.1", 8769)); c = socket.create_connection(("127.0.0.1", 8769)); a = s.accept(); '
            "s.close()",
            "socket(S, AF_INET, SOCK_STREAM, 0); bind(S, pack_sockaddr_in(8769, INADDR_LOOPBACK)) or die; listen(S, 5); "
            "socket(C, AF_INET, SOCK_STREAM, 0); connect(C, pack_sockaddr_in(8769, INADDR_LOOPBACK)) or die; accept(A, S); "
            "close(S);",
        ),
    ),
    ShellLeak(
        name="udp-socket",
        what="a bound datagram socket",
        programs=EITHER,
        shows="socket/*/udp bound 127.0.0.1:8766",
        shell=_inet("DGRAM", "127.0.0.1", 8766, listens=False),
    ),
    ShellLeak(
        name="udp6-socket",
        what="a bound datagram socket, over IPv6",
        programs=EITHER,
        shows="socket/*/udp bound ?::1?:8766",
        shell=_inet("DGRAM", "::1", 8766, listens=False),
    ),
)
LOCAL = (
    ShellLeak(
        name="abstract-socket",
        what="a server on a socket without a file",
        programs=EITHER,
        shows="socket/*/unix listen @planted",
        shell=_unix("STREAM", "\\0planted", listens=True),
    ),
    ShellLeak(
        name="abstract-datagram-socket",
        what="a datagram socket without a file",
        programs=EITHER,
        shows="socket/*/unix bound @planted",
        shell=_unix("DGRAM", "\\0planted", listens=False),
    ),
    ShellLeak(
        name="abstract-packet-socket",
        what="a server of packets on a socket without a file",
        programs=EITHER,
        shows="socket/*/unix listen @planted",
        shell=_unix("SEQPACKET", "\\0planted", listens=True),
    ),
    ShellLeak(
        name="socket-in-tmp",
        what="a server on a socket among the temporary files",
        programs=EITHER,
        shows="socket/*/unix listen /tmp/planted.sock",
        shell=_unix("STREAM", "/tmp/planted.sock", listens=True),
    ),
    ShellLeak(
        name="nameless-pair",
        what="two connected sockets without a name",
        programs=EITHER,
        shows="socket/*/unix connected unnamed",
        shell=_held("a, b = socket.socketpair()", "socketpair(A, B, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die;"),
    ),
)
# Only a container of any image has files of its own there, and one that runs as root may write to them.
NAMES = (
    ShellLeak(
        name="hosts",
        what="a name that leads elsewhere",
        needs=Needs.ROOT,
        repaired_by=ResetMethod.RESTORE,
        shell="echo '127.0.0.1 planted.example' >> /etc/hosts",
    ),
    ShellLeak(
        name="resolver",
        what="another server that names are asked of",
        needs=Needs.ROOT,
        repaired_by=ResetMethod.RESTORE,
        shell="echo 'nameserver 127.0.0.53' >> /etc/resolv.conf",
    ),
    ShellLeak(
        name="hostname-file",
        what="another name in the file that keeps it",
        needs=Needs.ROOT,
        repaired_by=ResetMethod.RESTORE,
        shell="echo planted > /etc/hostname",
    ),
)
LEAKS: tuple[ShellLeak, ...] = (*INTERNET, *LOCAL, *NAMES)
CATALOGUE = Catalogue(kind="network", leaks=LEAKS)
