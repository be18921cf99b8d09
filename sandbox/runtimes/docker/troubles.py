"""What the Docker engine and the way to it answer when something is wrong, as errors that say what to do."""

from __future__ import annotations

import errno

from sandbox.errors import AutoclaveError, InstanceLost, LimitReached, RuntimeUnavailable

INSTALL = 'pip install "autoclave[docker]"'
_FULL = ("no space left on device", "disk quota exceeded")


class EngineGone(RuntimeUnavailable):
    """Nobody answers at the engine's address. Nothing was asked of it."""


class AnswerLost(RuntimeUnavailable):
    """The engine was asked, and no answer came: what was asked for may have been done, or may yet be."""


class Refused(AutoclaveError):
    """The engine refused what it was asked; `status` is its HTTP status."""

    def __init__(self, message: str, *, status: int, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.status = status


class ImageMissing(RuntimeUnavailable):
    """The engine has no such image."""


class ContainerMissing(InstanceLost):
    """The engine has no such container (any more)."""


def translate(error: Exception, doing: str, url: str) -> AutoclaveError | None:
    """Return ours for an error of the docker package or of its HTTP library; None for one that is neither."""
    import requests
    from docker import errors

    if isinstance(error, AutoclaveError):
        return error
    if isinstance(error, errors.APIError):
        return _answered(error, doing, url)
    if isinstance(error, OSError) and not isinstance(error, requests.exceptions.RequestException) and (own := _own(error, doing)):
        return own
    # The version request of a new client hides its cause in a DockerException.
    cause = error.__context__ if isinstance(error, errors.DockerException) else error
    if isinstance(cause, (requests.exceptions.Timeout, TimeoutError)):
        return AnswerLost(f"{doing}: the Docker engine at {url} did not answer in time", fix="look at its load and its log")
    if isinstance(cause, (requests.exceptions.RequestException, OSError)):
        return _unreached(cause, doing, url)
    if isinstance(error, errors.DockerException):
        return RuntimeUnavailable(f"{doing}: {error}", fix="check DOCKER_HOST, DOCKER_CERT_PATH and DOCKER_TLS_VERIFY")
    return None


def _own(error: OSError, doing: str) -> AutoclaveError | None:
    """An error of a file on this machine, with which the engine has nothing to do; None for one of a connection."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return LimitReached(
            f"{doing}: the disk of this machine is full ({error})", fix="free space where the home and its store lie"
        )
    if error.filename is not None:
        return RuntimeUnavailable(f"{doing}: {error.strerror}: {error.filename}", fix="look at that file, on this machine")
    return None


def _unreached(error: BaseException, doing: str, url: str) -> AutoclaveError:
    text = str(error)
    if any(known in text for known in ("Connection refused", "No such file", "Name or service", "No route", "Network is unreach")):
        return EngineGone(
            f"{doing}: no Docker engine answers at {url}",
            fix="start it (systemctl start docker), or set DOCKER_HOST to one that runs",
        )
    if "Permission denied" in text:
        return EngineGone(
            f"{doing}: this user may not speak to the Docker engine at {url}",
            fix="add the user to the group `docker` (which makes it as good as root), or use the namespaces runtime",
        )
    if "Read timed out" in text:  # in the middle of an answer
        return AnswerLost(f"{doing}: the Docker engine at {url} did not answer in time", fix="look at its load and its log")
    return AnswerLost(
        f"{doing}: the Docker engine at {url} ended the connection ({_short(text)})", fix="was it restarted? see its log"
    )


def _answered(error: object, doing: str, url: str) -> AutoclaveError:
    status = int(getattr(error, "status_code", None) or 0)
    said = _short(str(getattr(error, "explanation", None) or error))
    lower = said.lower()
    if any(text in lower for text in _FULL):
        return LimitReached(
            f"{doing}: the disk of the Docker engine at {url} is full ({said})",
            fix="free space below its data root (docker system df); `autoclave gc` removes what is ours and not needed",
        )
    if (status == 404 and "no such image" in lower) or "repository does not exist" in lower:
        return ImageMissing(f"{doing}: {said}", fix="docker pull it, or build it and tag it with that name")
    if status == 404 and "no such container" in lower:
        return ContainerMissing(f"{doing}: {said}: it was removed, or its engine lost it", fix="ask for a new session")
    return Refused(f"{doing}: the Docker engine refused ({status}): {said}", status=status)


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 400 else f"{flat[:397]}..."
