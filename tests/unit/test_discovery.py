"""What differs between readings that should be alike, and the patterns proposed for it."""

from __future__ import annotations

import os
import subprocess
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.discovery import known, servers
from envs.discovery.sources import Draft, draft, unguarded
from envs.discovery.text import Origin, described, proposed
from envs.discovery.unstable import Kind, Reading, covering, left_over, proposals, unstable
from envs.environment import load
from envs.toml_text import value
from probes.canonical import listing
from sandbox.cli import output
from sandbox.errors import EnvironmentInvalid
from sandbox.model import EnvironmentSpec, ExecResult, ProbeSpec, ProcessInfo, ResourceSpec, Role, VolatileField
from sandbox.resources.container import ContainerOptions
from sandbox.settings import Settings, Users


def readings(*each: dict[str, str], kinds: tuple[Kind, ...] = ()) -> list[Reading]:
    return [
        Reading(kind=kinds[n - 1] if n and n <= len(kinds) else Kind.FRESH, fields={"web": fields}) for n, fields in enumerate(each)
    ]


def test_a_field_that_differs_is_proposed_by_its_own_name_with_how_it_differed() -> None:
    seen = readings(
        {"file/started": "10:00", "file/a": "1"},
        {"file/started": "10:01", "file/a": "1"},
        {"file/started": "10:00", "file/a": "1"},
        kinds=(Kind.FRESH, Kind.LATER),
    )
    (one,) = proposals(seen)
    assert one.pattern == "web/file/started"
    assert one.reason == "differs between fresh instances (1 of 2 readings), for instance '10:00' and '10:01'"
    assert one.also == 0


def test_names_that_are_drawn_or_counted_get_a_star_where_they_vary() -> None:
    names = ("file/run/4f0c22aa.sock", "file/run/77ab0123.sock", "file/run/9e8d7c6b.sock")
    (one,) = proposals(readings(*({name: "socket", "file/run/keep.sock": "socket"} for name in names)))
    assert one.pattern == "web/file/run/*.sock"
    assert one.also == 1  # it takes a stable field along, and says so
    assert len(one.covers) == 3


def test_a_name_that_one_reading_alone_had_is_told() -> None:
    """No pattern can be made of it that covers the next one."""
    seen = readings(*({name: "1", "kept": text} for name, text in (("tmp.aQx", "1"), ("tmp.Zip", "2"), ("tmp.olK", "1"))))
    made = proposals(seen)

    assert {p.pattern: p.once for p in made} == {"web/tmp.aQx": True, "web/tmp.Zip": True, "web/tmp.olK": True, "web/kept": False}
    assert proposed([], made, seen="3 instances", left=[], builds=0).count("one reading alone had it") == 3
    assert not any(p.once for p in proposals(readings(*({f"tmp.{n}": "1"} for n in (111, 222, 333)))))


def test_entries_of_a_listing_that_a_pattern_takes_along_are_counted_too() -> None:
    drawn = ("run/4f0c22aa.sock", "run/77ab0123.sock")
    (one,) = proposals(readings(*({"files/": listing({name: "socket", "run/keep.sock": "socket", "a": "1"})} for name in drawn)))

    assert (one.pattern, one.also) == ("web/files/run/*.sock", 1)


def test_what_a_pattern_that_is_known_beforehand_takes_along_is_counted_and_told() -> None:
    seen = readings(*({"files/": listing({"base/1": text, "base/2": "1", "c": "1"})} for text in "12"))
    (one,) = covering(seen, [VolatileField(pattern="web/*/base*", reason="a server's")])

    assert (one.covers, one.also) == (("web/files/base/1",), 1)
    assert "and 1 that were not" in proposed([], [one], seen="2 instances", left=[], builds=0)


def test_what_is_special_in_a_pattern_is_taken_as_it_is() -> None:
    seen = readings({"file/a[1]*": "x", "file/a1z": "s"}, {"file/a[1]*": "y", "file/a1z": "s"})
    (one,) = proposals(seen)
    assert fnmatchcase("web/file/a[1]*", one.pattern)
    assert not fnmatchcase("web/file/a1z", one.pattern)


def test_nothing_differs_nothing_is_proposed() -> None:
    assert proposals(readings({"a": "1"}, {"a": "1"})) == []


