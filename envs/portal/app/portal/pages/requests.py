"""Requests to the manager: asking, talking about it, deciding."""

from __future__ import annotations

import re

from ..http import Problem, Request, Response, redirect
from ..layout import badge, crumbs, day, money, page, token_field
from ..markup import h, options
from ..routes import route
from ..wire import Row

KINDS = ("equipment", "training", "travel", "access")
STATES = ("open", "approved", "declined", "withdrawn")
_ALL = """<h1>Requests</h1><p class="actions"><a class="button primary" href="/requests/new">New request</a></p>
<section class="card" data-drafts-home hidden><h2>Drafts on this device</h2><ul class="lines" data-drafts></ul></section>
<form class="card filters" action="/requests"><label>Show <select name="whose">{whose}</select></label><label>Status
<select name="status">{states}</select></label>
<label>Kind <select name="kind">{kinds}</select></label><button>Show</button></form>
<div class="table-wrap"><table class="grid"><thead><tr><th>Number</th><th>Title</th><th>Kind</th><th>From</th><th>Asked</th>
<th>Needed by</th><th class="num">Amount</th><th>Status</th></tr></thead><tbody>{rows}</tbody></table></div>"""
_ROW = """<tr><td data-label="Number"><a href="/requests/{number}">{number}</a></td><td data-label="Title">{title}</td>
<td data-label="Kind">{kind}</td><td data-label="From">{who}</td>
<td data-label="Asked">{asked}</td><td data-label="Needed by">{needed}</td><td data-label="Amount" class="num">{money}</td>
<td data-label="Status">{badge}</td></tr>"""
_SEE = (
    "select r.*, p.name as who, m.name as decider from requests r join people p on p.id = "
    "r.person_id left join people m on m.id = r.decided_by where "
)


def _manager(request: Request) -> bool:
    return request.person is not None and request.person["role"] == "manager"


@route("GET", "/requests")
def requests(request: Request) -> Response:
    assert request.person is not None
    whose = request.query.get("whose") or ("department" if _manager(request) else "mine")
    department = whose == "department" and _manager(request)
    status, kind = request.query.get("status", ""), request.query.get("kind", "")
    found = request.db.rows(
        _SEE
        + ("r.department_id = $1" if department else "r.person_id = $1")
        + " and ($2 = '' or r.status = $2) and ($3 = '' or r.kind = $3) order by r.id desc",
        request.person["department_id"] if department else request.me,
        status,
        kind,
    )
    rows = [
        h(_ROW, asked=day(r["created_at"]), needed=day(r["needed_by"]), money=money(r["amount"]), badge=badge(r["status"]), **r)
        for r in found
    ]
    choices = [("mine", "My own"), *([("department", "My department's")] if _manager(request) else [])]
    return page(
        request,
        "Requests",
        h(
            _ALL,
            rows=rows,
            whose=options(choices, whose),
            states=options([("", "All"), *((s, s.capitalize()) for s in STATES)], status),
            kinds=options([("", "All"), *((k, k.capitalize()) for k in KINDS)], kind),
        ),
    )


_NEW = """{crumbs}<h1>New request</h1>
<form method="post" action="/requests/new" class="card stack" data-draft-form>{token}<input type="hidden" name="draft" value="">
<label>Kind <select name="kind">{kinds}</select></label>
<label>Title <input name="title" maxlength="100" required></label>
<label>Reason <textarea name="body" rows="5" maxlength="2000"></textarea></label>
<label>Amount in euro <input name="amount" inputmode="decimal" value="0"></label>
<label>Needed by <input name="needed_by" type="date"></label>
<p class="muted" data-draft-state>Not saved on this device.</p>
<div class="actions"><button class="primary">Send request</button>
<button type="button" data-draft-save>Save draft on this device</button>
<button type="button" class="danger" data-draft-discard hidden>Discard draft</button></div></form>"""


@route("GET", "/requests/new")
def new_form(request: Request) -> Response:
    return page(
        request,
        "New request",
        h(
            _NEW,
            crumbs=crumbs(("/requests", "Requests")),
            token=token_field(request),
            kinds=options(((k, k.capitalize()) for k in KINDS), "equipment"),
        ),
    )


@route("POST", "/requests/new")
def create(request: Request) -> Response:
    assert request.person is not None
    amount = request.text("amount").replace(",", ".") or "0"
    needed = request.text("needed_by")
    if not re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,2})?", amount):
        raise Problem(400, "“Amount in euro” must be a number with at most two decimals.")
    if needed and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", needed):
        raise Problem(400, "“Needed by” must be a date.")
    values = (
        request.choice("kind", KINDS),
        request.text("title", limit=100, needed=True),
        request.text("body", limit=2000),
        amount,
        needed or None,
    )
    with request.db.transaction():
        key = request.db.value("select nextval(pg_get_serial_sequence('portal.requests', 'id'))")
        number = str(request.db.value("select next_number('REQ', $1)", key))
        request.db.rows(
            "insert into requests (id, number, person_id, department_id, kind, title, body, amount, "
            "needed_by) values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
            key,
            number,
            request.me,
            request.person["department_id"],
            *values,
        )
        request.db.rows("insert into events (person_id, what, detail) values ($1, 'request sent', $2)", request.me, number)
    sent = request.text("draft")
    return redirect(f"/requests/{number}{'?sent=' + sent if sent.isdigit() else ''}", f"Request {number} is sent.")


