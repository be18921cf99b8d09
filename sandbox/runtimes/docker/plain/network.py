"""The network of containers whose ports must be published, because this process cannot enter theirs: one for each home.

It is no wall. Where the engine sets up the machine's packet filter, containers do not reach each other on it. From inside, what
listens on the engine's machine at the bridge's address (or at all addresses) is reached; packets to elsewhere are routed with the
container's own address, unmasqueraded, so that answers come only from where that is routed back."""

from __future__ import annotations

from typing import Any

from sandbox.runtimes.docker.engine import Engine
from sandbox.runtimes.docker.labels import HOME, OWNER, PART

_OPTIONS = {"com.docker.network.bridge.enable_icc": "false", "com.docker.network.bridge.enable_ip_masquerade": "false"}


async def ensure(engine: Engine) -> str:
    """Return the id of this home's network; make it at its first use."""
    name = f"autoclave-{engine.home}"
    labels = {HOME: engine.home, PART: "network", OWNER: name}

    def work(client: Any) -> str:
        there = client.networks(names=[name], filters={"label": f"{HOME}={engine.home}"})
        made = there[0] if there else client.create_network(name, driver="bridge", options=_OPTIONS, labels=labels)
        return str(made["Id"])

    engine.held.add(name)
    async with engine.alone:  # an engine makes a second one of that name without a word
        return await engine.call(work, doing="making the network of published ports")


async def remove(engine: Engine) -> None:
    """Remove it. Idempotent."""
    name = f"autoclave-{engine.home}"

    def work(client: Any) -> None:
        for found in client.networks(names=[name], filters={"label": f"{HOME}={engine.home}"}):
            client.remove_network(found["Id"])

    if name in engine.held:
        engine.held.discard(name)
        await engine.call(work, doing="removing the network of published ports")
