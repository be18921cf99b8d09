"""Where an engine is, and which are refused."""

from __future__ import annotations

import pytest

from sandbox.errors import RuntimeUnavailable
from sandbox.runtimes.docker.address import from_environment


@pytest.mark.parametrize("url", ["tcp://10.0.0.5:2375", "http://engine.example:2375", "tcp://[fd00::5]:2375"])
def test_an_engine_on_a_network_without_encryption_is_refused(url: str) -> None:
    with pytest.raises(RuntimeUnavailable, match="would be root") as caught:
        from_environment({"DOCKER_HOST": url})
    assert "DOCKER_TLS_VERIFY" in caught.value.fix
    assert from_environment({"DOCKER_HOST": url, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": "/certs"}).certificates is not None


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:2375", "tcp://localhost:2375", "tcp://[::1]:2375", "unix:///run/docker.sock"])
def test_the_end_of_a_tunnel_on_this_machine_is_taken(url: str) -> None:
    assert from_environment({"DOCKER_HOST": url}).url == url


def test_where_ports_are_published_can_be_stated() -> None:
    found = from_environment({"DOCKER_HOST": "tcp://127.0.0.1:2375", "AUTOCLAVE_DOCKER_PUBLISH": "192.0.2.7"})
    assert found.publish == "192.0.2.7"
