"""Settings that the server keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envs.portal.draft import Claim, Draft, Row, World, among, holds, lit, opening

_LANGUAGES = {"en": "English", "de": "Deutsch", "fr": "Français", "sv": "Svenska"}
_MAILS = {"all": "Every change", "shipped": "When it is shipped", "none": "Never"}


def account(world: World) -> Iterator[Draft]:
    """Change one's own settings, some or many, and end old sessions."""
    people = world.people("account", "id > 8")
    for n, person in enumerate(people[:3]):
        yield _contact(world, person, f"+46 8 555 {2001 + 311 * n}", f"{'ABC'[n]}{n + 1}.{31 + n}")
    for n, person in enumerate(people[3:6]):
        yield _mail(world, person, n)
    owners = [p for p in people[6:] if len(_sessions(world, p)) >= 3]
    for person, colleague in zip(owners[:2], world.people("moving", "id <= 8"), strict=False):
        yield _move(world, person, colleague)


def _settings(world: World, person: Row, changes: Mapping[str, Any]) -> tuple[Claim, ...]:
    row = f"id = {person['id']}"
    wanted = " and ".join(f"{name} = {lit(value)}" for name, value in changes.items())
    return (
        holds("the settings are as asked", f"exists (select from portal.people where {row} and {wanted})"),
        *world.rest_of_row("portal.people", row, tuple(changes)),
    )


def _contact(world: World, person: Row, phone: str, room: str) -> Draft:
    return Draft(
        difficulty="easy",
        prompt=opening(person) + f"You moved to room {room} and have a new phone number, {phone}. Change both in your settings.",
        claims=(*_settings(world, person, {"phone": phone, "room": room}), *world.rest("people")),
        solution=(("sign_in", person["login"]), ("account", {"phone": phone, "room": room})),
        wrong=(("sign_in", person["login"]), ("account", {"phone": phone})),
    )


def _mail(world: World, person: Row, n: int) -> Draft:
    def another(among: Mapping[str, str] | tuple[str, ...], now: str) -> str:
        return [each for each in among if each != now][n % (len(among) - 1)]

    language, mail = another(_LANGUAGES, person["language"]), another(_MAILS, person["order_mail"])
    changes = {
        "language": language,
        "order_mail": mail,
        "newsletter": not person["newsletter"],
        "signature": f"{person['name']}\nLindworks AB",
    }
    less = {key: value for key, value in changes.items() if key != "newsletter"}
    return Draft(
        difficulty="medium",
        prompt=opening(person)
        + f"In your settings choose {_LANGUAGES[language]} as language, '{_MAILS[mail]}' for mail about your orders, and"
        f" {'un' if person['newsletter'] else ''}subscribe {'from' if person['newsletter'] else 'to'} the "
        f"newsletter. Your signature becomes two lines: your"
        " name, and below it 'Lindworks AB'. The other settings stay.",
        claims=(*_settings(world, person, changes), *world.rest("people")),
        solution=(("sign_in", person["login"]), ("account", changes)),
        wrong=(("sign_in", person["login"]), ("account", less)),
    )


def _sessions(world: World, person: Row) -> list[Row]:
    return list(
        world.rows(f"select id, created_at, seen_at from portal.sessions where person_id = {person['id']} order by seen_at")
    )


def _move(world: World, person: Row, colleague: Row) -> Draft:
    sessions = _sessions(world, person)
    *old, newest = sessions
    day = f"{newest['seen_at']:%Y-%m-%d}"
    old = [s for s in old if f"{s['seen_at']:%Y-%m-%d}" < day]
    ids = among(s["id"] for s in old)
    changes = {"room": colleague["room"], "place_id": colleague["place_id"]}
    begin = (("sign_in", person["login"]), ("account", changes))
    ends = tuple(("end_session", s["id"]) for s in old)
    return Draft(
        difficulty="hard",
        prompt=opening(person) + f"You share the office of {colleague['name']} now: take over room and delivery place from the "
        f"directory into your settings."
        f" And sign out all your devices that were last seen before {day}.",
        claims=(
            *_settings(world, person, changes),
            holds("the old devices are signed out", f"not exists (select from portal.sessions where id in {ids})"),
            world.earlier_sessions(but=f"id in {ids}"),
            *world.rest("people", "sessions"),
        ),
        solution=(*begin, *ends),
        wrong=(*begin, *ends, ("end_session", newest["id"])),
    )
