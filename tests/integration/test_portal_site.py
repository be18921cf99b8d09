"""The portal as a web site over a real PostgreSQL: who may do what, what is refused, and that every build is the same."""

from __future__ import annotations

import http.client
import json
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest

from envs.portal import people, scratch
from envs.portal.generate import HERE, SEED, draft, render
from envs.scratch import dump, run_text
from envs.scratch import server as scratch_server

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with scratch_server() as conninfo:
        yield conninfo


@pytest.fixture(scope="module")
def built(server: str) -> tuple[str, bytes]:
    """The database and its dump before anybody used it."""
    conninfo = scratch.seed(server)
    return conninfo, dump(conninfo)


@pytest.fixture(scope="module")
def live(server: str, built: tuple[str, bytes]) -> str:
    """A copy of that database, for use."""
    assert built
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("create database live template portal owner portal_owner")
    return psycopg.conninfo.make_conninfo(server, dbname="live")


@pytest.fixture(scope="module")
def site(live: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with scratch.web(live, tmp_path_factory.mktemp("portal")) as path:
        yield path


def only(conninfo: str, query: str, *values: object) -> tuple[Any, ...]:
    """Return the first row of a query."""
    with psycopg.connect(conninfo) as connection:
        row = connection.execute(query.encode(), values).fetchone()
    assert row is not None
    return row


class Visitor:
    """A browser's cookies and form tokens, and nothing else of one."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.cookies: dict[str, str] = {}
        self.token = ""

    def ask(self, method: str, target: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("portal.test", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(30)
        connection.sock.connect(str(self._path))
        sent = {"Cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items()), **(headers or {})}
        try:
            connection.request(method, target, body or None, sent)
            answer = connection.getresponse()
            text = answer.read().decode("utf-8", "replace")
        finally:
            connection.close()
        for header in answer.headers.get_all("Set-Cookie") or ():
            name, _, rest = header.partition("=")
            self.cookies[name] = rest.partition(";")[0]
        found = re.search(r'name="csrf" value="([^"]*)"', text)
        self.token = found[1] if found else self.token
        return answer.status, answer.headers.get("Location", ""), text

    def post(self, target: str, **fields: object) -> tuple[int, str, str]:
        body = urlencode({"csrf": self.token, **fields}).encode()
        return self.ask("POST", target, body, {"Content-Type": "application/x-www-form-urlencoded"})

    def sign_in(self, login: str) -> Visitor:
        self.ask("GET", "/sign-in")
        status, place, _ = self.post("/sign-in", login=login, password=people.password(login))
        assert (status, place) == (303, "/?welcome=1")
        self.ask("GET", "/settings")
        return self


def test_two_builds_from_the_seed_are_equal_and_no_row_is_torn(server: str, built: tuple[str, bytes]) -> None:
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("create database second owner portal_owner")
    second = psycopg.conninfo.make_conninfo(server, dbname="second")
    for name in scratch.SEED_FILES[1:]:  # roles are the server's, and there already
        run_text(second, (HERE / "db" / name).read_text("utf-8"), name)
    assert dump(second) == built[1]
    (rows,) = only(built[0], "select sum(n_live_tup) from pg_stat_user_tables where schemaname = 'portal'")
    assert rows > 4000


def test_the_tasks_are_what_their_seed_makes(built: tuple[str, bytes]) -> None:
    drafts, files = draft(built[0], SEED)
    tasks, solutions = render(drafts, SEED)
    assert tasks == (HERE / "tasks.jsonl").read_text("utf-8")
    assert solutions == (HERE / "solutions.jsonl").read_text("utf-8")
    there = {str(p.relative_to(HERE / "documents")): p.read_text("utf-8") for p in (HERE / "documents").rglob("*.txt")}
    assert there == files
    with psycopg.connect(built[0]) as connection:
        logins = [row[0] for row in connection.execute("select login from portal.people order by id")]
    assert people.render(logins) == people.FILE.read_text("utf-8")


def test_without_signing_in_there_is_nothing_but_the_door(site: Path) -> None:
    visitor = Visitor(site)
    for path in ("/", "/catalogue", "/orders/ORD-00001", "/documents/1", "/settings"):
        status, place, _ = visitor.ask("GET", path)
        assert (status, place) == (303, f"/sign-in?next={path}")
    assert visitor.ask("GET", "/api/cart")[0] == 401
    for path in ("/health", "/offline", "/sw.js", "/static/app.js"):
        assert visitor.ask("GET", path)[0] == 200
    assert visitor.ask("GET", "/static/../server.py")[0] == 404


def test_a_wrong_password_is_refused_and_says_nothing_more(site: Path) -> None:
    visitor = Visitor(site)
    visitor.ask("GET", "/sign-in")
    answers = [visitor.post("/sign-in", login=login, password="wrong") for login in ("ada.ahlgren", "no.body")]
    assert [status for status, _, _ in answers] == [401, 401]
    assert all("User name or password is wrong." in text for _, _, text in answers)


def test_a_form_from_elsewhere_is_refused(site: Path) -> None:
    visitor = Visitor(site).sign_in("ada.ahlgren")
    visitor.token = "stolen"
    assert visitor.post("/cart/add", sku="DES-2161", quantity=1)[0] == 403
    assert '"count": 0' in visitor.ask("GET", "/api/cart")[2]


def test_what_belongs_to_others_cannot_be_seen_or_changed(site: Path, live: str) -> None:
    visitor = Visitor(site).sign_in("tove.thorell")
    me, department = only(live, "select id, department_id from portal.people where login = 'tove.thorell'")
    (order,) = only(live, "select number from portal.orders where person_id <> %s limit 1", me)
    (listed,) = only(live, "select id from portal.lists where person_id <> %s and not shared limit 1", me)
    colleagues = "select number from portal.requests where person_id <> %s and status = 'open' and department_id = %s limit 1"
    (request,) = only(live, colleagues, me, department)
    (session,) = only(live, "select id from portal.sessions where person_id <> %s limit 1", me)
    assert visitor.ask("GET", f"/orders/{order}")[0] == 404
    assert visitor.post(f"/orders/{order}/cancel")[0] == 404
    assert visitor.ask("GET", f"/lists/{listed}")[0] == 404
    assert visitor.post(f"/lists/{listed}/delete")[0] == 404
    assert visitor.post(f"/requests/{request}/decide", decision="approved", note="")[0] == 404
    assert visitor.post(f"/settings/devices/{session}/end")[0] == 404


def test_what_people_type_is_data(site: Path) -> None:
    visitor = Visitor(site).sign_in("ada.ahlgren")
    for text in ("'; drop table portal.people; --", "\\", "%", "_", "<script>alert(1)</script>", "\0", "ä" * 300):
        status, _, page = visitor.ask("GET", f"/catalogue?{urlencode({'q': text})}")
        assert status == 200
        assert "<script>alert" not in page
    assert visitor.ask("GET", "/catalogue?max=1e9")[0] == 400
    assert visitor.ask("GET", f"/catalogue?{urlencode({'max': '²'})}")[0] == 400
    assert visitor.ask("GET", "/catalogue?page=99999999999999999999")[0] == 200
    status, place, _ = visitor.post("/lists/new", name="<b>mine</b>")
    assert status == 303
    assert "<b>mine" not in visitor.ask("GET", place)[2]
    assert visitor.post("/lists/new", name="<b>mine</b>")[0] == 409
    assert visitor.post(place + "/delete")[0] == 303


def test_an_order_takes_no_more_than_there_is(site: Path, live: str) -> None:
    visitor = Visitor(site).sign_in("ada.ahlgren")
    sku, stock = only(live, "select sku, stock from portal.products where stock between 5 and 50 order by id")
    assert visitor.post("/cart/add", sku=sku, quantity=stock + 1)[0] == 303
    status, _, page = visitor.post("/checkout", place="A1", cost_centre="CC-4100", reference="", note="")
    assert status == 409
    assert "Not enough in stock" in page
    assert visitor.post("/cart/change", sku=sku, quantity=stock)[0] == 303
    assert visitor.post("/checkout", place="ZZ", cost_centre="CC-4100", reference="", note="")[0] == 400
    status, place, _ = visitor.post("/checkout", place="A1", cost_centre="CC-4100", reference="r", note="n")
    assert status == 303
    assert "placed" in visitor.ask("GET", place)[2]
    assert only(live, "select stock from portal.products where sku = %s", sku) == (0,)
    assert visitor.post(f"{place}/cancel")[0] == 303
    assert visitor.post(f"{place}/cancel")[0] == 409
    assert only(live, "select stock from portal.products where sku = %s", sku) == (stock,)


def test_an_upload_comes_back_as_it_was_and_goes_when_deleted(site: Path) -> None:
    visitor = Visitor(site).sign_in("ada.ahlgren")
    data = bytes(range(256)).replace(b"\r\n", b"") * 3
    parts = {"csrf": visitor.token, "title": "Bytes", "kind": "other", "order": ""}
    body = b"".join(f'--x\r\nContent-Disposition: form-data; name="{k}"\r\n\r\n{v}\r\n'.encode() for k, v in parts.items())
    body += b'--x\r\nContent-Disposition: form-data; name="file"; filename="../../etc/x.bin"\r\n\r\n' + data + b"\r\n--x--\r\n"
    status, place, _ = visitor.ask("POST", "/documents/new", body, {"Content-Type": "multipart/form-data; boundary=x"})
    assert (status, place) == (303, "/documents")
    page = visitor.ask("GET", "/documents")[2]
    (number,) = re.findall(r'href="/documents/(\d+)">Bytes', page)
    assert ">x.bin<" in page
    uploads = list((site.parent / "uploads").iterdir())
    assert [path.read_bytes() for path in uploads] == [data]
    assert Visitor(site).sign_in("tove.thorell").ask("GET", f"/documents/{number}")[0] == 404
    assert visitor.post(f"/documents/{number}/delete")[0] == 303
    assert list((site.parent / "uploads").iterdir()) == []
    assert visitor.ask("POST", "/documents/new", b"", {"Content-Length": "99999999"})[0] == 413


def test_the_password_can_be_changed_and_a_session_ends(site: Path) -> None:
    visitor = Visitor(site).sign_in("ylva.zander")
    other = Visitor(site).sign_in("ylva.zander")
    old = people.password("ylva.zander")
    assert visitor.post("/settings/password", old="not it", new="a new password")[0] == 403
    assert visitor.post("/settings/password", old=old, new="short")[0] == 400
    assert visitor.post("/settings/password", old=old, new="a new password")[0] == 303
    again = Visitor(site)
    again.ask("GET", "/sign-in")
    assert again.post("/sign-in", login="ylva.zander", password=old)[0] == 401
    assert again.post("/sign-in", login="ylva.zander", password="a new password")[0] == 303
    assert other.post("/sign-out")[0] == 303
    assert other.ask("GET", "/settings")[0] == 303
    assert visitor.ask("GET", "/settings")[0] == 200


@pytest.mark.parametrize(
    ("role", "statement"),
    [
        ("portal", "drop table portal.orders"),
        ("portal", "update portal.people set role = 'manager'"),
        ("portal", "delete from portal.events"),
        ("portal", "create table portal.mine ()"),
        ("portal", "create table public.mine ()"),
        ("portal", "alter role agent superuser"),
        ("agent", "select from portal.people"),
    ],
)
def test_roles_can_do_no_more_than_they_need(live: str, role: str, statement: str) -> None:
    with psycopg.connect(live) as connection:
        connection.execute(f"set local role {role}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute(statement.encode())


def test_suggestions_are_json(site: Path) -> None:
    visitor = Visitor(site).sign_in("ada.ahlgren")
    found = json.loads(visitor.ask("GET", "/api/search?q=desk+lamp")[2])["products"]
    assert [p["name"] for p in found] == [f"Desk lamp {v}" for v in ("Basic", "Eco", "Plus", "Pro")]
    status, _, text = visitor.ask(
        "POST", "/api/cart", b'{"sku": "NOPE", "quantity": 1}', {"Content-Type": "application/json", "X-CSRF-Token": visitor.token}
    )
    assert (status, json.loads(text)) == (404, {"error": "There is no product NOPE."})
