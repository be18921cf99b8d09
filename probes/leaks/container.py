"""The catalogue's part for containers of any image: their own files, processes, volumes, environment, and restarts."""

from __future__ import annotations

from probes.leaks.leak import Needs, ShellLeak
from sandbox.model import Depth

# `$FILE` names a file of the image that the agent may change, `$OUTSIDE` a directory of the image that it may write to, `$VOLUME`
# a volume. Shell text for the shells of small images.
LEAKS: tuple[ShellLeak, ...] = (
    ShellLeak(name="new-file", what="a file that the image does not have", shell='echo planted > "$OUTSIDE/planted"'),
    ShellLeak(name="edit", what="a changed file of the image", shell='echo planted >> "$FILE"'),
    ShellLeak(
        name="same-size-edit",
        what="a file of the image with other bytes, of the same size and time",
        shell='cp -p "$FILE" "$OUTSIDE/old" && printf X | dd of="$FILE" bs=1 conv=notrunc 2>/dev/null && '
        'touch -r "$OUTSIDE/old" "$FILE" && rm "$OUTSIDE/old"',
    ),
    ShellLeak(name="removed", what="a file of the image less", shell='rm "$FILE"'),
    ShellLeak(name="mode", what="another mode of a file of the image", shell='chmod 0666 "$FILE"', seen=Depth.QUICK),
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
        name="hosts", what="a name that leads elsewhere", needs=Needs.ROOT, shell="echo '127.0.0.1 planted.example' >> /etc/hosts"
    ),
    ShellLeak(name="background-process", what="a process that goes on", shell="setsid sleep 600 >/dev/null 2>&1 </dev/null &"),
    ShellLeak(
        name="unmarked-process",
        what="a process without our mark and without a parent",
        shell="(env -i setsid sleep 600 >/dev/null 2>&1 </dev/null &) ; sleep 0.1",
    ),
    ShellLeak(name="volume-file", what="a file more in a volume", shell='echo planted > "$VOLUME/planted"'),
    ShellLeak(
        name="volume-edit",
        what="other bytes in a volume's file",
        shell='for f in "$VOLUME"/*; do [ -f "$f" ] && echo planted >> "$f" && break; done',
    ),
    ShellLeak(name="volume-removed", what="an emptied volume", shell='rm -rf "$VOLUME"/* "$VOLUME"/.[!.]*'),
    ShellLeak(name="volume-mode", what="another mode of a volume's top", shell='chmod 0707 "$VOLUME"'),
    ShellLeak(name="restart", what="the first process ended", shell="kill -TERM 1 || kill -KILL 1"),
)
