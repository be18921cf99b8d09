"""Finds Chromium and says how it is started."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import RuntimeUnavailable
from sandbox.ports import Mount
from sandbox.resources.browser.options import BrowserOptions
from sandbox.settings import Settings

PROFILE = "/srv/browser/profile"
DOWNLOADS = "/srv/browser/downloads"
FONTS = "/opt/autoclave/fonts.conf"
CONFIG = "/opt/autoclave/config"  # says where downloads go
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FIX = "apt-get install chromium, or set AUTOCLAVE_CHROMIUM to a Chromium's program"
# A distribution's /usr/bin/chromium is a script that adds flags of its machine; the program itself lies here.
_BEHIND = (
    "/usr/lib/chromium/chromium",
    "/usr/lib/chromium-browser/chromium-browser",
    "/usr/lib64/chromium-browser/chromium-browser",
)
# No network of its own, nothing that changes by itself, no file that another machine would not write.
_FLAGS = (
    "--headless",
    "--no-sandbox",  # ours is around it: no further namespace can be made inside
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-background-timer-throttling",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-breakpad",
    "--disable-crash-reporter",
    "--disable-client-side-phishing-detection",
    "--disable-component-extensions-with-background-pages",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-domain-reliability",
    "--disable-field-trial-config",
    "--disable-hang-monitor",
    "--disable-ipc-flooding-protection",
    "--disable-popup-blocking",
    "--disable-prompt-on-repost",
    "--disable-search-engine-choice-screen",
    "--disable-sync",
    "--allow-pre-commit-input",
    "--force-color-profile=srgb",
    "--hide-scrollbars",
    "--metrics-recording-only",
    "--mute-audio",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-pings",
    "--no-service-autorun",
    "--password-store=basic",
    "--log-level=3",
)
_FEATURES_OFF = (
    "AcceptCHFrame",
    "AutofillServerCommunication",
    "BackForwardCache",
    "CertificateTransparencyComponentUpdater",
    "DestroyProfileOnBrowserClose",
    "DialMediaRouteProvider",
    "HttpsUpgrades",
    "InterestFeedContentSuggestions",
    "MediaRouter",
    "OptimizationHints",
    "PaintHolding",
    "PreloadTopChromeWebUI",
    "RenderDocument",
    "SpareRendererForSitePerProcess",
    "Translate",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chromium:
    """One installation. `inside` is its program as a sandbox sees it, `binds` what must be mounted for that."""

    version: str
    host: Path
    inside: str
    binds: tuple[Mount, ...] = ()


def chromium(settings: Settings) -> Chromium:
    """Return the setting's Chromium, else the one on the PATH; raise RuntimeUnavailable. Blocking."""
    if settings.chromium is not None:
        named = [settings.chromium]
    else:
        named = [Path(found) for name in _NAMES if (found := shutil.which(name)) is not None]
    tried = []
    for path in named:
        program = _program(path)
        version = _version(program)
        if version is not None:
            inside = str(program)
            binds = (
                ()
                if program.is_relative_to("/usr")
                else (Mount(target=str(program.parent), layers=(str(program.parent),), readonly=True),)
            )
            return Chromium(version=version, host=program, inside=inside, binds=binds)
        tried.append(f"{path} does not run")
    raise RuntimeUnavailable(f"no Chromium was found{f' ({chr(59).join(tried)})' if tried else ''}", fix=_FIX)


def _program(path: Path) -> Path:
    real = Path(os.path.realpath(path))
    try:
        with real.open("rb") as file:
            script = file.read(2) == b"#!"
    except OSError:
        return real
    behind = next((Path(p) for p in _BEHIND if os.access(p, os.X_OK)), None)
    return behind if script and behind is not None else real


@functools.lru_cache(maxsize=8)
def _version(program: Path) -> str | None:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, timeout=60, check=True, text=True, cwd="/")
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"(\d+(?:\.\d+){3})", done.stdout)
    return match[1] if match else None


def command(options: BrowserOptions, program: str) -> list[str]:
    """Return the browser's argv."""
    sites = ",".join(f"http://{site}" for site in options.sites)
    found = [program, *_FLAGS, f"--disable-features={','.join(_FEATURES_OFF)}"]
    found += [f"--user-data-dir={PROFILE}", f"--host-resolver-rules={options.resolver_rules()}"]
    found += [f"--window-size={options.width},{options.height}", f"--lang={options.language}"]
    if sites:  # so that they may have service workers, as they would over https
        found.append(f"--unsafely-treat-insecure-origin-as-secure={sites}")
    return [*found, *options.flags, "about:blank"]


def environment(options: BrowserOptions) -> dict[str, str]:
    """Return the variables of the relay and of the browser."""
    return {
        "TZ": options.timezone,
        "LANGUAGE": options.language,
        "CHROME_CONFIG_HOME": "/tmp/config",
        "XDG_CONFIG_HOME": CONFIG,
        "XDG_CACHE_HOME": "/tmp/cache",
        "FONTCONFIG_FILE": FONTS,
        "DBUS_SESSION_BUS_ADDRESS": "disabled:",
        "DBUS_SYSTEM_BUS_ADDRESS": "disabled:",
    }
