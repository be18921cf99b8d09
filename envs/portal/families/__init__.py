"""The families of the portal's tasks: each makes three easy, three medium and two hard ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from envs.portal.draft import Draft, World
from envs.portal.families.account import account
from envs.portal.families.buying import cart, order
from envs.portal.families.device import display, draft, offline
from envs.portal.families.lists import lists
from envs.portal.families.office import decide, upload

COUNTS: Mapping[str, int] = {"easy": 3, "medium": 3, "hard": 2}
FAMILIES: Mapping[str, Callable[[World], Iterator[Draft]]] = {
    "account": account,
    "cart": cart,
    "decide": decide,
    "display": display,
    "draft": draft,
    "list": lists,
    "offline": offline,
    "order": order,
    "upload": upload,
}