def _seen(request: Request, number: str) -> Row:
    assert request.person is not None
    found = request.db.row(_SEE + "r.number = $1", number)
    allowed = found and (
        found["person_id"] == request.me or (_manager(request) and found["department_id"] == request.person["department_id"])
    )
    if not found or not allowed:
        raise Problem(404, f"There is no request {number} that you may see.")
    return found


_ONE = """{crumbs}<h1>{title} {badge}</h1><section class="card" data-request="{number}"><dl class="facts"><dt>Number</dt>
<dd>{number}</dd><dt>From</dt><dd>{who}</dd><dt>Kind</dt><dd data-kind>{kind}</dd>
<dt>Amount</dt><dd data-amount="{amount}">{money}</dd><dt>Asked</dt><dd>{asked}</dd><dt>Needed by</dt>
<dd data-needed>{needed}</dd>{decision}</dl><p data-body>{body}</p>
<div class="actions">
<button type="button" data-draft-copy data-title="{title}">Copy into a new draft</button>{withdraw}</div></section>
{decide}
<section class="card"><h2>Comments</h2><ul class="talk">{comments}</ul>
<form method="post" action="/requests/{number}/comment" class="stack">{token}<label>Comment
<textarea name="body" rows="2" maxlength="500" required></textarea></label><button>Add comment</button></form></section>"""
_DECIDE = """<form method="post" action="/requests/{n}/decide" class="card stack">{t}<h2>Decision</h2><label>Note
<input name="note" maxlength="200"></label>
<div class="actions"><button class="primary" name="decision" value="approved">Approve</button>
<button class="danger" name="decision" value="declined">Decline</button></div></form>"""


@route("GET", "/requests/{number}")
def one(request: Request, number: str) -> Response:
    found = _seen(request, number)
    said = request.db.rows(
        "select c.*, p.name as who from request_comments c join people p on p.id = c.person_id where "
        "c.request_id = $1 order by c.id",
        found["id"],
    )
    decision = h("<dt>Decided</dt><dd>{status} by {decider}: {decision_note}</dd>", **found) if found["decided_by"] else ""
    withdraw = h(
        '<form method="post" action="/requests/{n}/withdraw">{t}<button class="danger">Withdraw</button></form>',
        n=number,
        t=token_field(request),
    )
    mine = found["person_id"] == request.me
    open_ = found["status"] == "open"
    return page(
        request,
        number,
        h(
            _ONE,
            crumbs=crumbs(("/requests", "Requests")),
            badge=badge(found["status"]),
            money=money(found["amount"]),
            asked=day(found["created_at"]),
            needed=day(found["needed_by"]),
            decision=decision,
            withdraw=withdraw if mine and open_ else "",
            token=token_field(request),
            decide=h(_DECIDE, n=number, t=token_field(request)) if open_ and not mine and _manager(request) else "",
            comments=[h("<li><b>{who}</b> <small>{d}</small><p>{body}</p></li>", d=day(c["created_at"]), **c) for c in said]
            or h("<li>None.</li>"),
            **found,
        ),
    )


@route("POST", "/requests/{number}/{what}")
def act(request: Request, number: str, what: str) -> Response:
    found = _seen(request, number)
    if what == "comment":
        request.db.rows(
            "insert into request_comments (request_id, person_id, body) values ($1, $2, $3)",
            found["id"],
            request.me,
            request.text("body", limit=500, needed=True),
        )
        return redirect(f"/requests/{number}", "Your comment is there.")
    mine = found["person_id"] == request.me
    if what == "withdraw" and mine:
        done = request.db.rows(
            "update requests set status = 'withdrawn' where id = $1 and status = 'open' returning id", found["id"]
        )
    elif what == "decide" and not mine and _manager(request):
        done = request.db.rows(
            "update requests set status = $2, decided_by = $3, decided_at = now(), decision_note = $4 where "
            "id = $1 and status = 'open' returning id",
            found["id"],
            request.choice("decision", ("approved", "declined")),
            request.me,
            request.text("note"),
        )
    else:
        raise Problem(403, "You may not do that with this request.")
    if not done:
        raise Problem(409, f"Request {number} is {found['status']} already.")
    return redirect(
        f"/requests/{number}", f"Request {number} is {'withdrawn' if what == 'withdraw' else request.text('decision')}."
    )
