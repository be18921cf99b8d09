"""The catalogue: search, filters, and one product."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

from ..http import Problem, Request, Response
from ..layout import crumbs, money, page, token_field
from ..markup import Html, checked, h, options
from ..routes import route
from ..wire import Row

SORTS = {
    "name": ("Name", "p.name"),
    "price": ("Price, lowest first", "p.price, p.name"),
    "-price": ("Price, highest first", "p.price desc, p.name"),
    "rating": ("Rating, best first", "p.rating desc, p.name"),
    "lead": ("Lead time, shortest first", "p.lead_days, p.name"),
}
SIZES = ("12", "24", "48")
_PRODUCT = "select p.*, c.name as category, c.slug from products p join categories c on c.id = p.category_id"

_PAGE = """<h1>Catalogue</h1>
<form class="card filters" action="/catalogue" method="get" aria-label="Filters">
<label>Words <input name="q" value="{q}"></label>
<label>Category <select name="category">{categories}</select></label>
<label>Variant <select name="variant">{variants}</select></label>
<label>Brand <select name="brand">{brands}</select></label>
<label>Price up to <input name="max" inputmode="decimal" value="{max}" size="6"></label>
<label>Sort by <select name="sort">{sorts}</select></label>
<label class="check"><input type="checkbox" name="stock" value="1"{stock}> In stock only</label>
<button class="primary">Show</button> <a href="/catalogue">Clear</a>
</form>
<p class="muted" id="found">{count} products, page {number} of {pages}</p>
<div class="table-wrap"><table class="grid products"><thead><tr><th>Product</th><th>Brand</th>
<th data-column="pack">Pack</th><th data-column="rating">Rating</th>
<th data-column="lead">Lead time</th><th>Stock</th><th class="num">Price</th><th></th></tr></thead>
<tbody>{rows}</tbody></table></div>
<nav class="pager" aria-label="Pages">{pager}</nav>"""

_ROW = """<tr><td data-label="Product"><a href="/product/{sku}">{name}</a> <small>{sku}</small></td>
<td data-label="Brand">{brand}</td>
<td data-label="Pack" data-column="pack">{pack}</td><td data-label="Rating" data-column="rating">{rating}</td>
<td data-label="Lead time" data-column="lead">{lead_days} days</td>
<td data-label="Stock">{stock}</td><td data-label="Price" class="num">{price}</td>
<td><form method="post" action="/cart/add">{token}<input type="hidden" name="sku" value="{sku}">
<input type="hidden" name="quantity" value="1">
<button aria-label="Add {name} to cart">Add</button></form></td></tr>"""


@route("GET", "/catalogue")
def catalogue(request: Request) -> Response:
    where, values = _conditions(request.query)
    sort = request.query.get("sort", "name")
    size = int(request.query["size"]) if request.query.get("size") in SIZES else 24
    count = request.db.value(f"select count(*) from products p join categories c on c.id = p.category_id where {where}", *values)
    pages = max(1, -(-count // size))
    asked = request.query.get("page", "1")
    number = min(max(1, int(asked)), pages) if re.fullmatch("[0-9]{1,4}", asked) else 1
    order = SORTS.get(sort, SORTS["name"])[1]
    found = request.db.rows(f"{_PRODUCT} where {where} order by {order} limit {size} offset {(number - 1) * size}", *values)
    categories = request.db.rows("select slug, name from categories order by name")
    brands = request.db.rows("select distinct brand from products order by 1")
    kept = {k: v for k, v in request.query.items() if k != "page" and v}
    pager = [
        h(
            '<a href="/catalogue?{q}"{c}>{n}</a>',
            q=urlencode({**kept, "page": n}),
            n=n,
            c=Html(' aria-current="page"') if n == number else "",
        )
        for n in range(1, pages + 1)
    ]
    rows = [h(_ROW, **{**p, "price": money(p["price"]), "stock": stock(p), "token": token_field(request)}) for p in found]
    return page(
        request,
        "Catalogue",
        h(
            _PAGE,
            q=request.query.get("q", ""),
            max=request.query.get("max", ""),
            stock=checked(request.query.get("stock") == "1"),
            categories=options([("", "All"), *((c["slug"], c["name"]) for c in categories)], request.query.get("category", "")),
            variants=options([("", "All"), *((v, v) for v in ("Basic", "Plus", "Pro", "Eco"))], request.query.get("variant", "")),
            brands=options([("", "All"), *((b["brand"], b["brand"]) for b in brands)], request.query.get("brand", "")),
            sorts=options([(k, v[0]) for k, v in SORTS.items()], sort),
            count=count,
            number=number,
            pages=pages,
            rows=rows,
            pager=pager if pages > 1 else "",
        ),
    )


def _conditions(query: dict[str, str]) -> tuple[str, list[Any]]:
    parts, values = ["true"], list[Any]()

    def add(condition: str, value: Any) -> None:
        values.append(value)
        parts.append(condition.format(f"${len(values)}"))

    for word in query.get("q", "").split()[:6]:
        escaped = word.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
        add("(p.name || ' ' || p.sku || ' ' || p.brand || ' ' || c.name) ilike {}", f"%{escaped}%")
    if query.get("category"):
        add("c.slug = {}", query["category"])
    if query.get("variant"):
        add("p.variant = {}", query["variant"])
    if query.get("brand"):
        add("p.brand = {}", query["brand"])
    if query.get("max"):
        most = query["max"].replace(",", ".")
        if not re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,2})?", most):
            raise Problem(400, "“Price up to” must be a number.")
        add("p.price <= {}::numeric", most)
    if query.get("stock") == "1":
        parts.append("p.stock > 0")
    return " and ".join(parts), values


def stock(product: Row) -> Html:
    return (
        h('<span class="in">{n} in stock</span>', n=product["stock"])
        if product["stock"]
        else h('<span class="out">Out of stock</span>')
    )


def by_sku(request: Request, sku: str) -> Row:
    found = request.db.row(f"{_PRODUCT} where p.sku = $1", sku)
    if found is None:
        raise Problem(404, f"There is no product {sku}.")
    return found


_ONE = """{crumbs}<article class="card product" data-viewed="{sku}" data-name="{name}">
<div class="picture" aria-hidden="true">{initials}</div>
<div><h1>{name}</h1><p class="muted">{sku} · {brand} · {pack}</p><p class="price">{price}</p><p>{stock}</p><p>{description}</p>
<dl class="facts"><dt>Article</dt><dd>{article}</dd><dt>Variant</dt><dd>{variant}</dd><dt>Rating</dt><dd>{rating} of 5</dd>
<dt>Lead time</dt><dd>{lead_days} days</dd></dl>
<form method="post" action="/cart/add" class="inline">{token}<input type="hidden" name="sku" value="{sku}">
<label>Quantity <input name="quantity" type="number" min="1" max="999" value="1"></label>
<button class="primary">Add to cart</button></form>
<form method="post" action="/lists/put" class="inline">{token}<input type="hidden" name="sku" value="{sku}">
<label>List <select name="list">{lists}</select></label><label>Note <input name="note" maxlength="80"></label>
<button>Put on list</button></form>
</div></article>
<section class="card"><h2>The same article</h2><ul class="lines">{others}</ul></section>"""


@route("GET", "/product/{sku}")
def product(request: Request, sku: str) -> Response:
    found = by_sku(request, sku)
    others = request.db.rows("select * from products where article = $1 and id <> $2 order by price", found["article"], found["id"])
    lists = request.db.rows("select id, name from lists where person_id = $1 order by name", request.me)
    lines = [
        h('<li><a href="/product/{sku}">{name}</a> {s} <span class="right">{m}</span></li>', s=stock(o), m=money(o["price"]), **o)
        for o in others
    ]
    return page(
        request,
        found["name"],
        h(
            _ONE,
            **{**found, "price": money(found["price"]), "stock": stock(found)},
            token=token_field(request),
            others=lines,
            initials="".join(w[0] for w in found["article"].split()[:2]).upper(),
            lists=options(((x["id"], x["name"]) for x in lists), ""),
            crumbs=crumbs(("/catalogue", "Catalogue"), (f"/catalogue?category={found['slug']}", found["category"])),
        ),
    )
