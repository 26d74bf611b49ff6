#!/bin/sh
# Run the engine of Debian 13 beside this machine's engine, to try the lab on it: Docker 26.1 with its own containerd.
#
# The engine's programs come from a Debian 13 that is unpacked in FOLDER. It sees this machine's files, so the lab's
# folders can be mounted; its processes and its network are its own, so neither engine changes the other's firewall.
#
# Usage: tools/newer-engine.sh up [FOLDER]      unpack it if needed, start it, and give it the lab's base images
#        tools/newer-engine.sh down [FOLDER]    end it, and remove everything
# FOLDER is /var/lib/stampede-newer by default. Then: export DOCKER_HOST=unix:///var/lib/stampede-newer/docker.sock
# With STORE=containerd, `up` starts the engine with containerd's store of images, the default from Docker 29 on.
# With DOCKER_DEFAULT_PLATFORM=linux/arm64, which Docker heeds, too, qemu emulates that processor in the containers.
# This needs Debian or Ubuntu, and root.
set -eu
cd "$(dirname "$0")/.."

verb=${1:-}
folder=$(realpath -m "${2:-/var/lib/stampede-newer}")
if [ "${STORE:-}" = containerd ]; then store=true; else store=false; fi
link=198.18.255 # from 198.18.0.0/15, which RFC 2544 keeps for measurements
start_s=60
platform=${DOCKER_DEFAULT_PLATFORM:-}

say() { printf '%s\n' "$*" >&2; }
engine() { docker --host "unix://$folder/docker.sock" "$@"; }
answers() { timeout 5 docker --host "unix://$folder/docker.sock" version >/dev/null 2>&1; }
holder() { pid=$(cat "$folder/pid" 2>/dev/null) && [ -d "/proc/$pid" ] && echo "$pid"; }
masquerade() { iptables --table nat "$1" POSTROUTING --source "$link.0/30" --jump MASQUERADE; }

unpack() {
    if [ -x "$folder/root/usr/sbin/dockerd" ]; then return; fi
    if ! command -v mmdebstrap >/dev/null; then
        DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends mmdebstrap
    fi
    say "Unpacking Debian 13 with its engine into $folder/root …"
    mirror=$(tools/debian-mirror.sh Debian)
    mkdir -p "$folder"
    mmdebstrap --quiet --variant=minbase --include=docker.io,containerd,runc,iptables,ca-certificates,util-linux \
        --keyring=/usr/share/keyrings/debian-archive-keyring.gpg --dpkgopt='path-exclude=/usr/share/doc/*' \
        trixie "$folder/root" ${mirror:+"deb $mirror trixie main"}
}

# The first process of the engine's namespaces: Debian 13's programs, and this machine's files at their own paths.
become_engine() {
    root=$folder/root
    ip link set lo up
    mount --bind "$root" "$root"
    for path in /dev /sys /home /mnt /opt /root /srv /tmp /work /etc/ssl "$folder"; do
        if [ -d "$path" ]; then mkdir -p "$root$path"; mount --rbind "$path" "$root$path"; fi
    done
    cp /etc/resolv.conf "$root/etc/"
    mkdir -p "$root/etc/docker"
    printf '{"features": {"containerd-snapshotter": %s}}' "$store" >"$root/etc/docker/daemon.json"
    mkdir -p "$root/outside"
    cd "$root"
    pivot_root . outside
    mount -t proc proc /proc
    mount -t tmpfs run /run
    umount --lazy /outside
    cd /
    exec dockerd --host "unix://$folder/docker.sock" --data-root "$folder/data" --exec-root /run/docker \
        --pidfile /run/docker.pid --cgroup-parent /stampede-newer
}

start() {
    if answers; then return; fi
    say "Starting the engine …"
    setsid unshare --mount --net --pid --fork --kill-child "$self" become-engine "$folder" \
        </dev/null >"$folder/log" 2>&1 &
    echo $! >"$folder/pid"
    connect
    deadline=$(($(date +%s) + start_s))
    until answers; do
        if ! holder >/dev/null || [ "$(date +%s)" -gt "$deadline" ]; then
            say "error: the engine does not answer: $(tail -n 1 "$folder/log")"
            exit 1
        fi
        sleep 0.2
    done
}

