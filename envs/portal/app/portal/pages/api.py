"""What the pages' scripts ask for, as JSON."""

from __future__ import annotations

from ..http import Request, Response, as_json
from ..routes import route
from .cart import put
from .catalogue import by_sku


@route("GET", "/api/search")
def search(request: Request) -> Response:
    """Suggest products while somebody types."""
    words = request.query.get("q", "").replace("\\", "").replace("%", "").replace("_", "")
    if len(words) < 2:
        return as_json({"products": []})
    found = request.db.rows(
        "select sku, name, price from products where name ilike $1 or sku ilike $1 order by name limit 8", f"%{words}%"
    )
    return as_json({"products": found})


@route("GET", "/api/cart")
def cart(request: Request) -> Response:
    lines = request.db.rows(
        "select p.sku, p.name, l.quantity, l.later from cart_lines l join products p on p.id = "
        "l.product_id where l.person_id = $1 order by l.added_at, p.id",
        request.me,
    )
    return as_json({"lines": lines, "count": sum(line["quantity"] for line in lines if not line["later"])})


@route("POST", "/api/cart")
def add(request: Request) -> Response:
    put(request, by_sku(request, request.text("sku")), request.number("quantity", 1, 999))
    return cart(request)
