"""What to do about trajectories that are too old: nothing, publish more often, or change the boundary; by what each costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

GROWS = 0.01  # of the share, a window
MATTERS = 0.05  # of all finished trajectories

KEEP, PUBLISH, HORIZON, BOUNDARY = "keep", "publish more often", "shorten the collection horizon", "move the boundary"


def advise(found: Mapping[str, Any], *, places: int, max_gap: int, batch_groups: int) -> dict[str, Any]:
    """Return one response and the inequality behind it. `found` is what `meters.staleness` says of a run.

    Publishing twice as often costs one more publication for each there was, during which `places` requests stand still; it pays
    when that is less than what was spent on the trajectories that were too old. Otherwise less is to be collected for each update,
    or, where batches cannot be smaller, the boundary moved to where the algorithm still takes such data.
    """
    share, trend = found["share"] or 0.0, found["trend"] or 0.0
    seconds = found["publication_s"]
    overhead = None if seconds is None else found["publications"] * seconds * places
    told = {
        "share": share,
        "trend": trend,
        "overhead_s": None if overhead is None else round(overhead, 4),
        "stale_cost_s": found["lost_s"],
        "max_gap": max_gap,
    }
    if share < MATTERS and trend < GROWS:
        return {"advice": KEEP, "why": f"{share:.1%} are too old, and the share does not grow", **told}
    if overhead is not None and overhead < found["lost_s"]:
        why = f"one more publication each costs {overhead:g} place-seconds, what was too old had cost {found['lost_s']:g} s"
        return {"advice": PUBLISH, "why": why, **told}
    costs = "no publication was measured" if overhead is None else f"publishing costs {overhead:g} place-seconds, more than is lost"
    if batch_groups > 1:
        return {"advice": HORIZON, "why": f"{costs}: fewer groups for each update ({batch_groups} now)", **told}
    why = f"{costs}, and a batch is one group already: a gap above {max_gap} where the algorithm takes it"
    return {"advice": BOUNDARY, "why": why, **told}
