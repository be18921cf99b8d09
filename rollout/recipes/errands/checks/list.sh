#!/bin/sh
# list.sh LIST LINE: success where LINE stands at the end of LIST and nothing else changed. Nothing is executed that an agent wrote.
set -eu
cd /workspace
test ! -e '.[!.]*' && test ! -e '..?*' || exit 1
test "$(echo .[!.]* ..?* *)" = ".[!.]* ..?* garden kitchen office" || exit 1
for list in garden kitchen office; do
    test -f "$list" && test ! -L "$list" || exit 1
    if test "$list" = "$1"; then
        { cat "/checks/seed/$list" && printf '%s\n' "$2"; } | cmp -s - "$list" || exit 1
    else
        cmp -s "/checks/seed/$list" "$list" || exit 1
    fi
done
