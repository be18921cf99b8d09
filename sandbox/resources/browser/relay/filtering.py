"""What a client may ask of a browser that several namespaces share: its own context, and nothing that reaches past it.

Part of the relay (Python 3.9, standard library only). Pure. Whatever is not listed is refused: the protocol grows with every
version.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

Params = dict[str, Any]
OWN_CONTEXT = frozenset(
    {
        "Browser.grantPermissions", "Browser.resetPermissions", "Browser.setDownloadBehavior", "Browser.setPermission",
        "Storage.clearCookies", "Storage.getCookies", "Storage.setCookies", "Target.createTarget",
    }
)  # fmt: skip
OWN_TARGET = frozenset(
    {"Browser.getWindowForTarget", "Target.activateTarget", "Target.attachToTarget", "Target.closeTarget", "Target.getTargetInfo"}
)
PLAIN = frozenset({"Browser.getVersion", "Target.setAutoAttach", "Target.detachFromTarget"})
# Answered by the relay itself: what the browser would say names other contexts.
ANSWERED = frozenset({"Target.getTargets", "Target.getBrowserContexts", "Target.setDiscoverTargets", "Browser.close"})
# Of a page, a frame or a worker. What they reach is in the context's own processes and storage.
DOMAINS = frozenset(
    {
        "Accessibility", "Animation", "Audits", "CSS", "CacheStorage", "Console", "DOM", "DOMDebugger", "DOMSnapshot",
        "DOMStorage", "Debugger", "DeviceOrientation", "Emulation", "EventBreakpoints", "Fetch", "HeapProfiler", "IO",
        "IndexedDB", "Input", "Inspector", "LayerTree", "Log", "Media", "Network", "Overlay", "Page", "Performance",
        "PerformanceTimeline", "Profiler", "Runtime", "Schema", "Security", "ServiceWorker", "Storage", "WebAudio", "WebAuthn",
    }
)  # fmt: skip
_SCHEMES = ("http:", "https:", "about:", "data:", "blob:")
_CLIPBOARD = frozenset({"copy", "cut", "paste", "pasteandmatchstyle", "copyasmarkdown"})


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
    elif method not in PLAIN and not (session and method.partition(".")[0] in DOMAINS):
        raise Denied("it reaches the whole browser")
    return _narrowed(method, found, downloads)


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
    if method in ("Page.navigate", "Target.createTarget") and not str(params.get("url", "")).lower().startswith(_SCHEMES):
        raise Denied("only pages of the web")
    if method in ("Browser.setDownloadBehavior", "Page.setDownloadBehavior"):
        params["downloadPath"] = downloads
    elif method == "DOM.setFileInputFiles" and params.get("files"):
        raise Denied("files of the browser's machine; hand over their content instead")
    elif method == "Input.dispatchDragEvent" and isinstance(params.get("data"), dict) and params["data"].get("files"):
        raise Denied("files of the browser's machine")
    elif method == "Input.dispatchKeyEvent" and "commands" in params:
        params["commands"] = [c for c in params["commands"] if str(c).lower() not in _CLIPBOARD]
    return params
