"""The probe of a browser."""

from __future__ import annotations

from dataclasses import dataclass, field

from probes.browser import shared
from probes.browser.clipboard import read_clipboard
from probes.browser.live import read_live
from probes.browser.profile import read_profile
from probes.kinds import Options, digest_of_kind, read_options, resource_of
from probes.manifest import Digests, read_whole
from probes.probe import Findings, ProbeContext
from sandbox.aio import read_in_thread
from sandbox.model import Depth, EnvironmentSpec, ProbeSpec
from sandbox.ports import Sharing
from sandbox.resources.browser import cdp

PROFILE = "profile"


class BrowserOptions(Options):
    """Nothing can be set yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserProbe:
    """Reads a whole browser."""

    name: str
    resource: str
    options: BrowserOptions
    digest: str
    digests: Digests = field(default_factory=Digests, repr=False, compare=False)

    @property
    def depth(self) -> Depth:
        return Depth.QUICK

    @property
    def alone(self) -> bool:
        return False

    def depth_of(self, field: str, *, in_place: bool) -> Depth | None:
        """`clipboard` of a browser that is shared is read at every depth, in place as its parts are."""
        return Depth.DEEP if field.startswith((PROFILE, "clipboard")) and not in_place else Depth.QUICK

    def of_instance(self, field: str) -> bool:
        return shared.of_instance(field)

    async def read(self, context: ProbeContext) -> Findings:
        async with cdp.connect(context.subject.endpoint(self.resource), timeout=context.limit_s) as browser:
            sharing = context.sharing
            fields = await (read_live(browser) if sharing is None else shared.read_shared(browser, sharing))
            thorough = context.thorough and (sharing is None or sharing.own is None)
            if thorough and sharing is None:
                fields |= await read_clipboard(browser)
        fields |= await read_in_thread(self._downloads, context, sharing)
        if not thorough:
            return Findings(fields=fields)
        found, problems = await read_in_thread(read_profile, context.subject.tree(self.resource, PROFILE))
        return Findings(fields={**fields, **found}, problems=tuple(problems))

    def _downloads(self, context: ProbeContext, sharing: Sharing | None) -> dict[str, str]:
        """Of a part, its own directory; of a shared browser as a whole, what is in nobody's."""
        tree = context.subject.tree(self.resource, "downloads")
        own = None if sharing is None or sharing.own is None else sharing.own.name
        others = frozenset(() if sharing is None or own is not None else sharing.names)

        def skip(path: str) -> bool:
            top = path.partition("/")[0]
            return top in others or own not in (None, top)

        found = read_whole(tree, self.digests, skip)
        if own is None:
            return {f"downloads/{name}": text for name, text in found.items()}
        inside = {n.removeprefix(f"{own}/"): text for n, text in found.items() if n.startswith(f"{own}/")}
        return {f"{shared.OWN}downloads/{name}": text for name, text in inside.items()}


def create(spec: ProbeSpec, environment: EnvironmentSpec) -> BrowserProbe:
    """Make the probe of a `browser` resource."""
    options = read_options(spec, BrowserOptions, environment)
    return BrowserProbe(
        name=spec.name, resource=resource_of(spec, environment), options=options, digest=digest_of_kind(spec, options)
    )
