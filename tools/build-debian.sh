#!/bin/sh
# Build a stand-in for the image debian:trixie-slim from Debian's package archive, for machines that cannot reach an
# image registry. This needs Debian or Ubuntu, and root.
# Usage: tools/build-debian.sh IMAGE
# As for every command of Docker, DOCKER_DEFAULT_PLATFORM chooses another processor, e.g. linux/arm64.
set -eu
cd "$(dirname "$0")/.."

image=$1
export DEBIAN_FRONTEND=noninteractive
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

if ! command -v mmdebstrap >/dev/null || [ ! -e "$keyring" ]; then
    apt-get update --quiet
    apt-get install --yes --quiet --no-install-recommends mmdebstrap debian-archive-keyring
fi

# Use the mirrors of this machine, because a closed network may reach only them; otherwise, mmdebstrap's default.
mirror=$(tools/debian-mirror.sh Debian)
security=$(tools/debian-mirror.sh Debian-Security)
set --
if [ -n "$mirror" ]; then set -- "deb $mirror trixie main" "deb $mirror trixie-updates main"; fi
if [ -n "$security" ]; then set -- "$@" "deb $security trixie-security main"; fi

root=$(mktemp)
trap 'rm -f "$root"' EXIT
platform=${DOCKER_DEFAULT_PLATFORM:-}
mmdebstrap ${platform:+--architectures="${platform#*/}"} --variant=minbase --format=tar --keyring="$keyring" \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    trixie "$root" "$@"
docker import ${platform:+--platform "$platform"} \
    --change 'CMD ["bash"]' --change 'LABEL stampede.stand-in="Debian package archive"' "$root" "$image"
