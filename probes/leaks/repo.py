"""The catalogue's part for repositories: what `git reset --hard && git clean -fdx` does not take away, and what it does."""

from __future__ import annotations

from probes.leaks.catalogue import Catalogue
from probes.leaks.leak import SET_ATTRIBUTE, Needs, ShellLeak
from sandbox.model import ResetMethod

WORKING_TREE = (
    ShellLeak(name="tracked-edit", what="an edited file", shell='echo planted >> "$FILE"'),
    ShellLeak(
        name="staged-file", repaired_by=ResetMethod.RESTORE, what="a staged file", shell="echo x > planted && git add planted"
    ),
    ShellLeak(name="untracked-file", what="an untracked file", shell="echo x > planted"),
    ShellLeak(
        name="ignored-file",
        what="an ignored file",
        shows="*planted.cache",
        shell="echo 'planted*' >> .gitignore; echo x > planted.cache",
    ),
    ShellLeak(name="empty-directory", what="an empty directory", shell="mkdir -p planted/empty"),
    ShellLeak(name="closed-directory", what="a directory that cannot be entered", shell="mkdir planted && chmod 0500 planted"),
    ShellLeak(
        name="nested-repository", what="a repository inside the repository", shell="git init -q planted && echo x > planted/file"
    ),
    ShellLeak(name="mode", what="a file that everybody may write", shell='chmod 0666 "$FILE"'),
    ShellLeak(
        name="hidden-mode",
        repaired_by=ResetMethod.RESTORE,
        what="an executable bit that git is told to ignore",
        shows="*{FILE}",
        shell='git config core.fileMode false && chmod +x "$FILE"',
    ),
    ShellLeak(name="owner", what="another owner", needs=Needs.ROOT, shell='chown 12345 "$FILE"'),
    ShellLeak(
        name="modification-time",
        what="another time",
        seen=None,
        shell='touch -d 2001-01-01 "$FILE"',
        blind="times are never read: they prove nothing, and every copy would differ",
    ),
    ShellLeak(name="extended-attribute", what="an extended attribute", shell=SET_ATTRIBUTE, programs=("setfattr|python3",)),
    ShellLeak(
        name="directory-replaced-by-link",
        what="a tracked directory that leads elsewhere",
        shell='cp -r "$FOLDER" "$OUTSIDE/copy" && rm -rf "$FOLDER" && ln -s "$OUTSIDE/copy" "$FOLDER"',
    ),
    ShellLeak(
        name="same-size-same-time-edit",
        what="an edit of the same size with the old time put back",
        shell='cp -p "$FILE" "$OUTSIDE/old" && printf X | dd of="$FILE" bs=1 conv=notrunc status=none '
        '&& touch -r "$OUTSIDE/old" "$FILE"',
    ),
    ShellLeak(
        name="assume-unchanged",
        repaired_by=ResetMethod.RESTORE,
        what="an edit that the index hides",
        shows="*{FILE}",
        shell='git update-index --assume-unchanged "$FILE" && echo planted >> "$FILE"',
    ),
    ShellLeak(
        name="skip-worktree",
        repaired_by=ResetMethod.RESTORE,
        what="an edit that the index hides for good",
        shows="*{FILE}",
        shell='git update-index --skip-worktree "$FILE" && echo planted >> "$FILE"',
    ),
    ShellLeak(
        name="intent-to-add",
        repaired_by=ResetMethod.RESTORE,
        what="a file announced to the index",
        shell="echo x > planted && git add -N planted",
    ),
    ShellLeak(
        name="clean-filter",
        repaired_by=ResetMethod.RESTORE,
        what="a filter that rewrites files at every checkout",
        shell="git config filter.planted.smudge 'sed s/a/b/' && echo '* filter=planted' > .git/info/attributes",
    ),
)
REFS = (
    ShellLeak(
        name="head-moved", repaired_by=ResetMethod.RESTORE, what="another commit", shell="git commit -q --allow-empty -m planted"
    ),
    ShellLeak(
        name="head-detached",
        repaired_by=ResetMethod.RESTORE,
        what="HEAD names a commit instead of a branch",
        shell="git checkout -q --detach",
    ),
    ShellLeak(name="branch", repaired_by=ResetMethod.RESTORE, what="a branch", shell="git branch planted"),
    ShellLeak(
        name="branch-upstream",
        repaired_by=ResetMethod.RESTORE,
        what="an upstream of a branch",
        shell="git config branch.main.remote planted",
    ),
    ShellLeak(name="tag", what="a tag", shell="git tag planted"),
    ShellLeak(
        name="annotated-tag", repaired_by=ResetMethod.RESTORE, what="a tag with a message", shell="git tag -a planted -m note"
    ),
    ShellLeak(name="note", repaired_by=ResetMethod.RESTORE, what="a note on a commit", shell="git notes add -m planted"),
    ShellLeak(name="stash", repaired_by=ResetMethod.RESTORE, what="a stash", shell='echo planted >> "$FILE" && git stash -q'),
    ShellLeak(
        name="reflog",
        repaired_by=ResetMethod.RESTORE,
        what="a commit that only the reflog knows",
        shell="git commit -q --allow-empty -m planted && git reset -q --hard HEAD~1",
    ),
    ShellLeak(
        name="replaced-object",
        repaired_by=ResetMethod.RESTORE,
        what="an object that stands for another",
        shell="git replace HEAD $(git commit-tree -m planted HEAD^{tree})",
    ),
    ShellLeak(
        name="packed-refs",
        repaired_by=ResetMethod.RESTORE,
        what="refs in another form",
        shell="b=.git/$(git symbolic-ref HEAD); if [ -f $b ]; then git pack-refs --all; "
        "else mkdir -p ${b%/*} && h=$(git rev-parse HEAD) && echo $h > $b; fi",
    ),
    ShellLeak(
        name="symbolic-ref",
        repaired_by=ResetMethod.RESTORE,
        what="a ref that stands for another",
        shell="git symbolic-ref refs/planted refs/heads/main",
    ),
    ShellLeak(
        name="remote",
        repaired_by=ResetMethod.RESTORE,
        what="a remote with what it holds",
        shell="git remote add planted . && git fetch -q planted",
    ),
)
CONFIGURATION = (
    ShellLeak(name="alias", repaired_by=ResetMethod.RESTORE, what="an alias", shell="git config alias.st '!echo planted'"),
    ShellLeak(
        name="hooks-path",
        repaired_by=ResetMethod.RESTORE,
        what="hooks from elsewhere",
        shell='git config core.hooksPath "$OUTSIDE"',
    ),
    ShellLeak(
        name="monitor-command",
        repaired_by=ResetMethod.RESTORE,
        what="a command that runs at the next status",
        shell="git config core.fsmonitor /bin/true",
    ),
    ShellLeak(
        name="hook",
        repaired_by=ResetMethod.RESTORE,
        what="a hook",
        shell="printf '#!/bin/sh\\n' > .git/hooks/pre-commit && chmod +x .git/hooks/pre-commit",
    ),
    ShellLeak(name="identity", repaired_by=ResetMethod.RESTORE, what="another author", shell="git config user.name planted"),
    ShellLeak(
        name="include",
        repaired_by=ResetMethod.RESTORE,
        what="a configuration included from elsewhere",
        shell='git config include.path "$OUTSIDE/config"',
    ),
    ShellLeak(
        name="exclude",
        repaired_by=ResetMethod.RESTORE,
        what="files that status does not show",
        shell="echo planted > .git/info/exclude",
    ),
    ShellLeak(
        name="attributes",
        repaired_by=ResetMethod.RESTORE,
        what="attributes that no commit holds",
        shell="echo '* -text' > .git/info/attributes",
    ),
    ShellLeak(
        name="sparse-checkout",
        repaired_by=ResetMethod.RESTORE,
        what="files left out of the working tree",
        shell='git sparse-checkout set --no-cone "/$FOLDER/"',
    ),
    ShellLeak(
        name="worktree", repaired_by=ResetMethod.RESTORE, what="a second working tree", shell='git worktree add -q "$OUTSIDE/tree"'
    ),
    ShellLeak(
        name="submodule",
        repaired_by=ResetMethod.RESTORE,
        what="a submodule",
        shell='git init -q "$OUTSIDE/sub" && git -C "$OUTSIDE/sub" -c user.name=a -c user.email=b commit -q --allow-empty -m x '
        '&& git -c protocol.file.allow=always submodule --quiet add "$OUTSIDE/sub" planted',
    ),
    ShellLeak(
        name="split-index", repaired_by=ResetMethod.RESTORE, what="an index in two files", shell="git update-index --split-index"
    ),
)
STORE = (
    ShellLeak(
        name="alternates",
        repaired_by=ResetMethod.RESTORE,
        what="objects borrowed from elsewhere",
        shell='echo "$OUTSIDE" > .git/objects/info/alternates',
    ),
    ShellLeak(
        name="unreachable-object",
        repaired_by=ResetMethod.RESTORE,
        what="an object that nothing refers to",
        shell="echo planted | git hash-object -w --stdin",
    ),
    ShellLeak(
        name="unreachable-commit",
        repaired_by=ResetMethod.RESTORE,
        what="a commit that nothing refers to",
        shell="git commit-tree -m planted HEAD^{tree}",
    ),
    ShellLeak(name="shallow", repaired_by=ResetMethod.RESTORE, what="history cut short", shell="git rev-parse HEAD > .git/shallow"),
    ShellLeak(
        name="grafts",
        repaired_by=ResetMethod.RESTORE,
        what="history rewritten in a file",
        shell="git rev-parse HEAD > .git/info/grafts",
    ),
    ShellLeak(
        name="corrupt-object",
        repaired_by=ResetMethod.RESTORE,
        what="an object whose content is not what its name says",
        shell="f=$(find .git/objects -type f | sort | head -1) && chmod u+w $f && echo planted >> $f",
    ),
    ShellLeak(
        name="repacked",
        what="the same objects in another form",
        shell='p=.git/objects/pack; if [ -d $p ] && ls $p/*.pack >/dev/null 2>&1; then mv $p/* "$OUTSIDE" && '
        'for f in "$OUTSIDE"/*.pack; do git unpack-objects -q < $f || exit 1; done; else git repack -q -a -d; fi',
    ),
)
UNFINISHED = (
    ShellLeak(name="index-lock", what="a lock on the index", shell="touch .git/index.lock"),
    ShellLeak(name="bisect", repaired_by=ResetMethod.RESTORE, what="a search for a commit under way", shell="git bisect start -q"),
    ShellLeak(
        name="merge",
        repaired_by=ResetMethod.RESTORE,
        what="a merge under way",
        shell="git checkout -q -b planted && git commit -q --allow-empty -m p && git checkout -q - "
        "&& git commit -q --allow-empty -m q && git merge -q --no-commit --no-ff planted; test -e .git/MERGE_HEAD",
    ),
    ShellLeak(
        name="rebase",
        repaired_by=ResetMethod.RESTORE,
        what="a rebase under way",
        shell="mkdir .git/rebase-merge && echo planted > .git/rebase-merge/msg",
    ),
    ShellLeak(name="cherry-pick", what="a cherry-pick under way", shell="git rev-parse HEAD > .git/CHERRY_PICK_HEAD"),
    ShellLeak(
        name="commit-message",
        repaired_by=ResetMethod.RESTORE,
        what="the text of a message",
        shell="echo planted > .git/COMMIT_EDITMSG",
    ),
)
LEAKS: tuple[ShellLeak, ...] = (*WORKING_TREE, *REFS, *CONFIGURATION, *STORE, *UNFINISHED)
CATALOGUE = Catalogue(kind="repo", leaks=LEAKS)
