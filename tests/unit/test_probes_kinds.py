"""Kinds are found by name, options are strict, and the smaller kinds read what they say."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from probes import create_verifier, default_probes, examine, kinds
from probes.http import HttpOptions, get
from probes.kinds import load_kind, source_digest
from probes.probe import Findings, Probe, ProbeContext
from probes.process import listener_fields, process_fields
from probes.sql import rows_text
from sandbox.errors import EnvironmentInvalid
from sandbox.model import (
    Baseline,
    Depth,
    EnvironmentSpec,
    ExecResult,
    IdentityProof,
    NamespaceId,
    ProbeSpec,
    ProcessInfo,
    Reading,
    ResourceSpec,
    Role,
)
from sandbox.ports import Listener, Mount, Tree

SPEC = EnvironmentSpec(
    name="e",
    version="1",
    digest="d",
    source="e/environment.toml",
    resources=(
        ResourceSpec(name="db", kind="postgres"),
        ResourceSpec(name="code", kind="repo"),
        ResourceSpec(name="web", kind="service"),
    ),
)


@dataclass
class Running:
    """A subject of which only what runs can be read."""

    process_list: list[ProcessInfo] = field(default_factory=list)
    results: list[ExecResult] = field(default_factory=list)
    asked: list[tuple[str, ...]] = field(default_factory=list)
    address: str = ""
    in_place: bool = False
    proof: IdentityProof | None = None
    environment: EnvironmentSpec = SPEC
    in_force: Mapping[str, Any] = field(default_factory=dict)

    @property
    def namespace(self) -> NamespaceId:
        return NamespaceId("n")

    def tree(self, resource: str, state: str | None = None) -> Tree:
        raise NotImplementedError

    def endpoint(self, resource: str) -> str:
        return self.address

    async def processes(self) -> Sequence[ProcessInfo]:
        return self.process_list

    async def listeners(self) -> Sequence[Listener]:
        return []

    async def mounts(self, role: Role) -> Sequence[str]:
        return ["/ overlay ro", "/tmp tmpfs rw"]

    async def trusted_run(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, binds: Sequence[Mount] = (), limit_s: float = 60.0
    ) -> ExecResult:
        self.asked.append(tuple(argv))
        return self.results.pop(0)


def made(kind: str, **options: Any) -> Probe:
    resource = {"http": "web", "sql": "db", "postgres": "db"}.get(kind)
    return load_kind(kind)(ProbeSpec(name="p", kind=kind, resource=resource, options=options), SPEC)


def process(role: Role, *argv: str, resource: str | None = None) -> ProcessInfo:
    return ProcessInfo(pid=7, parent=1, role=role, argv=argv, resource=resource)


def test_every_resource_has_a_probe_without_the_author_writing_one() -> None:
    found = [(p.name, p.kind, p.resource) for p in default_probes(SPEC)]

    assert found == [
        ("db", "postgres", "db"),
        ("code", "repo", "code"),
        ("web", "files", "web"),
        ("instance", "process", None),
        ("home", "files", None),
        ("workspace", "files", None),
    ]
    assert len(create_verifier(SPEC).probes) == 6


def test_an_authors_probe_takes_the_place_of_the_default_one_and_others_come_beside_it() -> None:
    import dataclasses

    mine = (
        ProbeSpec(name="mine", kind="repo", resource="code", options={"exclude": ["*.log"]}),
        ProbeSpec(name="db", kind="sql", resource="db", options={"query": "select 1"}),
    )
    names = [p.name for p in create_verifier(dataclasses.replace(SPEC, probes=mine)).probes]

    assert sorted(names) == ["db", "db (default)", "home", "instance", "mine", "web", "workspace"]


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (ProbeSpec(name="p", kind="postgress", resource="db"), "did you mean postgres"),
        (ProbeSpec(name="p", kind="files", resource="nowhere"), 'no resource "nowhere"'),
        (ProbeSpec(name="p", kind="files"), "names no resource"),
        (ProbeSpec(name="p", kind="files", resource="web", options={"exclud": []}), "did you mean exclude"),
        (ProbeSpec(name="p", kind="sql", resource="db"), "write `query` or `queries`"),
        (ProbeSpec(name="p", kind="command", options={"argv": [], "fields": "other"}), "fields"),
    ],
)
def test_what_is_wrong_is_named_with_what_to_write_instead(spec: ProbeSpec, word: str) -> None:
    with pytest.raises(EnvironmentInvalid) as caught:
        load_kind(spec.kind)(spec, SPEC)

    assert word in str(caught.value)


def test_options_change_a_probes_digest() -> None:
    assert made("command", argv=["a"]).digest == made("command", argv=["a"]).digest
    assert made("command", argv=["a"]).digest != made("command", argv=["b"]).digest


def test_processes_are_counted_by_what_they_are() -> None:
    fields = process_fields(
        [
            process(Role.AGENT, "autoclave-init"),
            process(Role.AGENT, "sleep", "600"),
            process(Role.AGENT, "sleep", "600"),
            process(Role.SERVER, "postgres: checkpointer ", resource="db"),
            process(Role.SERVER, "postgres: io worker 0", resource="db"),
            ProcessInfo(pid=2, parent=1, role=Role.SERVER, argv=("/opt/bin/postgres", "-D", "/srv"), resource="db"),
            ProcessInfo(pid=9, parent=2, role=Role.SERVER, argv=("postgres: agent shop [local] idle",), resource="db"),
        ]
    )

    assert fields == {
        "process/agent/autoclave-init": "1",
        "process/agent/sleep 600": "2",
        "process/server db/postgres: checkpointer ": "1",
        "process/server db/postgres: io worker 0": "1",
        "process/server db//opt/bin/postgres -D /srv": "1",
        "processes/agent": "3",
        "processes/server": "3",
    }


def test_an_agents_process_cannot_pass_as_a_database_session() -> None:
    assert "process/agent/postgres: agent shop [local] idle" in process_fields(
        [process(Role.AGENT, "postgres: agent shop [local] idle")]
    )


def test_sockets_are_fields() -> None:
    sockets = [
        Listener(role=Role.AGENT, resource=None, kind="tcp", state="listen", address="127.0.0.1:80"),
        Listener(role=Role.AGENT, resource=None, kind="udp", state="bound", address="0.0.0.0:5"),
    ]

    assert listener_fields(sockets, connected=True)["sockets"] == "2"
    assert listener_fields(sockets, connected=False) == {"socket/agent/tcp listen 127.0.0.1:80": "1", "sockets": "1"}


async def test_a_process_that_is_just_going_is_given_a_moment_and_one_that_stays_is_seen() -> None:
    subject = Running([process(Role.AGENT, "init")])
    probe = made("process")
    baseline = (await probe.read(ProbeContext(subject=subject))).fields
    going = [process(Role.AGENT, "init"), process(Role.AGENT, "sleep")]
    subject.process_list = going
    reading = probe.read(ProbeContext(subject=subject, baseline=baseline, limit_s=0.2))

    assert (await reading).fields["processes/agent"] == "2"
    assert baseline["mounts/agent"] == "/ overlay ro\n/tmp tmpfs rw"


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("text", {"output": "b=2\na=1\na=1\n", "exit code": "0"}),
        ("lines", {"line/a=1": "2", "line/b=2": "1", "lines": "3", "exit code": "0"}),
        ("pairs", {"value/a": "1\n1", "value/b": "2", "lines": "3", "exit code": "0"}),
    ],
)
async def test_a_commands_output_becomes_fields(how: str, expected: dict[str, str]) -> None:
    subject = Running(results=[ExecResult(exit_code=0, stdout=b"b=2\na=1\na=1\n", stderr=b"")])

    found = await made("command", argv=["list"], fields=how).read(ProbeContext(subject=subject))

    assert found == Findings(fields=expected)
    assert subject.asked == [("list",)]


@pytest.mark.parametrize(
    "result",
    [
        ExecResult(exit_code=3, stdout=b"x", stderr=b"no"),
        ExecResult(exit_code=0, stdout=b"x", stderr=b"", truncated=True),
        ExecResult(exit_code=0, stdout=b"x", stderr=b"", timed_out=True),
    ],
)
async def test_a_command_that_did_not_end_well_proves_nothing(result: ExecResult) -> None:
    found = await made("command", argv=["list"]).read(ProbeContext(subject=Running(results=[result])))

    assert found.fields == {}
    assert len(found.problems) == 1


def test_rows_are_shown_while_few_and_hashed_when_many() -> None:
    many: list[tuple[str, ...]] = [(str(n), "x" * 50) for n in range(100)]

    assert rows_text([("b",), ("a",)], ordered=False) == "a\nb"
    assert rows_text([("b",), ("a",)], ordered=True) == "b\na"
    assert rows_text(many, ordered=False) == rows_text(many[::-1], ordered=False)
    assert rows_text(many, ordered=True) != rows_text(many[::-1], ordered=True)


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"hello " + self.path.encode()
        self.send_response(404 if "missing" in self.path else 200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "test"

    def log_message(self, format: str, *args: Any) -> None:
        pass


class UnixServer(HTTPServer):
    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(str(self.server_address))
        self.server_name, self.server_port = "localhost", 0

    def get_request(self) -> tuple[Any, Any]:
        request, _ = self.socket.accept()
        return request, ("test", 0)


@contextlib.contextmanager
def served(server: HTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_service_is_read_over_a_unix_socket_and_the_loopback(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with served(UnixServer(str(path), Page)):  # type: ignore[arg-type]
        for endpoint in (str(path), f"unix:{path}", "http+unix://" + str(path).replace("/", "%2F")):
            assert get(endpoint, "/missing", HttpOptions(), 5) == {
                "GET /missing/status": "404",
                "GET /missing/body": "hello /missing",
                "GET /missing/content-type": "text/plain",
            }
    loopback = HTTPServer(("127.0.0.1", 0), Page)
    with served(loopback):
        found = get(f"http://127.0.0.1:{loopback.server_port}/base", "/x", HttpOptions(), 5)
    assert found["GET /x/body"] == "hello /base/x"
    with pytest.raises(ValueError, match="cannot read the endpoint"):
        get("https://example.org", "/", HttpOptions(), 5)


@pytest.mark.parametrize("head", [b"", b"HTTP/1.0 200 OK\r\n\r\n"], ids=["headers", "body"])
def test_a_server_that_sends_a_byte_now_and_then_gains_no_time(tmp_path: Path, head: bytes) -> None:
    path = tmp_path / "s"
    over = threading.Event()

    def drip() -> None:
        with contextlib.suppress(OSError), listening.accept()[0] as line:
            line.sendall(head)
            while not over.wait(0.02):
                line.sendall(b"x")

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(TimeoutError, match=r"GET /: no whole answer within 0\.3 s"):
                get(str(path), "/", HttpOptions(), 0.3)
        finally:
            over.set()
            thread.join()


def test_a_baseline_that_an_agent_could_exploit_is_pointed_out() -> None:
    clean = {"git history/commits": "1", "git history/unreached objects": "0", "git ref/refs/heads/main": "a"}
    bad = {"git history/commits": "9", "git history/unreached objects": "4, x", "git ref/refs/remotes/origin/fix": "b"}

    def baseline(fields: dict[str, str]) -> Baseline:
        return Baseline(key="k", digest="d", readings=(Reading(probe="code", depth=Depth.DEEP, fields=fields),), instances=2)

    assert examine(baseline(clean)) == ()
    assert [line.split(":")[0] for line in examine(baseline(bad))] == ["code"] * 3


def test_every_leak_has_a_name_of_its_own_and_says_why_where_no_probe_sees_it() -> None:
    from probes.leaks import files, postgres, process, repo

    for part in (files.LEAKS, postgres.LEAKS, process.LEAKS, repo.LEAKS):
        assert len({leak.name for leak in part}) == len(part)
        assert all(leak.what and (leak.seen is not None or leak.blind) for leak in part)


def test_a_kind_whose_code_changed_has_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "someones_probes"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "deeper.py").write_text("A = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = source_digest("someones_probes")
    assert before
    assert before != source_digest("probes")
    (package / "deeper.py").write_text("A = 2\n")
    source_digest.cache_clear()
    assert source_digest("someones_probes") != before


def test_the_digest_of_our_own_kinds_covers_our_source(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ProbeSpec(name="p", kind="files", resource="code")
    before = load_kind("files")(spec, SPEC).digest
    monkeypatch.setattr(kinds, "source_digest", lambda package: f"changed {package}")
    assert load_kind("files")(spec, SPEC).digest != before


def test_a_function_probes_digest_is_the_same_in_every_process() -> None:
    code = (
        "from probes import probe\n"
        "@probe('p')\n"
        "async def read(context):\n"
        "    return {} if 'x' in {'alpha', 'beta', 'gamma', 'delta', 'epsilon'} else {'a': 'b'}\n"
        "print(read.digest)\n"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True, timeout=30
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1


def test_a_process_that_only_calls_itself_a_database_session_is_seen() -> None:
    def process(pid: int, parent: int, *argv: str) -> ProcessInfo:
        return ProcessInfo(pid=pid, parent=parent, role=Role.SERVER, argv=argv, resource="db")

    server = process(2, 1, "/usr/lib/postgresql/18/bin/postgres", "-D", "/srv/postgres")
    session = process(30, 2, "postgres: agent shop [local] idle")
    assert process_fields([server, session]) == process_fields([server])
    for parent in (1, 30):  # an orphan, and a child of a session
        disguised = process(31, parent, "postgres: agent shop [local] idle")
        assert process_fields([server, session, disguised]) != process_fields([server])
