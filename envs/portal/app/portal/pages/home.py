"""Signing in and out, and the start page."""

from __future__ import annotations

from .. import security
from ..http import Problem, Request, Response, redirect
from ..layout import badge, day, money, page, token_field
from ..markup import h, safe
from ..routes import route

_SIGN_IN = """<section class="card narrow sign-in"><h1>Sign in</h1>
<p>Use the name and password that you were given.</p>
{error}
<form method="post" action="/sign-in" class="stack">{token}<input type="hidden" name="next" value="{next}">
<label>User name <input name="login" autocomplete="username" autocapitalize="none" required value="{login}"></label>
<label>Password <input name="password" type="password" autocomplete="current-password" required></label>
<button class="primary">Sign in</button></form></section>"""


@route("GET", "/sign-in", public=True)
def sign_in_form(request: Request, error: str = "", login: str = "") -> Response:
    place = request.query.get("next") or (request.text("next", limit=500) if request.method == "POST" else "")
    fault = h('<p class="error" role="alert">{e}</p>', e=error) if error else ""
    content = h(_SIGN_IN, token=token_field(request), error=fault, login=login, next=_inside(place))
    return page(request, "Sign in", content, status=401 if error else 200)


@route("POST", "/sign-in", public=True)
def sign_in(request: Request) -> Response:
    login = request.text("login").lower()
    password = (request.form().get("password") or [""])[-1][:200]
    person = request.db.row("select id, login, name, password from people where login = $1", login)
    if person is None or not security.matches(password, person["password"]):
        return sign_in_form(request, "User name or password is wrong.", login)
    token = security.begin(request.db, person, request.headers.get("User-Agent", ""))
    response = redirect(_inside(request.text("next", limit=500)) or "/?welcome=1")
    response.headers.append(security.cookie(security.SESSION_COOKIE, token, age=7 * 86400))
    return response


@route("POST", "/sign-out")
def sign_out(request: Request) -> Response:
    if request.session is None:
        raise Problem(401, "Nobody is signed in.")
    request.db.rows("delete from sessions where id = $1", request.session["id"])
    response = redirect("/sign-in", "You are signed out.")
    response.headers.append(security.cookie(security.SESSION_COOKIE, "", age=0))
    return response


def _inside(place: str) -> str:
    """Return a place of this site, or nothing: a link must not lead elsewhere after signing in."""
    return place if place.startswith("/") and not place.startswith(("//", "/\\")) else ""


_HOME = """<section class="hero"><h1>Hello, {first}</h1><p>{department} · cost centre {cost_centre}</p></section>
<div class="columns">
<section class="card"><h2>Latest orders</h2>{orders}<p><a href="/orders">All orders</a></p></section>
<section class="card"><h2>{requests_title}</h2>{requests}<p><a href="/requests">All requests</a></p></section>
<section class="card" data-drafts-home hidden><h2>Drafts on this device</h2><ul class="lines" data-drafts></ul></section>
<section class="card" data-recent hidden><h2>Viewed lately</h2><ul class="lines"></ul></section>
</div>"""


@route("GET", "/")
def home(request: Request) -> Response:
    assert request.person is not None
    mine = request.db.rows(
        "select number, status, total, placed_at from orders where person_id = $1 order by id desc limit 4", request.me
    )
    orders = (
        h(
            '<ul class="lines">{l}</ul>',
            l=safe(
                h(
                    '<li><a href="/orders/{n}">{n}</a> <span>{d}</span> {b} <span class="right">{m}</span></li>',
                    n=o["number"],
                    d=day(o["placed_at"]),
                    b=badge(o["status"]),
                    m=money(o["total"]),
                )
                for o in mine
            ),
        )
        if mine
        else h("<p>None yet.</p>")
    )
    manager = request.person["role"] == "manager"
    waiting = request.db.rows(
        "select number, title from requests where status = 'open' and "
        + ("department_id = $1" if manager else "person_id = $1")
        + " order by id desc limit 5",
        request.person["department_id"] if manager else request.me,
    )
    requests = h(
        '<ul class="lines">{l}</ul>',
        l=safe(h('<li><a href="/requests/{n}">{n}</a> <span>{t}</span></li>', n=r["number"], t=r["title"]) for r in waiting),
    )
    return page(
        request,
        "Start",
        h(
            _HOME,
            first=request.person["name"].split(" ")[0],
            department=request.person["department"],
            cost_centre=request.person["cost_centre"],
            orders=orders,
            requests=requests if waiting else h("<p>Nothing waits.</p>"),
            requests_title="Waiting for your decision" if manager else "Open requests",
        ),
    )
