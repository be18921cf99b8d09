"""No default probe is idle: each sees a leak that no other sees, and without it the score of its environment drops."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from envs import LoadedEnvironment, define, load, skeleton
from envs.check import baseline
from envs.planting import Candidate, ProbeScore, candidates, survey
from envs.planting.candidates import own
from envs.trial import Trial
from probes.defaults import default_probes
from probes.kinds import load_kind
from probes.verifier import ProbeVerifier
from sandbox.pool.members import StartState
from sandbox.ports import Runtime
from sandbox.settings import Settings
from sandbox.wiring import machinery

pytestmark = [pytest.mark.namespaces, pytest.mark.slow, pytest.mark.timeout(600)]


class Without:
    """An environment whose default probes lack one."""

    def __init__(self, environment: LoadedEnvironment, name: str) -> None:
        spec = environment.spec
        kept = [p for p in (*default_probes(spec), *spec.probes) if p.name != name]
        assert len(kept) == len(default_probes(spec)) + len(spec.probes) - 1
        self._environment = environment
        self.verifier = ProbeVerifier([load_kind(p.kind)(p, spec) for p in kept], policy=spec.check, volatile=spec.volatile)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)


class World:
    """One environment, and what can be planted in it."""

    def __init__(self, environment: LoadedEnvironment, runtime: Runtime, start: StartState) -> None:
        self.environment, self._runtime, self._start = environment, runtime, start
        self.found: Mapping[str, Candidate] = {}

    async def score(self, *names: str, without: str = "") -> ProbeScore:
        environment: Any = Without(self.environment, without) if without else self.environment
        recorded = self._start.baseline
        start = replace(self._start, baseline=replace(recorded, readings=tuple(r for r in recorded.readings if r.probe != without)))
        async with Trial.open(environment, self._runtime, start) as trial:
            catalogue, _ = await candidates(self.environment, trial.instance)
            self.found = {c.name: c for c in (*own(self.environment.spec.destructive), *catalogue)}
            return await survey(trial, [self.found[name] for name in names], inapplicable={})


@asynccontextmanager
async def opened(environment: LoadedEnvironment, settings: Settings) -> AsyncIterator[World]:
    async with machinery(settings) as (runtime, ledger):
        yield World(environment, runtime, await baseline(environment, runtime, ledger))


async def judge(world: World, sole: Mapping[str, str]) -> None:
    """`sole` names for each probe a leak that it alone must see."""
    names = {p.name for p in default_probes(world.environment.spec)}
    whole = await world.score(*sole.values())

    assert (whole.share, whole.false_alarms) == (1.0, ()), whole.as_json()
    assert {name: whole.alone(name) for name in sole} == {name: (leak,) for name, leak in sole.items()}
    assert names - set(sole) <= {"workspace"}  # where a resource lies there, its probe reads that instead
    for name, leak in sole.items():
        less = await world.score(leak, without=name)
        assert less.missed == (leak,), (name, less.as_json())
        assert less.share < whole.share


@pytest.mark.parametrize(
    ("kind", "sole"),
    [
        ("repo", {"code": "code/stash", "home": "home/shell-profile", "instance": "network/tcp-listener"}),
        ("files", {"data": "data/fifo", "home": "home/cached-secret", "instance": "process/background-process"}),
        pytest.param(
            "postgres",
            {
                "db": "db/large-object",
                "home": "home/git-configuration",
                "workspace": "workspace/link",
                "instance": "network/udp-socket",
            },
            marks=pytest.mark.postgres,
        ),
    ],
)
async def test_without_any_one_of_its_default_probes_the_score_of_an_environment_drops(
    kind: str, sole: Mapping[str, str], tmp_path: Path, settings: Settings, nothing_left: None
) -> None:
    skeleton.write("desk", kind=kind, directory=tmp_path / "desk")
    async with opened(load(tmp_path / "desk"), settings) as desk:
        await judge(desk, sole)


SERVER = """
import http.server, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        open("/srv/notes/note", "ab").write(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()
    def address_string(self): return "client"
    def log_message(self, *words): pass
class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer): daemon_threads = True
Server(sys.argv[1], Handler).serve_forever()
"""
POST = (
    "import socket; s = socket.socket(socket.AF_UNIX); s.connect('/run/notes/service.sock'); "
    "s.sendall(b'POST / HTTP/1.0\\r\\nContent-Length: 4\\r\\n\\r\\nnote'); assert b'204' in s.recv(100)"
)


async def test_what_a_service_keeps_is_seen_by_its_own_probe_alone(
    passable_dir: Path, settings: Settings, nothing_left: None
) -> None:
    """No catalogue knows what a service writes down when it is asked to: its author's own actions do."""
    (passable_dir / "app").mkdir()
    (passable_dir / "app" / "server.py").write_text(SERVER)
    service = {"kind": "service", "argv": ["/usr/bin/python3", "-I", "/app/server.py", "{socket}"], "app": "app"}
    environment = define(
        {
            "name": "notes",
            "version": "1",
            "resources": {"notes": {**service, "state": "/srv/notes"}},
            "destructive": [{"name": "note", "argv": ["/usr/bin/python3", "-c", POST], "seen": "quick"}],
        },
        passable_dir,
    )
    async with opened(environment, settings) as world:
        sole = {"notes": "note", "home": "home/link", "workspace": "workspace/fifo", "instance": "network/nameless-pair"}
        await judge(world, sole)
