"""The directories of a store, their owners and modes, and what a full disk means."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sandbox.errors import AutoclaveError, EnvironmentInvalid, LimitReached, RuntimeUnavailable
from sandbox.model import Role
from sandbox.settings import Settings
from sandbox.storage.method import Owner

SNAPSHOTS, CLONES, TRASH = "snapshots", "clones", "trash"
HOME = "home"  # in each of the tops: of which home it is, so that `gc` can tell when that is gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where things lie. Everything that a role's uid may see is in a holder that only that uid and the manager can enter."""

    settings: Settings

    @property
    def snapshots(self) -> Path:
        return self.settings.store / SNAPSHOTS

    def clones(self, *, scratch: bool) -> Path:
        return (self.settings.scratch if scratch else self.settings.store) / CLONES

    def trash(self, path: Path) -> Path:
        """Return the trash of the filesystem in which that clone, snapshot or holder lies."""
        return path.parent.parent / TRASH

    @property
    def tops(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys((self.settings.store, self.settings.scratch)))

    def owner(self, role: Role) -> Owner:
        uid = self.settings.users.of(role)
        return Owner(uid=os.geteuid(), gid=os.getegid()) if uid is None else Owner(uid=uid, gid=uid)

    def prepare(self) -> None:
        """Make the directories; raise RuntimeUnavailable when they are not ours or the roles' uids cannot pass through them."""
        for top in self.tops:
            own_directory(top, 0o755)
            self._note_home(top / HOME)
            for name, mode in ((SNAPSHOTS, 0o711), (CLONES, 0o711), (TRASH, 0o700)):
                if name != SNAPSHOTS or top == self.settings.store:
                    own_directory(top / name, mode)
            for role in Role:
                uid = self.settings.users.of(role)
                if uid is not None:
                    _must_pass(uid, top / CLONES, role)

    def _note_home(self, note: Path) -> None:
        """Best effort: a full disk must not keep anybody from opening the store, to make room say."""
        text = f"{self.settings.home}\n"
        with suppress(OSError):
            if not note.exists() or note.read_text() != text:
                note.write_text(text)
                note.chmod(0o600)

    def make_holder(self, holder: Path, role: Role) -> None:
        """Make the directory that holds one clone or sealed directory; an existing name is an error (P11: never used again)."""
        owner = self.owner(role)
        holder.mkdir(mode=0o700)
        if os.geteuid() == 0:
            os.chown(holder, owner.uid, owner.gid)

    def name_for(self, parent: Path, name: str) -> Path:
        """Return a name that was never used before."""
        readable = "".join(c if c.isalnum() or c in "._" else "-" for c in name)[:60]
        return parent / f"{readable}-{secrets.token_hex(8)}"


def own_directory(path: Path, mode: int) -> None:
    """Make a directory with that mode, or accept ours; refuse a link or a stranger's (names in /dev/shm can be guessed)."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    try:
        for each in reversed(missing):
            each.mkdir(mode=0o755)
            each.chmod(0o755)  # whatever the umask says: the roles' uids pass through
    except FileExistsError:
        pass
    except OSError as error:
        raise RuntimeUnavailable(
            f"cannot make {path}: {error.strerror}",
            fix="Set AUTOCLAVE_STORE and AUTOCLAVE_SCRATCH to directories that you may write",
        ) from error
    status = os.lstat(path)
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise RuntimeUnavailable(
            f"{path} is not a directory of this user", fix="Remove it, or set AUTOCLAVE_STORE or AUTOCLAVE_SCRATCH to another place"
        )
    if stat.S_IMODE(status.st_mode) != mode and path.name in (SNAPSHOTS, CLONES, TRASH):
        path.chmod(mode)


@contextmanager
def disk_errors(place: Path, doing: str) -> Iterator[None]:
    """Turn what a disk can answer into our errors, which name the place: full, a path that is too long, no right to read."""
    try:
        yield
    except OSError as error:
        raise _meaning(error, place, doing) from error


def _meaning(error: OSError, place: Path, doing: str) -> AutoclaveError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        what = "no space is left" if error.errno == errno.ENOSPC else "the disk quota is used up"
        return LimitReached(
            f"{what} in {place} while {doing}",
            fix="Free space there (`autoclave gc`), or set AUTOCLAVE_STORE or AUTOCLAVE_SCRATCH to a larger place",
        )
    if error.errno == errno.ENAMETOOLONG:
        return EnvironmentInvalid(
            f"a path of the state is longer than the system allows, found while {doing}", fix="Remove or flatten that directory"
        )
    if error.errno == errno.EACCES:
        return EnvironmentInvalid(
            f"{error.filename!r} cannot be read by its owner, under which the manager runs; found while {doing}",
            fix="Give its owner read rights before the state is saved (chmod -R u+rX), or run the manager as root",
        )
    return RuntimeUnavailable(f"{doing} failed in {place}: {error}", fix="Look for disk errors in the kernel's log (dmesg)")


def _must_pass(uid: int, directory: Path, role: Role) -> None:
    # Asked of the kernel rather than read from mode bits: access lists and security modules count too.
    done = subprocess.run(
        ["/bin/sh", "-c", 'cd "$1"', "sh", str(directory)],
        user=uid,
        group=uid,
        extra_groups=[],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
    )
    if done.returncode:
        raise RuntimeUnavailable(
            f"the {role} user (uid {uid}) cannot pass through to {directory}",
            fix="Make every directory above it passable (chmod o+x), or set AUTOCLAVE_STORE and AUTOCLAVE_SCRATCH to another place",
        )


def directories(parent: Path) -> set[Path]:
    """Return the directories right below `parent`, none where it is missing."""
    if not parent.is_dir():
        return set()
    with os.scandir(parent) as found:
        return {Path(e.path) for e in found if e.is_dir(follow_symlinks=False)}