# A link to this machine, which forwards packets as it does for the containers of its own engine.
connect() {
    until inside=$(pgrep --parent "$(holder)"); do sleep 0.05; done
    ip link add stampede-newer type veth peer name eth0 netns "$inside"
    ip address add "$link.1/30" dev stampede-newer
    ip link set stampede-newer up
    nsenter --target "$inside" --net sh -c \
        "ip address add $link.2/30 dev eth0 && ip link set eth0 up && ip route add default via $link.1"
    masquerade --check 2>/dev/null || masquerade --append
    iptables --check FORWARD --in-interface stampede-newer --jump ACCEPT 2>/dev/null || {
        iptables --insert FORWARD --in-interface stampede-newer --jump ACCEPT
        iptables --insert FORWARD --out-interface stampede-newer --jump ACCEPT
    }
}

# qemu's handlers run programs of other processors in every container. Debian's package registers them.
emulate() {
    handlers=/proc/sys/fs/binfmt_misc
    [ -e $handlers/register ] || mount -t binfmt_misc binfmt_misc $handlers
    if ! command -v arch-test >/dev/null || [ ! -e $handlers/qemu-aarch64 ]; then
        DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends \
            qemu-user-static binfmt-support arch-test
    fi
    for image in $(cut -d@ -f1 tools/base-images.txt); do
        if engine image inspect "$image" >/dev/null 2>&1; then continue; fi
        case $image in
            debian:*) DOCKER_HOST=unix://$folder/docker.sock tools/build-debian.sh "$image" ;;
            *) cross_compile "$image" ;;
        esac
    done
}

# This machine's engine compiles k6, because a compiler that is emulated takes an hour.
cross_compile() {
    compiled=stampede-newer-k6
    DOCKER_DEFAULT_PLATFORM='' docker buildx build --load --tag $compiled --target build \
        --build-arg K6_RELEASE="${1#*:}" --build-arg GOARCH="${platform#*/}" \
        --secret id=ca_bundle,src=/etc/ssl/certs/ca-certificates.crt --file tools/k6.Dockerfile tools
    mkdir -p "$folder/k6/out"
    container=$(DOCKER_DEFAULT_PLATFORM='' docker create $compiled)
    docker cp "$container:/out/k6" "$folder/k6/out/k6"
    docker rm "$container" >/dev/null
    docker rmi $compiled >/dev/null
    DOCKER_HOST=unix://$folder/docker.sock docker buildx build --load --tag "$1" --build-context build="$folder/k6" \
        --file tools/k6.Dockerfile tools
}

give_images() {
    for image in $(cut -d@ -f1 tools/base-images.txt); do
        if docker image inspect "$image" >/dev/null 2>&1 && ! engine image inspect "$image" >/dev/null 2>&1; then
            docker save "$image" | engine load
        fi
    done
}

up() {
    unpack
    start
    if [ "$platform" ]; then emulate; else give_images; fi
    say "Docker $(engine version --format '{{.Server.Version}}') answers. export DOCKER_HOST=unix://$folder/docker.sock"
}

down() {
    if pid=$(holder); then
        pkill --parent "$pid" # the engine; unshare ends with it
        while [ -d "/proc/$pid" ]; do sleep 0.1; done
    fi
    if masquerade --check 2>/dev/null; then
        masquerade --delete
        iptables --delete FORWARD --in-interface stampede-newer --jump ACCEPT
        iptables --delete FORWARD --out-interface stampede-newer --jump ACCEPT
    fi
    find /sys/fs/cgroup -depth -type d -path "*/stampede-newer*" -exec rmdir {} + 2>/dev/null || true
    rm -rf "$folder"
}

self=$(realpath tools/newer-engine.sh)
if [ "$verb" != become-engine ] && [ "$(id -u)" != 0 ]; then
    say "error: tools/newer-engine.sh needs root, because it makes namespaces."
    say "hint: sudo tools/newer-engine.sh $*"
    exit 2
fi
case $verb in
    up) up ;;
    down) down ;;
    become-engine) become_engine ;;
    *) sed -n 's/^# Usage: //p; s/^#        tools/tools/p' "$self" >&2; exit 2 ;;
esac
