"""The catalogue's part for containers of any image: their own files, volumes, environment, and restarts."""

from __future__ import annotations

from dataclasses import replace

from probes.leaks.catalogue import Catalogue
from probes.leaks.leak import Needs, ShellLeak
from sandbox.model import ResetMethod

# `$FILE` names a file of the image that the agent may change, `$OUTSIDE` a directory of the image that it may write to, `$VOLUME`
# a volume. Shell text for the shells of small images.
_LEAKS = (
    ShellLeak(name="new-file", what="a file that the image does not have", shell='echo planted > "$OUTSIDE/planted"'),
    ShellLeak(name="edit", what="a changed file of the image", shell='echo planted >> "$FILE"'),
    ShellLeak(
        name="same-size-edit",
        what="a file of the image with other bytes, of the same size and time",
        shell='cp -p "$FILE" "$OUTSIDE/old" && printf X | dd of="$FILE" bs=1 conv=notrunc 2>/dev/null && '
        'touch -r "$OUTSIDE/old" "$FILE" && rm "$OUTSIDE/old"',
    ),
    ShellLeak(name="removed", what="a file of the image less", shell='rm "$FILE"'),
    ShellLeak(name="mode", what="another mode of a file of the image", shell='chmod 0666 "$FILE"'),
    ShellLeak(name="link", what="a link in the place of a file", shell='rm "$FILE" && ln -s /etc/passwd "$FILE"'),
    ShellLeak(name="fifo", what="a named pipe", shell='mkfifo "$OUTSIDE/planted"'),
    ShellLeak(name="empty-directory", what="a directory more", shell='mkdir "$OUTSIDE/planted"'),
    ShellLeak(
        name="temporary-file",
        what="a file among the temporary ones",
        shell="echo planted > /tmp/planted || echo planted > /dev/shm/planted",
    ),
    ShellLeak(
        name="login-environment",
        what="variables of every later login",
        needs=Needs.ROOT,
        shell="echo PLANTED=1 >> /etc/environment && echo 'export PLANTED=1' > /etc/profile.d/planted.sh",
    ),
    ShellLeak(
        name="preload", what="a library in every later program", needs=Needs.ROOT, shell="echo /tmp/no.so > /etc/ld.so.preload"
    ),
    ShellLeak(
        name="unmarked-process",
        what="a process without our mark and without a parent",
        programs=("setsid",),
        shell="(env -i setsid sleep 600 >/dev/null 2>&1 </dev/null &) ; sleep 0.1",
    ),
    ShellLeak(name="volume-file", what="a file more in a volume", shell='echo planted > "$VOLUME/planted"'),
    ShellLeak(
        name="volume-edit",
        what="other bytes in a volume's file",
        shell='for f in "$VOLUME"/*; do [ -f "$f" ] && echo planted >> "$f" && break; done',
    ),
    ShellLeak(
        name="volume-removed",
        what="an emptied volume",
        shell='set -- "$VOLUME"/* && test -e "$1" && rm -rf "$VOLUME"/* "$VOLUME"/.[!.]*',
    ),
    ShellLeak(name="volume-mode", what="another mode of a volume's top", shell='chmod 0707 "$VOLUME"'),
    ShellLeak(
        name="restart",
        what="the first process ended",
        shell="kill -TERM 1 || kill -KILL 1; for n in 1 2 3 4 5 6 7 8 9; do sleep 1; done; echo it goes on >&2; exit 1",
    ),
)
# Nobody knows what a foreign image's server holds in memory: there is no cleaning it in place.
LEAKS: tuple[ShellLeak, ...] = tuple(replace(leak, repaired_by=ResetMethod.RESTORE) for leak in _LEAKS)
CATALOGUE = Catalogue(kind="container", leaks=LEAKS)
