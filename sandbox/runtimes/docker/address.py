"""Where the Docker engine listens, as `DOCKER_HOST` and its companions say."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from sandbox.errors import RuntimeUnavailable

DEFAULT = "unix:///var/run/docker.sock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One engine's address. `path` is the socket of one on this machine, else `host` and `port` are set; `certificates` is the
    directory with ca.pem, cert.pem and key.pem where the connection is encrypted."""

    url: str
    path: str = ""
    host: str = ""
    port: int = 0
    certificates: Path | None = None
    verify: bool = True
    publish: str = ""  # the address of the engine's machine at which ports of containers are published, where the user states one

    @property
    def is_socket(self) -> bool:
        return bool(self.path)

    @property
    def is_loopback(self) -> bool:
        """True for a port of this machine: the engine's own, or the end of a tunnel to it."""
        return self.host == "localhost" or self.host.startswith("127.") or self.host == "::1"

    def context(self) -> ssl.SSLContext | None:
        """Return what encrypts a connection, None where it is not encrypted."""
        if self.certificates is None:
            return None
        made = ssl.create_default_context(cafile=str(self.certificates / "ca.pem"))
        if not self.verify:
            made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
        made.load_cert_chain(self.certificates / "cert.pem", self.certificates / "key.pem")
        return made


def from_environment(environ: Mapping[str, str] | None = None) -> Address:
    """Read DOCKER_HOST, DOCKER_CERT_PATH and DOCKER_TLS_VERIFY as the docker command does, and AUTOCLAVE_DOCKER_PUBLISH; raise
    RuntimeUnavailable. An engine on a network is spoken to under TLS alone: whoever reaches one without is root there, its
    containers, too."""
    env = os.environ if environ is None else environ
    url = env.get("DOCKER_HOST") or DEFAULT
    parts = urlsplit(url)
    if parts.scheme == "unix":
        return Address(url=url, path=f"{parts.netloc}{parts.path}")
    if parts.scheme not in ("tcp", "http", "https") or not parts.hostname:
        raise RuntimeUnavailable(
            f"DOCKER_HOST is {url!r}, which is neither unix:///path nor tcp://host:port",
            fix="for an engine behind ssh: ssh -N -L /tmp/docker.sock:/var/run/docker.sock HOST, DOCKER_HOST=unix:///tmp/docker.sock",
        )
    verify = bool(env.get("DOCKER_TLS_VERIFY"))
    encrypted = verify or bool(env.get("DOCKER_CERT_PATH")) or parts.scheme == "https"
    home = Path(env.get("HOME") or "/root")
    certificates = Path(env.get("DOCKER_CERT_PATH") or home / ".docker") if encrypted else None
    port = parts.port or (2376 if encrypted else 2375)
    publish = env.get("AUTOCLAVE_DOCKER_PUBLISH", "")
    found = Address(url=url, host=parts.hostname, port=port, certificates=certificates, verify=verify, publish=publish)
    if not encrypted and not found.is_loopback:
        raise RuntimeUnavailable(
            f"DOCKER_HOST is {url!r}, where everyone on that network, containers included, would be root",
            fix="set DOCKER_TLS_VERIFY=1 and DOCKER_CERT_PATH, or use a tunnel: "
            "ssh -N -L /tmp/docker.sock:/var/run/docker.sock HOST, DOCKER_HOST=unix:///tmp/docker.sock",
        )
    return found
