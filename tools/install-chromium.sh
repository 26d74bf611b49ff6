#!/bin/sh
# Install a browser for the tests of the report, unless there is one already.
set -eu
for program in chromium chromium-browser google-chrome google-chrome-stable; do
    if command -v "$program" >/dev/null; then exit 0; fi
done
if [ "$(id -u)" = 0 ] && [ -e /etc/debian_version ]; then
    echo "Installing Chromium from the distribution …" >&2
    export DEBIAN_FRONTEND=noninteractive
    apt-get update --quiet --quiet
    apt-get install --yes --quiet --quiet --no-install-recommends chromium >/dev/null
    exit 0
fi
# On other systems, Playwright installs a browser into the user's cache.
.venv/bin/python -m playwright install chromium
