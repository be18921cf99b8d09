"""The frame around every page."""

from __future__ import annotations

from typing import Any

from . import security
from .http import Request, Response
from .markup import Html, h, safe

_NAV = (
    ("/catalogue", "Catalogue"),
    ("/orders", "Orders"),
    ("/lists", "Lists"),
    ("/requests", "Requests"),
    ("/documents", "Documents"),
    ("/guides", "Guides"),
    ("/directory", "Directory"),
)

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Lindworks Portal</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/style.css">
<script src="/static/display.js"></script>
<script src="/static/app.js" type="module"></script>
</head>
<body data-person="{login}" data-csrf="{csrf}">
<a class="skip" href="#main">Skip to content</a>
{header}
<main id="main">
{notice}
{content}
</main>
<footer class="foot">Lindworks AB · Harbour Street 4, Lindhaven · <a href="/offline">Offline pages</a></footer>
</body>
</html>
"""

_HEADER = """<header class="top">
<div class="bar">
<a class="brand" href="/"><svg viewBox="0 0 24 24" aria-hidden="true">
<path d="M4 4h7v16H4zM14 4h6v7h-6zM14 14h6v6h-6z"/></svg>Lindworks Portal</a>
<form class="search" action="/catalogue" role="search">
<label class="hidden" for="find">Search the catalogue</label>
<input id="find" name="q" type="search" placeholder="Search the catalogue" autocomplete="off" value="{q}" data-suggest>
<ul class="suggestions" id="suggestions" hidden></ul>
</form>
<a class="cart" href="/cart">Cart <span class="count" data-cart-count>{count}</span></a>
<details class="menu"><summary>{name}</summary>
<div class="sheet"><a href="/settings">Settings</a><a href="/settings/display">Display on this device</a>
<form method="post" action="/sign-out">{token}<button class="plain">Sign out</button></form></div></details>
</div>
<nav class="nav" aria-label="Main">{links}</nav>
</header>"""


def token_field(request: Request) -> Html:
    """The hidden field that every form which posts must have."""
    return h('<input type="hidden" name="csrf" value="{t}">', t=security.token(request))


def page(request: Request, title: str, content: Any, *, status: int = 200) -> Response:
    """Return a whole page."""
    header = Html("")
    if request.person is not None:
        count = request.db.value("select coalesce(sum(quantity), 0) from cart_lines where person_id = $1 and not later", request.me)
        links = safe(
            h('<a href="{u}"{c}>{t}</a>', u=url, t=text, c=Html(' aria-current="page"') if request.path.startswith(url) else "")
            for url, text in _NAV
        )
        header = h(
            _HEADER,
            count=count,
            name=request.person["name"],
            token=token_field(request),
            links=links,
            q=request.query.get("q", "") if request.path == "/catalogue" else "",
        )
    text = h(
        _PAGE,
        title=title,
        header=header,
        notice=_notice(request),
        content=safe(content),
        csrf=security.token(request),
        login=request.person["login"] if request.person else "",
    )
    headers = [("Set-Cookie", "portal_notice=; Path=/; Max-Age=0")] if "portal_notice" in request.cookies else []
    return Response(text.encode(), status, headers=headers)


def _notice(request: Request) -> Html:
    try:
        text = bytes.fromhex(request.cookies.get("portal_notice", "")).decode()
    except ValueError:
        return Html("")
    return h('<p class="notice" role="status">{t}</p>', t=text) if text else Html("")


def trouble(request: Request, status: int, message: str) -> Response:
    """Return the page for what went wrong."""
    return page(
        request,
        "Not done",
        h(
            '<section class="card narrow"><h1>That did not work</h1><p class="error" role="alert">{m}</p>'
            '<p><a class="button" href="/">To the start page</a></p></section>',
            m=message,
        ),
        status=status,
    )


def crumbs(*parts: tuple[str, str]) -> Html:
    return h('<p class="crumbs">{p}</p>', p=safe(h('<a href="{u}">{t}</a> / ', u=url, t=text) for url, text in parts))


def money(value: Any) -> str:
    return f"{value:,.2f} €"


def day(value: Any) -> str:
    return f"{value:%Y-%m-%d}" if value else ""


def badge(text: str) -> Html:
    return h('<span class="badge {c}">{t}</span>', c=text.replace(" ", "-"), t=text)