TEXTS = st.text(alphabet="ab[*]?1-é /", min_size=1, max_size=6)


@given(st.lists(st.dictionaries(TEXTS, st.sampled_from(["1", "2"]), max_size=5), min_size=2, max_size=5))
def test_the_proposals_leave_nothing_that_was_seen_to_differ_and_are_valid_text(fields: list[dict[str, str]]) -> None:
    seen = readings(*fields)
    made = proposals(seen)
    assert left_over(seen, [p.volatile for p in made]) == []
    assert {name for p in made for name in p.covers} == {u.name for u in unstable(seen)}
    back = tomllib.loads(proposed([], made, seen="2 instances", left=[], builds=0)).get("volatile", [])
    assert [(v["pattern"], v["reason"]) for v in back] == [(p.pattern, p.reason) for p in made]


def test_the_text_is_printed_so_that_it_can_be_copied(capsys: pytest.CaptureFixture[str]) -> None:
    made = proposals(readings({"file/[bold]" + "x" * 300: "1"}, {"file/[bold]" + "x" * 300: ":smile:"}))
    text = proposed([(ProbeSpec(name="web", kind="process"), Origin.DEFAULT, 1)], made, seen="2 instances", left=[], builds=0)

    output.show_text(text)

    assert tomllib.loads(capsys.readouterr().out) == tomllib.loads(text)
    assert tomllib.loads(text).keys() == {"probes", "volatile"}


def test_what_is_known_to_be_volatile_is_not_left() -> None:
    seen = readings({"a": "1", "b": "1"}, {"a": "2", "b": "2"})
    assert [u.name for u in left_over(seen, [VolatileField(pattern="web/a", reason="a clock")])] == ["web/b"]


PLAIN = st.booleans() | st.integers() | st.text(max_size=5)
NESTED = st.recursive(
    PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=4), inner, max_size=3)
)


@given(NESTED)
def test_a_value_comes_back_from_its_text(given_value: object) -> None:
    assert tomllib.loads(f"v = {value(given_value)}")["v"] == given_value


def test_a_draft_is_written_with_what_it_needs_and_over_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / ".git").mkdir(parents=True)
    (source / "a.txt").write_text("a")
    made = Draft(
        resource="code",
        tables={"resources": {"code": {"kind": "repo", "seed": "seed"}}},
        remarks=("one\ntwo",),
        tree=(source, "seed"),
    )
    files = made.write("mine", tmp_path / "mine")
    assert [p.relative_to(tmp_path / "mine").as_posix() for p in files] == ["environment.toml", "seed/a.txt"]
    assert load(files[0]).spec.name == "mine"
    with pytest.raises(EnvironmentInvalid, match="is not empty"):
        made.write("mine", tmp_path / "mine")


