"""The directory of colleagues."""

from __future__ import annotations

from ..http import Request, Response
from ..layout import page
from ..markup import h, options
from ..routes import route

_ALL = """<h1>Directory</h1><form class="card filters" action="/directory"><label>Name <input name="q" value="{q}"></label>
<label>Department <select name="department">{departments}</select></label><button>Show</button></form>
<div class="table-wrap"><table class="grid"><thead><tr><th>Name</th><th>Department</th><th>Role</th><th>Phone</th>
<th>Room</th><th>Deliveries to</th></tr></thead><tbody>{rows}</tbody></table></div>"""
_ROW = """<tr><td data-label="Name">{name}<br><small>{email}</small></td><td data-label="Department">{department}</td>
<td data-label="Role">{role}</td><td data-label="Phone">{phone}</td><td data-label="Room">{room}</td>
<td data-label="Deliveries to">{code} {place}</td></tr>"""


@route("GET", "/directory")
def directory(request: Request) -> Response:
    words = request.query.get("q", "").replace("\\", "").replace("%", "").replace("_", "")
    code = request.query.get("department", "")
    found = request.db.rows(
        "select p.name, p.email, p.role, p.phone, p.room, d.name as department, l.code, l.name as place "
        "from people p join departments d on d.id = p.department_id"
        " join places l on l.id = p.place_id where p.name ilike $1 and ($2 = '' or d.code = $2) order by p.name",
        f"%{words}%",
        code,
    )
    departments = request.db.rows("select code, name from departments order by name")
    return page(
        request,
        "Directory",
        h(
            _ALL,
            q=request.query.get("q", ""),
            rows=[h(_ROW, **p) for p in found],
            departments=options([("", "All"), *((d["code"], d["name"]) for d in departments)], code),
        ),
    )
