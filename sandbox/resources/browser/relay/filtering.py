"""What a client may ask of a browser that several namespaces share: its own context, and nothing that reaches past it.

Part of the relay (Python 3.9, standard library only). Pure. Whatever is not listed is refused: the protocol grows with every
version.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

Params = dict[str, Any]
OWN_CONTEXT = frozenset(
    {
        "Browser.grantPermissions", "Browser.setDownloadBehavior", "Browser.setPermission",
        "Storage.clearCookies", "Storage.getCookies", "Storage.setCookies", "Target.createTarget",
    }
)  # fmt: skip
OWN_TARGET = frozenset(
    {"Browser.getWindowForTarget", "Target.activateTarget", "Target.attachToTarget", "Target.closeTarget", "Target.getTargetInfo"}
)
PLAIN = frozenset({"Browser.getVersion", "Target.setAutoAttach", "Target.detachFromTarget"})
# Answered by the relay itself: what the browser would say names other contexts.
ANSWERED = frozenset({"Target.getTargets", "Target.getBrowserContexts", "Target.setDiscoverTargets", "Browser.close"})
# What they set is undone for the whole context when the session that asked for it ends, the denial of the clipboard included: so
# they are asked in a session that does not end. `Browser.resetPermissions` would undo it at once.
LASTING = frozenset({"Browser.grantPermissions", "Browser.setPermission"})
# Of a page, a frame or a worker. What they reach is in the context's own processes and storage.
DOMAINS = frozenset(
    {
        "Accessibility", "Animation", "Audits", "CSS", "CacheStorage", "Console", "DOM", "DOMDebugger", "DOMSnapshot",
        "DOMStorage", "Debugger", "DeviceOrientation", "EventBreakpoints", "Fetch", "HeapProfiler", "IO",
        "IndexedDB", "Input", "Inspector", "LayerTree", "Log", "Media", "Network", "Overlay", "Page", "Performance",
        "PerformanceTimeline", "Profiler", "Runtime", "Schema", "Security", "ServiceWorker", "Storage", "WebAudio", "WebAuthn",
    }
)  # fmt: skip
# Of what can be emulated, what concerns a page. Screens, for one, are the whole browser's.
_EMULATION = frozenset(
    {
        "canEmulate", "clearDeviceMetricsOverride", "clearGeolocationOverride", "clearIdleOverride", "getScreenInfos",
        "resetPageScaleFactor", "setAutoDarkModeOverride", "setCPUThrottlingRate", "setDefaultBackgroundColorOverride",
        "setDeviceMetricsOverride", "setDisabledImageTypes", "setDocumentCookieDisabled", "setEmitTouchEventsForMouse",
        "setEmulatedMedia", "setEmulatedVisionDeficiency", "setFocusEmulationEnabled", "setGeolocationOverride",
        "setHardwareConcurrencyOverride", "setIdleOverride", "setLocaleOverride", "setNavigatorOverrides", "setPageScaleFactor",
        "setScriptExecutionDisabled", "setScrollbarsHidden", "setTimezoneOverride", "setTouchEmulationEnabled",
        "setUserAgentOverride", "setVirtualTimePolicy", "setVisibleSize",
    }
)  # fmt: skip
_SCHEMES = ("http:", "https:", "data:", "blob:")
_BLANK = "about:blank"  # any other `about:` leads to the browser's own pages: its settings, its switches, its end
# Keys that reach the clipboard: with Control or Meta; with those or Shift; and those that are named so.
_CONTROL, _META, _SHIFT = 2, 4, 8
_LETTERS, _INSERT, _DELETE = (67, 86, 88), 45, 46
_NAMED = frozenset({"copy", "cut", "paste"})


class Denied(Exception):
    """The call reaches past the client's own context."""


def judge(
    method: str, params: Mapping[str, Any], *, session: bool, context: str, targets: Collection[str], downloads: str
) -> Params:
    """Return the parameters with which a call may go on; raise Denied. `session`: it is for a page, not for the browser."""
    found = dict(params)
    if method in OWN_CONTEXT:
        if found.get("browserContextId", context) != context:
            raise Denied("another context")
        found["browserContextId"] = context
        _no_clipboard(method, found)
    elif method in OWN_TARGET:
        if "targetId" in found and found["targetId"] not in targets:  # without one: the page's, or the browser's own name
            raise Denied("another target")
    elif method not in PLAIN and not (session and _of_page(method)):
        raise Denied("it reaches the whole browser")
    return _narrowed(method, found, downloads)


def _of_page(method: str) -> bool:
    domain, _, name = method.partition(".")
    return domain in DOMAINS or (domain == "Emulation" and name in _EMULATION)


def _no_clipboard(method: str, params: Params) -> None:
    """The clipboard is one for the whole process."""
    named = [*params.get("permissions", ())] if isinstance(params.get("permissions"), list) else []
    single = params.get("permission")
    if isinstance(single, dict):
        named.append(single.get("name"))
    if any("clipboard" in str(name).lower() for name in named):
        raise Denied("the clipboard is shared by all contexts")
    if method == "Browser.grantPermissions" and not named:
        raise Denied("all permissions at once: the clipboard is among them")


def _narrowed(method: str, params: Params, downloads: str) -> Params:
    """Take away what names files and pages of the machine."""
    if method in ("Page.navigate", "Target.createTarget") and not _of_the_web(str(params.get("url", "")).lower()):
        raise Denied("only pages of the web")
    if method in ("Browser.setDownloadBehavior", "Page.setDownloadBehavior"):
        params["downloadPath"] = downloads
        if params.get("behavior") == "default":  # that would be the whole browser's directory
            params["behavior"] = "allow"
    elif method == "DOM.setFileInputFiles" and params.get("files"):
        raise Denied("files of the browser's machine; hand over their content instead")
    elif method == "Input.dispatchDragEvent" and isinstance(params.get("data"), dict) and params["data"].get("files"):
        raise Denied("files of the browser's machine")
    elif method == "Input.dispatchKeyEvent":
        _without_clipboard(params)
    return params


def _of_the_web(url: str) -> bool:
    return url.startswith(_SCHEMES) or re.split("[?#]", url, maxsplit=1)[0] == _BLANK


def _without_clipboard(params: Params) -> None:
    """A key comes to the page as it is, but has no meaning to the browser where that would be to copy, to cut or to paste."""
    commands = params.get("commands", [])
    code, modifiers = params.get("windowsVirtualKeyCode", 0), params.get("modifiers", 0)
    if not (isinstance(commands, list) and type(code) is int and type(modifiers) is int):
        raise Denied("a key that is not one")
    kept = [c for c in commands if not any(word in str(c).lower() for word in _NAMED)]
    if kept != commands:
        params["commands"] = kept
    if str(params.get("key", "")).lower() in _NAMED:
        params["key"] = "Unidentified"
    control, shift = modifiers & (_CONTROL | _META), modifiers & _SHIFT
    if (code in _LETTERS and control) or (code == _INSERT and (control or shift)) or (code == _DELETE and shift):
        params["windowsVirtualKeyCode"] = 0
