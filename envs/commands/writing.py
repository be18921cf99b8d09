"""`autoclave env new`: an environment that is written, or drafted from what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from envs.commands.options import FINDING, Instances
from sandbox.cli import output
from sandbox.cli.options import Home, Json, load
from sandbox.cli.running import run


def new(
    name: str,
    *,
    kind: Annotated[Literal["files", "repo", "postgres"], Parameter(help="The kind of its first resource.")] = "files",
    into: Annotated[Path | None, Parameter(help="The directory to make (default: ./NAME).")] = None,
    from_: Annotated[str, Parameter(name="--from", help="Draft it from a directory, postgresql://..., or an image.")] = "",
    instances: Instances = 5,
    home: Home = None,
    json: Json = False,
) -> int:
    """Write a small environment that works, with comments on every part; or draft one from what is there already.

    With --from, fresh instances are started and read, and the probes and volatile fields that they call for are written down, each
    with its reason. Nothing of the original is changed.

    Example: autoclave env new helpdesk --kind postgres
    Example: autoclave env new tickets --from postgresql://localhost/tickets
    """
    from envs import skeleton

    if from_:
        return _drafted(name, from_, into or Path(name), instances, home, json)
    written = skeleton.write(name, kind=kind, directory=into or Path(name))
    if json:
        output.print_json({"environment": name, "directory": written[0].parent, "files": written})
    else:
        target = written[0].parent
        output.show(*(str(path) for path in written), f"Next: autoclave env check {target}{'' if '/' in str(target) else '/'}")
    return 0


def _drafted(name: str, given: str, into: Path, instances: int, home: Path | None, json: bool) -> int:
    from envs import skeleton
    from envs.discovery.procedure import begin

    skeleton.refuse_name(name)
    settings = load(home)
    found = begin(given, name, into, settings=settings, instances=instances, say=output.Progress().say)
    files, seen = run(found)
    if json:
        output.print_json({"environment": name, "directory": into, "files": files, "discovery": seen.as_json()})
    else:
        under = "" if seen.runtime == settings.runtime else f" --runtime {seen.runtime}"
        output.show_text("\n".join(str(path) for path in files[:10]))
        output.show_text(f"Next: read {files[0]}, then autoclave env check {into} --score{under}")
    return FINDING if seen.left else 0
