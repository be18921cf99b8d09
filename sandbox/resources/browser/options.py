"""What can be set for a `browser` resource.

    [resources.web]
    kind = "browser"
    sites = { "portal.test" = "app" }   # http://portal.test is the `service` resource `app` (its service.sock)
    width = 1280
    height = 720
    language = "en-US"
    timezone = "UTC"
    program = "/usr/lib/chromium/chromium"   # inside the root; found on the machine when absent
    flags = ["--force-dark-mode"]

    [[resources.web.cookies]]           # of the golden profile
    name = "theme"
    value = "dark"
    domain = "portal.test"

    [resources.web.storage."http://portal.test"]   # localStorage of the golden profile
    seen = "yes"

A task's own start state: `start.web = { cookies = [...], storage = {...} }`, added to golden's.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from sandbox.resources.options import Options

FIRST_PORT = 8001
DEFAULT_SOCKET = "service.sock"
# What the resource decides: where things lie, what drives the browser, what it may reach.
_DECIDED = (
    "--user-data-dir", "--remote-debugging", "--host-resolver-rules", "--proxy", "--no-sandbox", "--headless", "--load-extension",
    "--remote-allow-origins", "--single-process", "--renderer-cmd-prefix", "--utility-cmd-prefix", "--gpu-launcher",
)  # fmt: skip

Site = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$", max_length=200)]
Peer = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]*(/[A-Za-z0-9._-]+)?$")]
Origin = Annotated[str, Field(pattern=r"^https?://[a-z0-9.-]+(:[0-9]+)?$")]


def _flag(text: str) -> str:
    if not text.startswith("--"):
        raise ValueError("a flag begins with --")
    if text.startswith(_DECIDED):
        raise ValueError(f"{text.partition('=')[0]} cannot be set here: the resource decides it")
    return text


class Cookie(Options):
    """A cookie of the golden profile. `expires` is seconds since 1970; without it the cookie would end with the browser, and so
    could not be part of a saved state."""

    name: str
    value: str
    domain: str
    path: str = "/"
    expires: float = Field(2_000_000_000.0, gt=0)
    http_only: bool = False
    same_site: Literal["Strict", "Lax", "None"] | None = None


class BrowserStart(Options):
    cookies: list[Cookie] = Field(default_factory=list)
    storage: dict[Origin, dict[str, str]] = Field(default_factory=dict)


class BrowserOptions(BrowserStart):
    sites: dict[Site, Peer] = Field(default_factory=dict)
    width: int = Field(1280, ge=200, le=8000)
    height: int = Field(720, ge=200, le=8000)
    language: str = Field("en-US", pattern=r"^[A-Za-z]{2,3}(-[A-Za-z0-9]+)*$")
    timezone: str = Field("UTC", pattern=r"^[A-Za-z0-9_+/-]+$")
    program: str | None = Field(None, pattern=r"^/")
    flags: list[Annotated[str, AfterValidator(_flag)]] = Field(default_factory=list)

    def peers(self) -> tuple[str, ...]:
        """The resources that sites lead to."""
        return tuple(dict.fromkeys(peer.partition("/")[0] for peer in self.sites.values()))

    def leads(self) -> dict[int, str]:
        """Where each loopback port leads, as the server's sandbox sees it."""
        found = {}
        for port, peer in enumerate(self.sites.values(), FIRST_PORT):
            name, _, socket = peer.partition("/")
            found[port] = f"/run/{name}/{socket or DEFAULT_SOCKET}"
        return found

    def resolver_rules(self) -> str:
        """Chromium's rules: sites lead to their ports, and no other name or address leads anywhere."""
        rules = [f"MAP {site} 127.0.0.1:{port}" for port, site in enumerate(self.sites, FIRST_PORT)]
        return ",".join([*rules, "MAP * ~NOTFOUND"])
