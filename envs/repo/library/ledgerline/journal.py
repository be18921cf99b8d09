"""Double-entry bookkeeping: accounts, balanced entries, balances, statements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date

from .money import CurrencyMismatch, Money

DEBIT_KINDS = ("asset", "expense")
CREDIT_KINDS = ("liability", "equity", "income")


class Unbalanced(ValueError):
    """Debits and credits of an entry differ."""


@dataclass(frozen=True)
class Account:
    """`kind` decides on which side the account grows."""

    code: str
    name: str
    kind: str

    def __post_init__(self) -> None:
        if self.kind not in DEBIT_KINDS + CREDIT_KINDS:
            raise ValueError(f"unknown kind {self.kind!r}")

    @property
    def grows_by_debit(self) -> bool:
        return self.kind in DEBIT_KINDS


@dataclass(frozen=True)
class Line:
    """One side of an entry: positive is debit, negative is credit."""

    account: str
    amount: Money


@dataclass(frozen=True)
class Entry:
    day: date
    text: str
    lines: tuple[Line, ...]
    number: int = 0


@dataclass
class Journal:
    """All entries in order, and the accounts they may use."""

    currency: str = "EUR"
    accounts: dict[str, Account] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    closed_until: date | None = None

    def open(self, code: str, name: str, kind: str) -> Account:
        if code in self.accounts:
            raise ValueError(f"account {code} exists")
        account = Account(code, name, kind)
        self.accounts[code] = account
        return account

    def post(self, day: date, text: str, *lines: tuple[str, Money]) -> Entry:
        """Add a balanced entry of at least two lines; nothing may fall into a closed period."""
        if self.closed_until is not None and day <= self.closed_until:
            raise ValueError(f"the books are closed until {self.closed_until}")
        if len(lines) < 2:
            raise Unbalanced("an entry has at least two lines")
        balance = Money(0, self.currency)
        for code, amount in lines:
            if code not in self.accounts:
                raise KeyError(code)
            if amount.currency != self.currency:
                raise CurrencyMismatch(f"{amount.currency} in a journal of {self.currency}")
            balance = balance + amount
        if balance.minor != 0:
            raise Unbalanced(f"off by {balance}")
        entry = Entry(day, text, tuple(Line(c, a) for c, a in lines), len(self.entries) + 1)
        self.entries.append(entry)
        return entry

    def reverse(self, number: int, day: date) -> Entry:
        """Post the opposite of an entry."""
        if not 1 <= number <= len(self.entries):
            raise LookupError(f"no entry {number}")
        old = self.entries[number - 1]
        return self.post(day, f"reversal of {number}", *((line.account, -line.amount) for line in old.lines))

    def balance(self, code: str, until: date | None = None) -> Money:
        """Return an account's balance, positive on the side where it grows; `until` is included."""
        account = self.accounts[code]
        minor = 0
        for entry in self.entries:
            if until is not None and entry.day > until:
                continue
            minor += sum(line.amount.minor for line in entry.lines if line.account == code)
        return Money(minor if account.grows_by_debit else -minor, self.currency)

    def trial_balance(self) -> dict[str, tuple[int, int]]:
        """Return debit and credit totals of each account that was used, by code."""
        out: dict[str, tuple[int, int]] = {}
        for entry in self.entries:
            for line in entry.lines:
                debit, credit = out.get(line.account, (0, 0))
                if line.amount.minor >= 0:
                    debit += line.amount.minor
                else:
                    credit -= line.amount.minor
                out[line.account] = (debit, credit)
        return dict(sorted(out.items()))

    def statement(self, code: str) -> list[tuple[date, str, int, int]]:
        """Return day, text, change and running balance of each line of an account, by day, then by number."""
        running = 0
        sign = 1 if self.accounts[code].grows_by_debit else -1
        out = []
        for entry in sorted(self.entries, key=lambda e: (e.day, e.number)):
            for line in entry.lines:
                if line.account == code:
                    change = sign * line.amount.minor
                    running += change
                    out.append((entry.day, entry.text, change, running))
        return out

    def profit(self, first: date, last: date) -> Money:
        """Return income less expenses of the days from `first` to `last`, both included."""
        minor = 0
        for entry in self.entries:
            if first <= entry.day <= last:
                for line in entry.lines:
                    if self.accounts[line.account].kind in ("income", "expense"):
                        minor -= line.amount.minor
        return Money(minor, self.currency)

    def close(self, until: date) -> None:
        """Allow no more entries up to that day; closing never goes back."""
        if self.closed_until is not None and until < self.closed_until:
            raise ValueError("closed periods stay closed")
        self.closed_until = until


def match_payments(invoices: Iterable[tuple[str, int]], payment: int) -> tuple[dict[str, int], int]:
    """Spread a payment over invoices in the given order; return what each got and what is left."""
    paid: dict[str, int] = {}
    left = payment
    for number, amount in invoices:
        part = min(amount, left)
        if part <= 0:
            break
        paid[number] = part
        left -= part
    return paid, left
