"""Numbers about numbers: percentiles, moving values, histograms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def mean(values: Sequence[float]) -> float:
    """Return the mean; refuse nothing at all."""
    if not values:
        raise ValueError("no values")
    return sum(values) / len(values)


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two in the middle."""
    return percentile(values, 50)


def percentile(values: Sequence[float], rank: float) -> float:
    """Return a percentile with linear interpolation."""
    if not values:
        raise ValueError("no values")
    if not 0 <= rank <= 100:
        raise ValueError("a percentile lies between 0 and 100")
    ordered = sorted(values)
    place = (len(ordered) - 1) * rank / 100
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def variance(values: Sequence[float], sample: bool = True) -> float:
    """Return the variance: of a sample, or of everything there is."""
    divisor = len(values) - 1 if sample else len(values)
    if divisor < 1:
        raise ValueError("too few values")
    middle = mean(values)
    return sum((value - middle) ** 2 for value in values) / divisor


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Return the mean of each full window."""
    if window < 1:
        raise ValueError("a window holds at least one value")
    return [mean(values[end - window : end]) for end in range(window, len(values) + 1)]


def histogram(values: Iterable[float], edges: Sequence[float]) -> list[int]:
    """Count values between neighbouring edges; the last bin includes its upper edge, what lies outside is left out."""
    if list(edges) != sorted(set(edges)) or len(edges) < 2:
        raise ValueError("edges must rise")
    counts = [0] * (len(edges) - 1)
    for value in values:
        for index in range(len(counts)):
            last = index == len(counts) - 1
            if edges[index] <= value < edges[index + 1] or (last and value == edges[-1]):
                counts[index] += 1
                break
    return counts


def mode(values: Sequence[float]) -> list[float]:
    """Return the most frequent values in rising order."""
    counts: dict[float, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    most = max(counts.values(), default=0)
    return sorted(value for value, count in counts.items() if count == most)


def ranks(values: Sequence[float]) -> list[float]:
    """Return each value's rank from 1 on; equal values share the mean of theirs."""
    ordered = sorted(range(len(values)), key=lambda i: values[i])
    out = [0.0] * len(values)
    start = 0
    while start < len(ordered):
        end = start
        while end + 1 < len(ordered) and values[ordered[end + 1]] == values[ordered[start]]:
            end += 1
        for place in range(start, end + 1):
            out[ordered[place]] = (start + end) / 2 + 1
        start = end + 1
    return out


def growth(values: Sequence[float]) -> list[float | None]:
    """Return each step's change relative to the value before; None after a zero."""
    return [(now - before) / before if before else None for before, now in zip(values, values[1:])]


def outliers(values: Sequence[float], reach: float = 1.5) -> list[float]:
    """Return values further than `reach` quartile distances outside the middle half, in their order."""
    if len(values) < 4:
        return []
    low, high = percentile(values, 25), percentile(values, 75)
    margin = (high - low) * reach
    return [value for value in values if value < low - margin or value > high + margin]
