"""The portal's application, part by part: nothing here needs a database."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime
from decimal import Decimal
from email.message import Message
from typing import Any, cast

import pytest

from envs.portal.app.portal import routes, security, server, wire
from envs.portal.app.portal.http import Problem, Request
from envs.portal.app.portal.markup import Html, h, options
from envs.portal.app.portal.pages.home import _inside

assert server  # its import registers the pages


def request(method: str, target: str, body: bytes = b"", **headers: str) -> Request:
    given = Message()
    for name, value in headers.items():
        given[name.replace("_", "-")] = value
    return Request(method, target, given, body, cast("Any", None))


def test_what_people_write_cannot_become_markup() -> None:
    found = h("<p title='{t}'>{t}</p>{m}", t="<b>'\"&", m=[Html("<i>"), "<i>", None])
    assert found == "<p title='&lt;b&gt;&#x27;&quot;&amp;'>&lt;b&gt;&#x27;&quot;&amp;</p><i>&lt;i&gt;"
    assert 'value="&quot;x"' in options([('"x', "<y>")], "")


def test_a_form_with_a_file_is_read() -> None:
    body = (
        b'--b\r\nContent-Disposition: form-data; name="title"\r\n\r\nh\xc3\xa4\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n'
        b"Content-Type: text/plain\r\n\r\none\r\n\r\ntwo\r\n--b--\r\n"
    )
    found = request("POST", "/documents/new", body, Content_Type="multipart/form-data; boundary=b")
    assert found.text("title") == "hä"
    upload = found.file("file")
    assert upload is not None
    assert (upload.filename, upload.media_type, upload.data) == ("a.txt", "text/plain", b"one\r\n\r\ntwo")


@pytest.mark.parametrize("value", ["", "0", "1000", "1.5", "9" * 20, "one", "²"])
def test_a_number_out_of_bounds_is_refused(value: str) -> None:
    with pytest.raises(Problem, match="whole number from 1 to 999"):
        request("POST", "/cart/add", f"quantity={value}".encode()).number("quantity", 1, 999)


def test_a_post_needs_the_visitors_own_token() -> None:
    ours = request("POST", "/sign-in", b"csrf=secret", Cookie="portal_visit=secret")
    security.guard(ours)
    for body, cookie in (
        (b"csrf=other", "portal_visit=secret"),
        (b"", "portal_visit="),
        (b"csrf=", "x=1"),
        (b"csrf=secret", "x=1"),
    ):
        with pytest.raises(Problem) as refused:
            security.guard(request("POST", "/sign-in", body, Cookie=cookie))
        assert refused.value.status == 403


@pytest.mark.parametrize("place", ["https://elsewhere.test/", "//elsewhere.test", "/\\elsewhere.test", "elsewhere", ""])
def test_signing_in_leads_nowhere_else(place: str) -> None:
    assert _inside(place) == ""


def test_paths_lead_to_pages_and_methods_count() -> None:
    _, arguments, public = routes.find(request("GET", "/orders/ORD-00001?x=1"))
    assert (arguments, public) == ({"number": "ORD-00001"}, False)
    for method, path, status in (("GET", "/nothing", 404), ("POST", "/directory", 405), ("GET", "/orders/../x", 404)):
        with pytest.raises(Problem) as refused:
            routes.find(request(method, path))
        assert refused.value.status == status


def test_a_password_is_stored_with_a_salt_of_its_own() -> None:
    one, two = security.new_hash("a long password"), security.new_hash("a long password")
    assert one != two
    assert security.matches("a long password", one)
    assert not security.matches("a long passwore", one)
    assert not security.matches("", "nonsense")


def test_values_come_from_the_database_in_their_types() -> None:
    row = b"\x00\x05" + b"".join(
        len(text).to_bytes(4, "big") + text for text in (b"t", b"12", b"3.50", b"2026-02-03", b"2026-02-03 04:05:06.789+00")
    )
    kinds = [("a", 16), ("b", 23), ("c", 1700), ("d", 1082), ("e", 1184)]
    assert wire._row(row, kinds) == {
        "a": True,
        "b": 12,
        "c": Decimal("3.50"),
        "d": date(2026, 2, 3),
        "e": datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC),
    }
    assert wire._row(b"\x00\x01\xff\xff\xff\xff", [("a", 25)]) == {"a": None}


def test_the_log_in_follows_rfc_7677() -> None:
    """The example of the RFC, whose user name PostgreSQL leaves out."""
    nonce = "rOprNGfwEbeRWgbNEkqO"
    challenge = f"r={nonce}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    final, signature = wire._scram("pencil", f"n=user,r={nonce}", nonce, challenge)
    assert final.endswith(b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
