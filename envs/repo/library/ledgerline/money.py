"""Exact amounts of money in minor units."""

from __future__ import annotations

from collections.abc import Iterable
from functools import total_ordering

EXPONENTS = {"EUR": 2, "USD": 2, "GBP": 2, "JPY": 0, "KWD": 3}


class CurrencyMismatch(ValueError):
    """Two amounts of different currencies met in one operation."""


@total_ordering
class Money:
    """An amount: `minor` cents (or fils, or yen) of one currency."""

    __slots__ = ("currency", "minor")

    def __init__(self, minor: int, currency: str = "EUR") -> None:
        if currency not in EXPONENTS:
            raise ValueError(f"unknown currency {currency!r}")
        if isinstance(minor, bool) or not isinstance(minor, int):
            raise TypeError("an amount is a whole number of minor units")
        self.minor = minor
        self.currency = currency

    @classmethod
    def parse(cls, text: str) -> Money:
        """Read `12.50 EUR`, `-3 JPY`, `1,234.5 USD`."""
        number, _, currency = text.strip().rpartition(" ")
        if not number or currency not in EXPONENTS:
            raise ValueError(f"not an amount: {text!r}")
        digits = number.replace(",", "").strip()
        negative = digits.startswith("-")
        whole, _, fraction = digits.lstrip("+-").partition(".")
        exponent = EXPONENTS[currency]
        if not (whole + fraction).isdigit() or len(fraction) > exponent:
            raise ValueError(f"not an amount: {text!r}")
        minor = int(whole or "0") * 10**exponent + int(fraction.ljust(exponent, "0") or "0")
        return cls(-minor if negative else minor, currency)

    def _same(self, other: Money) -> int:
        if self.currency != other.currency:
            raise CurrencyMismatch(f"{self.currency} and {other.currency}")
        return other.minor

    def __add__(self, other: Money) -> Money:
        return Money(self.minor + self._same(other), self.currency)

    def __sub__(self, other: Money) -> Money:
        return Money(self.minor - self._same(other), self.currency)

    def __neg__(self) -> Money:
        return Money(-self.minor, self.currency)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Money):
            return NotImplemented
        return (self.minor, self.currency) == (other.minor, other.currency)

    def __lt__(self, other: Money) -> bool:
        return self.minor < self._same(other)

    def __hash__(self) -> int:
        return hash((self.minor, self.currency))

    def __repr__(self) -> str:
        return f"Money({self.minor}, {self.currency!r})"

    def __str__(self) -> str:
        exponent = EXPONENTS[self.currency]
        whole, rest = divmod(abs(self.minor), 10**exponent)
        sign = "-" if self.minor < 0 else ""
        fraction = f".{rest:0{exponent}d}" if exponent else ""
        return f"{sign}{whole:,}{fraction} {self.currency}"

    def percent(self, rate: int) -> Money:
        """Return `rate` hundredths of a percent of it, rounded half away from zero."""
        scaled = abs(self.minor) * rate
        minor = (scaled + 5_000) // 10_000
        return Money(minor if self.minor >= 0 else -minor, self.currency)

    def allocate(self, weights: list[int]) -> list[Money]:
        """Split it by weight without losing a cent: the first parts take what is left over."""
        total = sum(weights)
        if total <= 0 or any(weight < 0 for weight in weights):
            raise ValueError("weights must be positive")
        shares = [self.minor * weight // total for weight in weights]
        left = self.minor - sum(shares)
        for index, weight in enumerate(weights):
            if left == 0:
                break
            if weight > 0:
                shares[index] += 1
                left -= 1
        return [Money(share, self.currency) for share in shares]


def total(amounts: Iterable[Money], currency: str = "EUR") -> Money:
    """Add them up; nothing at all is zero of `currency`."""
    result: Money | None = None
    for amount in amounts:
        result = amount if result is None else result + amount
    return Money(0, currency) if result is None else result
