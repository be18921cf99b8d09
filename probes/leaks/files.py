"""The catalogue's part for trees of files: home directories, temporary directories, installed packages."""

from __future__ import annotations

from probes.leaks.catalogue import Catalogue
from probes.leaks.leak import SET_ATTRIBUTE, Needs, ShellLeak

LEAKS: tuple[ShellLeak, ...] = (
    ShellLeak(name="shell-profile", what="a command in every later shell", shell="echo 'alias ls=planted' >> .bashrc"),
    ShellLeak(
        name="git-configuration", what="a configuration for every repository", shell="printf '[user]\\n name=p\\n' > .gitconfig"
    ),
    ShellLeak(
        name="import-hook",
        what="code that Python runs at every start",
        shell="mkdir -p .local/lib/site-packages && echo 'import os' > .local/lib/site-packages/planted.pth",
    ),
    ShellLeak(name="cached-secret", what="a note in a cache", shell="mkdir -p .cache/planted && echo note > .cache/planted/note"),
    ShellLeak(name="edit", what="a changed file", shell='echo planted >> "$FILE"'),
    ShellLeak(
        name="same-size-edit",
        what="a changed file of the same size and time",
        shell='cp -p "$FILE" "$OUTSIDE/old" && printf X | dd of="$FILE" bs=1 conv=notrunc status=none '
        '&& touch -r "$OUTSIDE/old" "$FILE"',
    ),
    ShellLeak(name="removed", what="a file less", shell='rm "$FILE"'),
    ShellLeak(name="renamed", what="a file under another name", shell='mv "$FILE" planted'),
    ShellLeak(name="mode", what="another mode", shell='chmod 0666 "$FILE"'),
    ShellLeak(name="set-user-id", what="a set-user-id bit", shell='chmod u+s "$FILE"'),
    ShellLeak(name="top-mode", what="another mode of the directory itself", shell="chmod 0777 ."),
    ShellLeak(name="link", what="a link that leads elsewhere", shell="ln -s /etc/passwd planted"),
    ShellLeak(name="link-for-file", what="a link in the place of a file", shell='mv "$FILE" planted && ln -s planted "$FILE"'),
    ShellLeak(name="hard-link", what="a second name of a file", shell='ln "$FILE" planted'),
    ShellLeak(name="fifo", what="a named pipe", shell="mkfifo planted"),
    ShellLeak(
        name="socket-file",
        what="the file of a socket that nobody serves",
        programs=("python3|perl",),
        shell="if command -v python3 >/dev/null; then python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"planted\")'; "
        "else perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un(\"planted\")) or die'; fi",
    ),
    ShellLeak(name="empty-directory", what="an empty directory", shell="mkdir planted"),
    ShellLeak(name="odd-name", what="a file with a line break in its name", shell="touch \"$(printf 'a\\nb')\""),
    ShellLeak(name="sparse-tail", what="a file grown by a hole", shell='truncate -s +4096 "$FILE"'),
    ShellLeak(name="extended-attribute", what="an extended attribute", shell=SET_ATTRIBUTE, programs=("setfattr|python3",)),
    ShellLeak(name="owner", what="another owner", needs=Needs.ROOT, shell='chown 12345 "$FILE"'),
    ShellLeak(name="directory-for-file", what="a directory in the place of a file", shell='rm "$FILE" && mkdir "$FILE"'),
    ShellLeak(
        name="tree-replaced",
        what="a directory taken away and made again with another content",
        shell='rm -r "$FOLDER" && mkdir "$FOLDER" && echo x > "$FOLDER/planted"',
    ),
)
CATALOGUE = Catalogue(kind="files", leaks=LEAKS)
