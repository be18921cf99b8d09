"""The ledger's file: opening it, bringing its schema up to date, and wording what SQLite says."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from importlib import resources
from pathlib import Path

from sandbox.errors import AutoclaveError, LedgerConflict, LimitReached

SYNCHRONOUS = {"normal": "NORMAL", "full": "FULL"}  # FULL survives a power cut, NORMAL a killed process
BUSY_TIMEOUT_MS = 5_000
PAGES_BETWEEN_CHECKPOINTS = 4_000
JOURNAL_BYTES = 64_000_000
CACHE_KIB = 32_000


def migrations() -> dict[int, str]:
    """Return the numbered SQL files of this package by number."""
    files = (entry for entry in resources.files(__package__).joinpath("migrations").iterdir() if entry.name.endswith(".sql"))
    return {int(entry.name.split("_", 1)[0]): entry.read_text(encoding="utf-8") for entry in sorted(files, key=lambda e: e.name)}


def open_for_writing(path: Path, durability: str) -> sqlite3.Connection:
    """Create or open the ledger and bring its schema up to date. The caller holds the home's lock."""
    if durability not in SYNCHRONOUS:
        raise AutoclaveError(f"durability {durability!r} is unknown", fix=f"use one of: {', '.join(SYNCHRONOUS)}")
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))

    def prepare(connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {SYNCHRONOUS[durability]}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES_BETWEEN_CHECKPOINTS}")
        connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_BYTES}")
        _migrate(connection, path)

    return _opened(path, "rw", prepare)


def open_for_reading(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot write; raise where there is no ledger or its schema is not the present one."""
    if not path.exists():
        raise LedgerConflict(f"there is no ledger at {path}", fix="set AUTOCLAVE_HOME to the home of the pool, or start one")

    def prepare(connection: sqlite3.Connection) -> None:
        newest = max(migrations())
        found = _version(connection)
        _refuse_newer(found, newest, path)
        if found < newest:
            raise AutoclaveError(
                f"the ledger {path} has schema {found}, this version reads {newest}",
                fix="run `autoclave pool status` once while no pool uses it: that brings it up to date",
            )

    return _opened(path, "ro", prepare)


def worded(error: sqlite3.Error, path: Path) -> AutoclaveError:
    """Say what SQLite's error means to the caller. Nothing of the call was written in any of these cases."""
    name = getattr(error, "sqlite_errorname", "") or type(error).__name__
    if name == "SQLITE_FULL":
        return LimitReached(
            f"the disk that holds the ledger {path} is full; nothing of this call was written",
            fix="free space (`autoclave gc`) and try again: the ledger goes on by itself",
        )
    if name.startswith("SQLITE_IOERR"):
        return AutoclaveError(
            f"the ledger {path} could not be written or read ({name}); nothing of this call was written",
            fix="look at the disk's space, limits and health, and try again: the ledger goes on by itself",
        )
    if isinstance(error, sqlite3.IntegrityError):
        return LedgerConflict(f"the ledger refused it: {error}")
    return AutoclaveError(f"the ledger {path} failed: {name}: {error}")


def is_storage_fault(error: BaseException) -> bool:
    """True where the file, and not the statement, is at fault."""
    name = getattr(error, "sqlite_errorname", "") or ""
    return name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_NOMEM", "SQLITE_READONLY"))


def _opened(path: Path, mode: str, prepare: Callable[[sqlite3.Connection], None]) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_TIMEOUT_MS / 1_000,
            cached_statements=256,
        )
    except sqlite3.Error as error:
        raise worded(error, path) from error
    try:
        connection.row_factory = sqlite3.Row
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("PRAGMA temp_store = MEMORY")
        prepare(connection)
    except sqlite3.Error as error:
        connection.close()
        raise worded(error, path) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _refuse_newer(found: int, newest: int, path: Path) -> None:
    if found > newest:
        raise AutoclaveError(
            f"the ledger {path} was written by a newer version (schema {found}, this one knows {newest})",
            fix="upgrade autoclave, or use another AUTOCLAVE_HOME",
        )


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Apply every step that is missing, each with its version number in one transaction."""
    steps = migrations()
    _refuse_newer(_version(connection), max(steps), path)
    for number, script in steps.items():
        if number <= _version(connection):
            continue
        try:
            connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version = {number};\nCOMMIT;")
        except sqlite3.Error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
