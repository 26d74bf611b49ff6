#!/bin/sh
# Install Docker's engine with the Compose and buildx plug-ins from the distribution's own archive, unless they are
# there already. This needs Debian or Ubuntu, and root.
set -eu
cd "$(dirname "$0")/.."

export DEBIAN_FRONTEND=noninteractive
plugins=/usr/local/lib/docker/cli-plugins

has_package() { apt-cache show "$1" >/dev/null 2>&1; }
has_plugin() { docker "$1" version >/dev/null 2>&1; }
install_packages() { apt-get install --yes --quiet --no-install-recommends "$@"; }

# Debian 12 has Compose 1, and no buildx. Compose and buildx of Debian 13 are two programs that need only libc >= 2.34.
# Unpack these programs as plug-ins, and leave this system's own package sources and versions unchanged.
install_plugins_of_trixie() {
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/lists/partial" "$work/archives/partial" "$work/parts" "$plugins"
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(tools/debian-mirror.sh Debian) trixie main" \
        > "$work/sources.list"
    for command in update "download docker-compose docker-buildx"; do
        # shellcheck disable=SC2086  # the second command has three words
        (cd "$work" && apt-get --quiet \
            -o Dir::State::Lists="$work/lists" -o Dir::Cache::archives="$work/archives" \
            -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= \
            -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts="$work/parts" \
            -o APT::Sandbox::User=root $command)
    done
    for package in "$work"/*.deb; do dpkg -x "$package" "$work/unpacked"; done
    for plugin in docker-compose docker-buildx; do
        install -m 755 "$(find "$work/unpacked" -path "*/cli-plugins/$plugin")" "$plugins/$plugin"
    done
}

apt-get update --quiet
if ! command -v dockerd >/dev/null; then
    packages="docker.io iptables ca-certificates"
    if has_package docker-cli; then packages="$packages docker-cli"; fi
    # shellcheck disable=SC2086  # a list of words
    install_packages $packages
fi
if ! has_plugin compose || ! has_plugin buildx; then
    if has_package docker-compose-v2; then install_packages docker-compose-v2 docker-buildx
    elif has_package docker-buildx; then install_packages docker-compose docker-buildx
    else install_plugins_of_trixie
    fi
fi
docker compose version
docker buildx version
