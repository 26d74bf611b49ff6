#!/bin/sh
# Make sure that there is a browser for the tests of the report. Does nothing when there is one.
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
# Elsewhere Playwright brings one, into its own folder of the user's.
.venv/bin/python -m playwright install chromium
