"""A browser with a profile of its own, and a relay that shares it among clients."""

from __future__ import annotations

import json
import secrets
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from sandbox.aio import in_thread, poll
from sandbox.errors import EnvironmentInvalid, InstanceLost, ResetFailed
from sandbox.model import NOTHING, ResourceSpec, Role
from sandbox.ports import LiveResource, Mount, SeedHost, ServerPlan, StateDir
from sandbox.resources import options as reading
from sandbox.resources.browser import program, seeding
from sandbox.resources.browser.access import (
    OWN,
    SECRET_VARIABLE,
    SOCKET,
    SOCKET_DIR,
    address,
    connected,
    keep_secret,
    trusted_address,
)
from sandbox.resources.browser.division import Division
from sandbox.resources.browser.options import BrowserOptions, BrowserStart
from sandbox.settings import Settings, load

PROFILE = "profile"
DOWNLOADS = "downloads"
_VERSION = 2
_RELAY = "/opt/autoclave/relay"
_HERE = Path(__file__).parent
_PARTS = ("__init__", "clients", "commons", "filtering", "guard", "main", "parts", "sharing", "sites", "websocket")
_PYTHON = "/usr/bin/python3"
_BOOT = "import sys; sys.path.insert(0, '/opt/autoclave'); from relay.main import main; main()"


class Browser(Division):
    """One Chromium for each instance. Its program is looked for when it is first needed."""

    def __init__(self, spec: ResourceSpec, options: BrowserOptions, settings: Settings | None) -> None:
        self._spec = spec
        self._options = options
        self._settings = settings
        self._secret = secrets.token_urlsafe(24)  # this manager's; the relay knows it by its environment

    @property
    def spec(self) -> ResourceSpec:
        return self._spec

    @property
    def options(self) -> BrowserOptions:
        return self._options

    @cached_property
    def chromium(self) -> program.Chromium:
        """Raises RuntimeUnavailable."""
        return program.chromium(self._settings or load())

    @property
    def in_force(self) -> Mapping[str, Any]:
        return {
            "chromium": self._options.program or f"{self.chromium.version} ({self.chromium.host})",
            "reset_scope": "the whole browser and its profile",
            "network": "its sites alone" if self._options.sites else "none",
        }

    @cached_property
    def digest(self) -> str:
        version = self._options.program or self.chromium.version
        return reading.digest("browser", _VERSION, self._options.model_dump(), version)

    def state_dirs(self) -> Sequence[StateDir]:
        return (
            StateDir(name=PROFILE, target=program.PROFILE, role=Role.SERVER),
            StateDir(name=DOWNLOADS, target=program.DOWNLOADS, role=Role.SERVER),
        )

    def server(self) -> ServerPlan | None:
        inside, binds = self._program()
        config = {
            "argv": program.command(self._options, inside),
            "directory": SOCKET_DIR,
            "downloads": program.DOWNLOADS,
            "sites": {str(port): path for port, path in self._options.leads().items()},
        }
        relay = [_file(f"{_RELAY}/{name}.py", _HERE / "relay" / f"{name}.py") for name in _PARTS]
        names = {program.FONTS: "fonts.conf", f"{program.CONFIG}/user-dirs.dirs": "user-dirs.dirs"}
        settings = [_file(target, _HERE / name) for target, name in names.items()]
        return ServerPlan(
            argv=(_PYTHON, "-I", "-S", "-B", "-c", _BOOT, json.dumps(config, separators=(",", ":"))),
            env={**program.environment(self._options), SECRET_VARIABLE: self._secret},
            binds=(*binds, *relay, *settings),
            socket_dir=SOCKET_DIR,
            peers=self._options.peers(),
        )

    def _program(self) -> tuple[str, tuple[Mount, ...]]:
        if self._options.program is not None:  # the root's own
            return self._options.program, ()
        return self.chromium.inside, self.chromium.binds

    def agent_env(self) -> Mapping[str, str]:
        return {f"{self._spec.name.upper().replace('-', '_')}_CDP": self.endpoint(f"/run/{self._spec.name}")}

    def agent_binds(self) -> Sequence[Mount]:
        return ()

    def endpoint(self, socket_dir: str) -> str:
        return address(f"{socket_dir}/{SOCKET}")

    def trusted_endpoint(self, live: LiveResource) -> str:
        """What `cdp.connect` takes."""
        return trusted_address(live)

    @asynccontextmanager
    async def hook_access(self, live: LiveResource) -> AsyncIterator[Mapping[str, str]]:
        """A hook drives the browser as the agent does."""
        yield NOTHING

    async def disconnect(self, live: LiveResource) -> None:
        async with connected(live) as browser:
            await browser.call("Relay.disconnect")

    async def seed(self, host: SeedHost) -> None:
        await self._fill(host, self._options)

    async def start_state(self, host: SeedHost, options: Mapping[str, Any]) -> None:
        start = reading.read_start(self._spec, options, BrowserStart)
        if not start.cookies and not start.storage:
            raise EnvironmentInvalid(f"start.{self._spec.name} changes nothing: give `cookies` or `storage`")
        await self._fill(host, start)

    async def _fill(self, host: SeedHost, start: BrowserStart) -> None:
        live = await host.serve()
        try:
            async with connected(live) as browser:
                await seeding.fill(browser, start)
        finally:
            await host.stop(live)
        await seeding.trim(host, program.PROFILE)

    async def ready(self, live: LiveResource, *, timeout: float) -> None:
        """The relay listens once the browser has answered it."""
        await in_thread(keep_secret, live, self._secret)

        async def answers() -> bool:
            if not live.alive():
                raise InstanceLost(f"the browser of resource {self._spec.name} ended before it was ready", fix="see its log")
            if live.socket_dir is None or not (live.socket_dir / OWN).exists():
                return False
            try:
                async with connected(live) as browser:
                    await browser.call("Browser.getVersion")
            except InstanceLost:  # the socket is there a moment before the relay listens on it
                return False
            return True

        if not await poll(answers, timeout=timeout):
            raise InstanceLost(f"the browser of resource {self._spec.name} did not answer within {timeout:g} s")

    async def stop(self, live: LiveResource, *, timeout: float) -> None:
        live.signal(signal.SIGTERM)  # the relay closes the browser, which writes its profile
        if not await live.wait_stopped(timeout):
            raise InstanceLost(f"the browser of resource {self._spec.name} did not close within {timeout:g} s")

    async def clean(self, live: LiveResource) -> None:
        raise ResetFailed(
            f"resource {self._spec.name} (kind browser) cannot be cleaned in place: much of what a browser keeps has no word in "
            "its protocol, and it would be asked by the very process that an agent drove",
            fix='use method "restore", or isolation "context"',
        )


def _file(target: str, source: Path) -> Mount:
    return Mount(target=target, layers=(str(source),), readonly=True)


def create(spec: ResourceSpec, settings: Settings | None = None) -> Browser:
    """Make the resource; raise EnvironmentInvalid. Where Chromium is comes from `settings`, else from the environment."""
    return Browser(spec, reading.read(spec, BrowserOptions), settings)
