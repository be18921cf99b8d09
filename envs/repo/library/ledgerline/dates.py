"""Calendar arithmetic for due dates: months, working days, quarters."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import date, timedelta

MONDAY, SATURDAY = 0, 5


def is_leap(year: int) -> bool:
    """Say whether February has 29 days."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in_month(year: int, month: int) -> int:
    """Return how many days the month has."""
    if month == 2:
        return 29 if is_leap(year) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def add_months(day: date, months: int) -> date:
    """Move by whole months; a day that the month lacks becomes its last one."""
    index = day.year * 12 + day.month - 1 + months
    year, month = divmod(index, 12)
    return date(year, month + 1, min(day.day, days_in_month(year, month + 1)))


def month_end(day: date) -> date:
    """Return the last day of its month."""
    return day.replace(day=days_in_month(day.year, day.month))


def quarter(day: date) -> int:
    """Return 1 to 4."""
    return (day.month - 1) // 3 + 1


def quarter_bounds(year: int, number: int) -> tuple[date, date]:
    """Return the first and the last day of a quarter."""
    if not 1 <= number <= 4:
        raise ValueError(f"no quarter {number}")
    first = date(year, 3 * number - 2, 1)
    return first, month_end(add_months(first, 2))


def is_working_day(day: date, holidays: Collection[date] = ()) -> bool:
    """Say whether it is neither a weekend nor a holiday."""
    return day.weekday() < SATURDAY and day not in holidays


def add_working_days(day: date, count: int, holidays: Collection[date] = ()) -> date:
    """Move by working days; 0 gives the same day, weekend or not."""
    step = timedelta(days=1 if count >= 0 else -1)
    left = abs(count)
    while left > 0:
        day += step
        if is_working_day(day, holidays):
            left -= 1
    return day


def working_days_between(first: date, last: date, holidays: Collection[date] = ()) -> int:
    """Count working days from `first` to `last`, both included; 0 when `last` is earlier."""
    count = 0
    while first <= last:
        if is_working_day(first, holidays):
            count += 1
        first += timedelta(days=1)
    return count


def due_date(invoiced: date, terms: str) -> date:
    """Read payment terms: `net 30`, `eom`, `eom+15`, `due`."""
    words = terms.lower().replace(" ", "")
    if words == "due":
        return invoiced
    if words.startswith("net") and words[3:].isdigit():
        return invoiced + timedelta(days=int(words[3:]))
    if words.startswith("eom"):
        rest = words[3:]
        if rest == "":
            return month_end(invoiced)
        if rest.startswith("+") and rest[1:].isdigit():
            return month_end(invoiced) + timedelta(days=int(rest[1:]))
    raise ValueError(f"unknown terms {terms!r}")


def month_starts(first: date, last: date) -> Iterator[date]:
    """Yield the first day of every month that begins within the two days, both included."""
    day = first if first.day == 1 else add_months(first.replace(day=1), 1)
    while day <= last:
        yield day
        day = add_months(day, 1)


def age_bucket(due: date, today: date) -> str:
    """Say how overdue something is: current, 1-30, 31-60, 61-90, 90+."""
    late = (today - due).days
    if late <= 0:
        return "current"
    if late <= 30:
        return "1-30"
    if late <= 60:
        return "31-60"
    return "61-90" if late <= 90 else "90+"
