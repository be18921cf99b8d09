"""Guides, which can be kept for reading without a connection."""

from __future__ import annotations

from ..http import Problem, Request, Response
from ..layout import crumbs, day, page
from ..markup import h
from ..routes import route
from ..wire import Row

_ALL = """<h1>Guides</h1><p class="muted">A guide that is kept on this device can be read without a connection.</p>
<div class="columns">{sections}</div>"""
_ONE = """{crumbs}<article class="card guide"><h1>{title}</h1><p class="muted">{section} · revised {day}</p><p>{body}</p></article>
<div class="card actions" data-keep="/guides/{slug}">
<button type="button" class="primary" data-keep-add>Keep on this device</button>
<button type="button" data-keep-remove hidden>Remove from this device</button>
<span class="muted" data-keep-state role="status"></span></div>"""


@route("GET", "/guides")
def guides(request: Request) -> Response:
    sections: dict[str, list[Row]] = {}
    for guide in request.db.rows("select slug, section, title, revised from guides order by section, title"):
        sections.setdefault(guide["section"], []).append(guide)
    parts = [
        h(
            '<section class="card"><h2>{s}</h2><ul class="lines">{l}</ul></section>',
            s=name,
            l=[
                h('<li><a href="/guides/{slug}">{title}</a> <span class="right muted">{d}</span></li>', d=day(g["revised"]), **g)
                for g in found
            ],
        )
        for name, found in sections.items()
    ]
    return page(request, "Guides", h(_ALL, sections=parts))


@route("GET", "/guides/{slug}")
def guide(request: Request, slug: str) -> Response:
    found = request.db.row("select * from guides where slug = $1", slug)
    if found is None:
        raise Problem(404, "There is no such guide.")
    return page(request, found["title"], h(_ONE, crumbs=crumbs(("/guides", "Guides")), day=day(found["revised"]), **found))


@route("GET", "/offline", public=True)
def offline(request: Request) -> Response:
    content = (
        '<h1>Kept on this device</h1><section class="card"><p data-offline-none>Nothing is kept.</p><ul '
        'class="lines" data-offline></ul></section>'
    )
    return page(request, "Offline pages", h(content))
