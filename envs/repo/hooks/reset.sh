#!/bin/sh
# The reset that most authors write by hand. It is here to be caught: hooks, settings, stashes, ignored repositories in
# ignored places, files at home and running processes all survive it. See docs/environments.md.
set -e
cd /workspace
git reset --hard
git clean -fdx
