"""Settings: those of the account, which the server keeps, and those of the device, which the browser keeps."""

from __future__ import annotations

import re

from .. import security
from ..http import Problem, Request, Response, redirect
from ..layout import crumbs, page, token_field
from ..markup import checked, h, options
from ..routes import route

LANGUAGES = {"en": "English", "de": "Deutsch", "fr": "Français", "sv": "Svenska"}
MAILS = {"all": "Every change", "shipped": "When it is shipped", "none": "Never"}
DIGESTS = {"daily": "Every day", "weekly": "Every week", "never": "Never"}
_PAGE = """<h1>Settings</h1><p class="tabs"><b>Account</b> <a href="/settings/display">Display on this device</a></p>
<form method="post" action="/settings" class="card stack">{token}<h2>About me</h2>
<label>Phone <input name="phone" maxlength="30" value="{phone}"></label><label>Room
<input name="room" maxlength="10" value="{room}"></label>
<label>Deliveries to <select name="place">{places}</select></label><label>Language
<select name="language">{languages}</select></label>
<label>Signature <textarea name="signature" rows="2" maxlength="200">{signature}</textarea></label>
<h2>Mail</h2><label>About my orders <select name="order_mail">{mails}</select></label><label>Summary of requests
<select name="digest">{digests}</select></label>
<label class="check"><input type="checkbox" name="newsletter" value="1"{newsletter}> Newsletter</label>
<button class="primary">Save settings</button></form>
<section class="card"><h2>Signed-in devices</h2><div class="table-wrap"><table class="grid"><thead><tr><th>Device</th>
<th>Signed in</th><th>Last seen</th><th></th></tr></thead><tbody>{devices}</tbody></table></div></section>
<form method="post" action="/settings/password" class="card stack">{token}<h2>Password</h2><label>Present password
<input type="password" name="old" autocomplete="current-password" required></label>
<label>New password <input type="password" name="new" autocomplete="new-password" minlength="10" required></label>
<button>Change password</button></form>"""
_DEVICE = """<tr data-session="{id}"><td data-label="Device">{device}</td><td data-label="Signed in">{created}</td>
<td data-label="Last seen">{seen}</td><td class="actions">{end}</td></tr>"""


@route("GET", "/settings")
def settings(request: Request) -> Response:
    assert request.person is not None
    assert request.session is not None
    me = request.person
    places = request.db.rows("select id, code, name from places order by id")
    sessions = request.db.rows("select * from sessions where person_id = $1 order by id", request.me)
    end = (
        '<form method="post" action="/settings/devices/{id}/end">{t}<button aria-label="Sign out '
        '{device} of {d}">Sign out</button></form>'
    )
    devices = []
    for s in sessions:
        own = s["id"] == request.session["id"]
        times = {"created": f"{s['created_at']:%Y-%m-%d %H:%M}", "seen": f"{s['seen_at']:%Y-%m-%d %H:%M}"}
        devices.append(
            h(
                _DEVICE,
                end="This one" if own else h(end, id=s["id"], t=token_field(request), device=s["device"], d=times["created"]),
                **times,
                **s,
            )
        )
    return page(
        request,
        "Settings",
        h(
            _PAGE,
            token=token_field(request),
            phone=me["phone"],
            room=me["room"],
            signature=me["signature"],
            newsletter=checked(me["newsletter"]),
            places=options(((p["id"], f"{p['code']} {p['name']}") for p in places), me["place_id"]),
            languages=options(LANGUAGES.items(), me["language"]),
            mails=options(MAILS.items(), me["order_mail"]),
            digests=options(DIGESTS.items(), me["digest"]),
            devices=devices,
        ),
    )


@route("POST", "/settings")
def save(request: Request) -> Response:
    phone, room = request.text("phone", limit=30), request.text("room", limit=10)
    if not re.fullmatch(r"[0-9 +()/-]*", phone):
        raise Problem(400, "“Phone” may hold digits, spaces and + ( ) / - only.")
    place = request.number("place", 1, 999)
    if request.db.value("select id from places where id = $1", place) is None:
        raise Problem(400, "There is no such place.")
    request.db.rows(
        "update people set phone = $2, room = $3, place_id = $4, language = $5, signature = $6, "
        "order_mail = $7, digest = $8, newsletter = $9 where id = $1",
        request.me,
        phone,
        room,
        place,
        request.choice("language", LANGUAGES),
        request.text("signature"),
        request.choice("order_mail", MAILS),
        request.choice("digest", DIGESTS),
        request.text("newsletter") == "1",
    )
    return redirect("/settings", "Your settings are saved.")


@route("POST", "/settings/devices/{number}/end")
def end_session(request: Request, number: str) -> Response:
    if not number.isdigit() or not request.db.rows(
        "delete from sessions where id = $1 and person_id = $2 returning id", number[:9], request.me
    ):
        raise Problem(404, "There is no such device.")
    return redirect("/settings", "The device is signed out.")


@route("POST", "/settings/password")
def password(request: Request) -> Response:
    assert request.person is not None
    old, new = ((request.form().get(name) or [""])[-1][:200] for name in ("old", "new"))
    if not security.matches(old, request.person["password"]):
        raise Problem(403, "The present password is wrong.")
    if len(new) < 10:
        raise Problem(400, "The new password needs at least 10 characters.")
    request.db.rows("update people set password = $2 where id = $1", request.me, security.new_hash(new))
    return redirect("/settings", "Your password is changed.")


_DISPLAY = """{crumbs}<h1>Display on this device</h1><form class="card stack" data-display-form>
<label>Theme <select name="theme">{themes}</select></label><label>Text size <select name="text">{texts}</select></label>
<label>Row spacing <select name="spacing">{spacings}</select></label>
<label>Products a page <select name="size">{sizes}</select></label><label>Start page <select name="start">{starts}</select></label>
<fieldset><legend>Columns of the catalogue</legend><label class="check">
<input type="checkbox" name="column" value="pack"> Pack</label>
<label class="check"><input type="checkbox" name="column" value="rating"> Rating</label><label class="check">
<input type="checkbox" name="column" value="lead"> Lead time</label></fieldset>
<label class="check"><input type="checkbox" name="save_data"> Save data: no suggestions while typing</label>
<div class="actions"><button class="primary">Save on this device</button>
<button type="button" data-display-reset>Back to the defaults</button></div>
<p class="muted" data-display-state role="status"></p></form>"""


@route("GET", "/settings/display")
def display(request: Request) -> Response:
    def of(*names: str) -> object:
        return options(((n, n.capitalize()) for n in names), "")

    return page(
        request,
        "Display",
        h(
            _DISPLAY,
            crumbs=crumbs(("/settings", "Settings")),
            themes=of("system", "light", "dark"),
            texts=of("small", "normal", "large"),
            spacings=of("compact", "normal", "relaxed"),
            sizes=of("12", "24", "48"),
            starts=of("home", "orders", "catalogue", "requests"),
        ),
    )
