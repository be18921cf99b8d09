"""Where things lie and who runs them: read once at the edge, passed on as values."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sandbox.model import Role

# Unprivileged host ids that nothing else on a Debian, Fedora or Alpine system uses. The agent's differs from the servers', so
# that an agent that got out of its namespaces still could not touch a server's files.
AGENT_UID = 64_100
SERVER_UID = 64_101


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """Host user ids by role; None where the manager is an ordinary user and everything runs as itself."""

    agent: int | None
    server: int | None

    def of(self, role: Role) -> int | None:
        return self.agent if role is Role.AGENT else self.server


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that the environment variables and options decide.

    `home` holds the ledger, reports and registered environments (private). `store` holds snapshots, clones and staged binaries;
    the unprivileged ids must be able to pass through it. `scratch` holds overlay uppers (tmpfs where there is one). `run` holds
    socket directories and is short, since a Unix socket's path may have 107 bytes.
    """

    home: Path
    store: Path
    scratch: Path
    run: Path
    users: Users
    runtime: str = "namespaces"
    docker_mode: str = "auto"  # or "in-place", "recreate"
    storage: str = "auto"
    durability: str = "normal"  # or "full": survives a power cut
    postgres_bin: Path | None = None
    bwrap: Path | None = None
    chromium: Path | None = None
    disk_budget_mb: int = 20_000
    actions_mb: int = 256  # of what sessions did; 0: it is not recorded
    extra_environments: tuple[Path, ...] = ()

    @property
    def ledger(self) -> Path:
        return self.home / "ledger.sqlite"

    @property
    def actions(self) -> Path:
        return self.home / "actions"

    @property
    def reports(self) -> Path:
        return self.home / "reports"


def load(environ: Mapping[str, str] | None = None, *, home: Path | None = None) -> Settings:
    """Build the settings from `AUTOCLAVE_*` variables; `home` wins over `$AUTOCLAVE_HOME`, that over the XDG data directory."""
    env = os.environ if environ is None else environ
    data = Path(env.get("XDG_DATA_HOME") or Path(env.get("HOME") or "/root") / ".local" / "share")
    root = (home or Path(env.get("AUTOCLAVE_HOME") or data / "autoclave")).expanduser().absolute()
    uid = os.geteuid()
    tag = f"{uid}-{hashlib.blake2b(os.fsencode(root), digest_size=4).hexdigest()}"
    # As root, a home below /root or a private temporary directory cannot be passed by the unprivileged ids.
    default_store = Path("/var/lib/autoclave") / tag if uid == 0 else root / "store"
    store = Path(env["AUTOCLAVE_STORE"]).absolute() if env.get("AUTOCLAVE_STORE") else default_store
    scratch = Path(env["AUTOCLAVE_SCRATCH"]).absolute() if env.get("AUTOCLAVE_SCRATCH") else _scratch(store, tag)
    run = Path(env.get("AUTOCLAVE_RUN") or f"/tmp/autoclave-{tag}")
    extra = tuple(Path(p).absolute() for p in env.get("AUTOCLAVE_ENVIRONMENTS", "").split(os.pathsep) if p)
    return Settings(
        home=root,
        store=store,
        scratch=scratch,
        run=run,
        users=Users(agent=AGENT_UID, server=SERVER_UID) if uid == 0 else Users(agent=None, server=None),
        runtime=env.get("AUTOCLAVE_RUNTIME", "namespaces"),
        docker_mode=env.get("AUTOCLAVE_DOCKER_MODE", "auto"),
        storage=env.get("AUTOCLAVE_STORAGE", "auto"),
        durability=env.get("AUTOCLAVE_DURABILITY", "normal"),
        postgres_bin=Path(env["AUTOCLAVE_PG_BIN"]) if env.get("AUTOCLAVE_PG_BIN") else None,
        bwrap=Path(env["AUTOCLAVE_BWRAP"]) if env.get("AUTOCLAVE_BWRAP") else None,
        chromium=Path(env["AUTOCLAVE_CHROMIUM"]) if env.get("AUTOCLAVE_CHROMIUM") else None,
        disk_budget_mb=int(env.get("AUTOCLAVE_DISK_BUDGET_MB", "20000")),
        actions_mb=int(env.get("AUTOCLAVE_ACTIONS_MB", "256")),
        extra_environments=extra,
    )


def _scratch(store: Path, tag: str) -> Path:
    shm = Path("/dev/shm")
    roomy = shm.is_dir() and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > 2_000_000_000
    return shm / f"autoclave-{tag}" if roomy else store / "uppers"
