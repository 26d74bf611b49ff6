#!/bin/sh
# Print the mirror from which this machine gets Debian's packages; print nothing on other systems.
# Usage: tools/debian-mirror.sh Debian|Debian-Security
set -eu
# apt fills in the variables, not the shell.
# shellcheck disable=SC2016
uris() { apt-get indextargets --format '$(LABEL) $(REPO_URI)' 'Created-By: Packages' 2>/dev/null; }
[ -n "$(uris)" ] || apt-get update --quiet --quiet >&2
uris | sed -n "s|^$1 \([a-z+]*:[^ ]*\)\$|\1|p" | sort -u | head -n 1
