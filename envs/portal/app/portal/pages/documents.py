"""Documents: uploads, whose bytes lie in a directory of the server's."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from pathlib import Path
from urllib.parse import quote

from ..http import Problem, Request, Response, redirect
from ..layout import badge, crumbs, day, page, token_field
from ..markup import h, options
from ..routes import route
from ..wire import Row
from .orders import mine

KINDS = ("invoice", "delivery note", "certificate", "other")
LIMIT = 5_000_000
_ALL = """<h1>Documents</h1><p class="actions"><a class="button primary" href="/documents/new">Upload a document</a></p>
<div class="table-wrap"><table class="grid"><thead><tr><th>Title</th><th>Kind</th><th>Order</th><th>File</th>
<th class="num">Size</th><th>Uploaded</th><th></th></tr></thead><tbody>{rows}</tbody></table></div>"""
_ROW = """<tr><td data-label="Title"><a href="/documents/{id}">{title}</a></td><td data-label="Kind">{badge}</td>
<td data-label="Order">{order}</td><td data-label="File">{filename}</td>
<td data-label="Size" class="num">{size} B</td><td data-label="Uploaded">{day}</td><td class="actions">
<form method="post" action="/documents/{id}/delete">{token}
<button aria-label="Delete {title}">Delete</button></form></td></tr>"""
_NEW = """{crumbs}<h1>Upload a document</h1>
<form method="post" action="/documents/new" enctype="multipart/form-data" class="card stack">{token}
<label>File <input type="file" name="file" required></label><label>Title <input name="title" maxlength="100" required></label>
<label>Kind <select name="kind">{kinds}</select></label><label>Order
<input name="order" maxlength="20" value="{order}" placeholder="ORD-…"></label>
<button class="primary">Upload</button></form>"""


def directory() -> Path:
    return Path(os.environ.get("PORTAL_UPLOADS", "/srv/portal/uploads"))


@route("GET", "/documents")
def documents(request: Request) -> Response:
    found = request.db.rows(
        "select d.*, o.number from documents d left join orders o on o.id = d.order_id where d.person_id = $1 order by d.id desc",
        request.me,
    )
    rows = [
        h(
            _ROW,
            badge=badge(d["kind"]),
            day=day(d["created_at"]),
            token=token_field(request),
            order=h('<a href="/orders/{n}">{n}</a>', n=d["number"]) if d["number"] else "",
            **d,
        )
        for d in found
    ]
    return page(request, "Documents", h(_ALL, rows=rows or h('<tr><td colspan="7">None yet.</td></tr>')))


@route("GET", "/documents/new")
def new_form(request: Request) -> Response:
    return page(
        request,
        "Upload a document",
        h(
            _NEW,
            crumbs=crumbs(("/documents", "Documents")),
            token=token_field(request),
            order=request.query.get("order", ""),
            kinds=options(((k, k.capitalize()) for k in KINDS), "invoice"),
        ),
    )


@route("POST", "/documents/new")
def upload(request: Request) -> Response:
    file = request.file("file")
    if file is None or not file.data:
        raise Problem(400, "Choose a file that is not empty.")
    if len(file.data) > LIMIT:
        raise Problem(413, "The file is larger than 5 MB.")
    number = request.text("order")
    order = mine(request, number)["id"] if number else None
    name = re.sub(r"[^\w .()+-]", "_", file.filename.replace("\\", "/").rsplit("/", 1)[-1])[:100] or "file"
    title, kind = request.text("title", limit=100, needed=True), request.choice("kind", KINDS)
    stored = f"{secrets.token_hex(8)}.bin"
    place = directory()
    place.mkdir(parents=True, exist_ok=True)
    (place / stored).write_bytes(file.data)
    try:
        request.db.rows(
            "insert into documents (person_id, order_id, kind, title, filename, media_type, size, sha256, "
            "stored) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            request.me,
            order,
            kind,
            title,
            name,
            file.media_type,
            len(file.data),
            hashlib.sha256(file.data).hexdigest(),
            stored,
        )
    except BaseException:
        (place / stored).unlink()
        raise
    return redirect(f"/orders/{number}" if number else "/documents", f"“{title}” is uploaded.")


def _own(request: Request, number: str) -> Row:
    found = (
        request.db.row("select * from documents where id = $1 and person_id = $2", number, request.me)
        if number.isdigit() and len(number) < 10
        else None
    )
    if found is None:
        raise Problem(404, "You have no such document.")
    return found


@route("GET", "/documents/{number}")
def download(request: Request, number: str) -> Response:
    found = _own(request, number)
    try:
        data = (directory() / found["stored"]).read_bytes()
    except OSError:
        raise Problem(410, "The file of this document is gone.") from None
    return Response(
        data,
        media_type="application/octet-stream",
        headers=[("Content-Disposition", f"attachment; filename*=UTF-8''{quote(found['filename'])}")],
    )


@route("POST", "/documents/{number}/delete")
def delete(request: Request, number: str) -> Response:
    found = _own(request, number)
    request.db.rows("delete from documents where id = $1", found["id"])
    (directory() / found["stored"]).unlink(missing_ok=True)
    return redirect("/documents", f"“{found['title']}” is deleted.")