def test_a_directory_is_not_copied_into_itself(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    made = Draft(resource="work", tables={"resources": {}}, tree=(tmp_path, "seed"))
    for into in (tmp_path / "desk", tmp_path / "sub" / ".." / "desk"):
        with pytest.raises(EnvironmentInvalid, match="--into"):
            made.write("desk", into)
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_what_cannot_be_copied_is_named(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    os.mkfifo(tmp_path / "source" / "pipe")
    made = Draft(resource="work", tables={"resources": {}}, tree=(tmp_path / "source", "seed"))
    with pytest.raises(EnvironmentInvalid, match=r"source/pipe: .*named pipe"):
        made.write("desk", tmp_path / "desk")


def test_a_value_that_begins_a_line_with_a_backslash_stays_in_the_dump() -> None:
    head = "--\n-- PostgreSQL database dump\n--\n\n"
    body = "INSERT INTO t VALUES ('one\n\\restrict two\n\\x\\u2028\u2028\\y');\n"

    assert unguarded(f"{head}\\restrict aB3\n\n{body}\\unrestrict aB3\n") == f"{head}\n{body}"
    assert unguarded(head + body) == head + body


async def test_an_address_that_cannot_be_read_is_not_repeated(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, store=tmp_path, scratch=tmp_path, run=tmp_path, users=Users(agent=None, server=None))
    for address in ("postgresql://me:of%mine@localhost/tickets", "postgresql://me:secret of mine@[localhost/tickets"):
        with pytest.raises(EnvironmentInvalid) as refused:
            await draft(address, settings)
        assert "mine" not in str(refused.value)
        assert refused.value.__cause__ is None
        assert refused.value.__suppress_context__


def test_what_a_known_server_holds_is_read_by_commands_that_it_does_not_refuse() -> None:
    probe = servers.probe_of(["redis-server"], "app", name="app")
    (argv,) = probe.options["inside"].values()

    assert argv[:2] == ("redis-cli", "eval"), "DEBUG is refused since Redis 7, and an error is output like another"


@pytest.mark.parametrize("program", servers.SERVERS)
def test_the_commands_that_ask_a_server_come_back_from_the_text(program: str) -> None:
    probe = servers.probe_of([program], "app", name="app")
    (back,) = tomllib.loads(proposed([(probe, Origin.SERVER, 1)], [], seen="2 instances", left=[], builds=0))["probes"]
    assert {name: tuple(argv) for name, argv in back["inside"].items()} == probe.options["inside"]
    assert set(back.get("pairs", ())) <= set(back["inside"])


def test_servers_are_known_by_what_runs_whatever_started_it() -> None:
    def process(*argv: str) -> ProcessInfo:
        return ProcessInfo(pid=1, parent=0, role=Role.SERVER, argv=argv)

    found = [process("sh", "/start"), process("/usr/lib/postgresql/17/bin/postgres", "-D", "/data"), process("postgres: writer ")]
    assert servers.running(found) == ["postgres"]
    assert servers.running([process("redis-server *:6379"), process(), process("")]) == ["redis-server"]
    assert servers.running([process("nginx: master process nginx")]) == []


async def test_what_is_no_name_of_an_image_is_not_blamed_on_the_engine(
    place: Path, answering: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("docker")
    said = b'{"message": "invalid reference format: repository name must be lowercase"}'
    refusal = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(said) + said
    monkeypatch.setenv("DOCKER_HOST", f"unix://{place}")
    settings = Settings(home=tmp_path, store=tmp_path, scratch=tmp_path, run=tmp_path, users=Users(agent=None, server=None))

    async with answering(place, lambda _: refusal):
        with pytest.raises(EnvironmentInvalid, match=r"Tickets is no directory.*must be lowercase"):
            await draft("Tickets", settings)


class Inside:
    """An instance of one container, in which these servers run and each client says what is given for it. Until they were asked
    `starting` times whether they are ready, they are not."""

    in_place = False

    def __init__(self, programs: Sequence[str], said: Mapping[str, str], starting: int = 0) -> None:
        self._programs, self._said, self._starting = programs, said, starting

    def subject(self) -> Any:
        return self

    def container(self, resource: str) -> Any:
        return self

    async def processes(self) -> list[ProcessInfo]:
        return [ProcessInfo(pid=n, parent=0, role=Role.SERVER, argv=(name,)) for n, name in enumerate(self._programs, 1)]

    async def run(self, argv: Sequence[str], *, limit_s: float) -> ExecResult:
        if any(server.ready in argv for server in servers.SERVERS.values()):
            self._starting -= 1
            return ExecResult(exit_code=1 if self._starting >= 0 else 0, stdout=b"", stderr=b"")
        if self._starting > 0:
            return ExecResult(exit_code=2, stdout=b"", stderr=b"the database system is starting up")
        text = next(text for client, text in self._said.items() if client in " ".join(argv))
        return ExecResult(exit_code=0, stdout=text.encode(), stderr=b"")


OF_ONE_CONTAINER = EnvironmentSpec(name="app", version="1", digest="d", resources=(ResourceSpec(name="app", kind="container"),))


async def looked_into(
    programs: Sequence[str], said: Mapping[str, str], starting: int = 0, spec: EnvironmentSpec = OF_ONE_CONTAINER
) -> known.Known:
    instance: Any = Inside(programs, said, starting)
    return await known.known(spec, instance)


async def test_a_refusal_does_not_pass_for_what_a_server_holds() -> None:
    """The client of Redis ends with 0 after it."""
    found = await looked_into(["redis-server"], {"redis-cli": "NOAUTH Authentication required.\n\n"})

    assert found.probes == ()
    assert ["NOAUTH" in remark and "is not read" in remark for remark in found.remarks] == [True]
    assert len((await looked_into(["redis-server"], {"redis-cli": f"3 keys {'0a' * 20}\n"})).probes) == 1


async def test_each_server_of_a_container_is_asked() -> None:
    keys = f"3 keys {'0a' * 20}\n"
    found = await looked_into(
        ["redis-server", "valkey-server", "postgres"], {"redis-cli": keys, "valkey-cli": keys, "psql": "/data\n", "pg_dumpall": "x"}
    )
    (probe,) = found.probes

    assert set(probe.options["inside"]) == {"keys", "valkey-server keys", "rows", "definitions", "server"}
    assert probe.options["pairs"] == ("rows", "server")
    assert len(set(probe.options["inside"].values())) == 5


async def test_a_server_that_is_still_starting_is_waited_for_and_leases_are_to_wait_as_well() -> None:
    said = {"psql": "/data\n", "pg_dumpall": "x"}
    found = await looked_into(["postgres"], said, starting=3)
    (argv,) = found.ready.values()

    assert [probe.name for probe in found.probes] == ["app"]
    assert argv[:2] == ("sh", "-c")
    assert "pg_isready" in argv[2]
    text = described("x", {"resources": {"app": {"kind": "container", "ports": [5432]}}}, [])
    text += proposed([], [], seen="2 instances", ready=found.ready, left=[], builds=0)
    table = tomllib.loads(text)["resources"]["app"]
    assert ContainerOptions.model_validate({k: v for k, v in table.items() if k != "kind"}).ready.command == list(argv)


@pytest.mark.parametrize(
    ("options", "remarked"),
    [({"ready": {"port": 5432}}, False), ({"setup": [["start-it"]]}, True), ({"ready": {}, "setup": [["start-it"]]}, False)],
)
async def test_what_its_author_says_of_readiness_stays(options: dict[str, Any], remarked: bool) -> None:
    (resource,) = OF_ONE_CONTAINER.resources
    spec = replace(OF_ONE_CONTAINER, resources=(replace(resource, options=options),))
    found = await looked_into(["postgres"], {"psql": "/data\n", "pg_dumpall": "x"}, spec=spec)

    assert (len(found.probes), found.ready, list(found.answers)) == (1, {}, ["app"])
    assert any("`ready`" in remark for remark in found.remarks) is remarked


async def test_readiness_is_proposed_where_the_probes_are_there_already() -> None:
    own = servers.probe_of(["postgres"], "app", name="app")
    found = await looked_into(["postgres"], {}, spec=replace(OF_ONE_CONTAINER, probes=(own,)))

    assert (found.probes, list(found.ready)) == ((), ["app"])


async def test_each_instance_is_waited_for_and_one_that_never_answers_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    said = {"psql": "/data\n", "pg_dumpall": "x"}
    found = await looked_into(["postgres"], said)
    later: Any = Inside(["postgres"], said, starting=2)
    await known.until_answering(found, later)
    assert (await later.run(("psql",), limit_s=1)).exit_code == 0

    monkeypatch.setattr(known, "LIMIT_S", 0.0)
    found = await looked_into(["postgres"], said, starting=9)
    assert (found.answers, found.ready) == ({}, {})
    assert any("whether it answers" in remark for remark in found.remarks)


@pytest.mark.parametrize(
    ("said", "code"),
    [("PONG", 0), ("NOAUTH Authentication required.", 0), ("LOADING Redis is loading the dataset in memory", 1), ("", 1)],
)
def test_a_redis_that_loads_its_file_is_not_ready(said: str, code: int, tmp_path: Path) -> None:
    client = tmp_path / "redis-cli"
    client.write_text(f"#!/bin/sh\nprintf '{said}'\n")
    client.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    line = servers.SERVERS["redis-server"].ready
    assert subprocess.run(["sh", "-c", line], env=environ, check=False, timeout=60).returncode == code
    assert subprocess.run(["sh", "-c", f"{line} && exit 7"], env=environ, check=False, timeout=60).returncode == (code or 7)


def test_a_remark_never_leaves_its_comment() -> None:
    said = described("x", {"resources": {"r": {"kind": "files"}}}, ["a\n[limits]\rmemory_mb = 1 " + "word " * 60])
    assert set(tomllib.loads(said)) == {"name", "version", "reset", "resources"}
