#!/bin/sh
# Run several container engines on this machine, as if each had a machine of its own, and make them fail.
#
# Each engine has its own processes, network, files and host name, and sees neither the lab's folder nor this machine's
# network. A bridge in a network namespace of its own connects the engines. Nothing of this is part of this machine's
# own network or of its own engine, so the cluster needs no free addresses and no firewall rules here.
#
# Usage: tools/engines.sh up COUNT [FOLDER]      make and start a swarm of engine-1 to engine-COUNT, and repair all faults
#        tools/engines.sh kill N [FOLDER]        kill engine N with -9; its containers go on without an engine
#        tools/engines.sh crash N [FOLDER]       end all processes of engine N's machine, as a power cut does
#        tools/engines.sh pause N [FOLDER]       stop the process of engine N, but not its containers
#        tools/engines.sh resume N [FOLDER]      continue the process of engine N
#        tools/engines.sh cut N [FOLDER]         take down the link of engine N's machine
#        tools/engines.sh mend N [FOLDER]        bring the link up again
#        tools/engines.sh run N COMMAND…         run a command on engine N's machine
#        tools/engines.sh down [FOLDER]          remove everything, also images and containers
# FOLDER is /var/lib/stampede-engines by default, or what the variable FOLDER says. Its name gives the names of the
# Docker contexts: stampede-1 to stampede-COUNT, or mine-1 to mine-COUNT for /some/where/mine-engines.
# `up` describes the machines in FOLDER/machines.yaml. The engines have no images, and no network to pull images from:
#     docker save IMAGE | docker --context stampede-1 load
# With DELAY=5ms or LOSS=1%, each packet from one machine to another is late or may be lost, if the kernel has netem.
# This needs Linux, root, and the programs of docker, iproute2 and util-linux.
# shellcheck disable=SC2016  # the shell of an engine's machine expands what is in single quotes
set -eu

network=198.18.0 # from 198.18.0.0/15, which RFC 2544 keeps for measurements; Docker gives its networks other addresses
start_s=60
running='pid=$(cat /run/engine.pid 2>/dev/null) && [ -d "/proc/$pid" ]' # succeeds if this machine's engine runs

say() { printf '%s\n' "$*" >&2; }
fail() { say "error: $1"; say ""; say "hint: $2"; exit 2; }
usage() { sed -n 's/^# Usage: //p; s/^#        tools/tools/p' "$0" >&2; exit 2; }

# Print the process that holds a machine's namespaces: its first process, whose last argument is the machine's folder.
holder() (
    exec 2>/dev/null # the process may end at any time
    pid=$(cat "$folder/$1/pid") && tr '\0' '\n' <"/proc/$pid/cmdline" | grep -qxF "$folder/$1" && echo "$pid"
)

on() {
    machine=$(holder "$1") || fail "$1 does not run in $folder." "tools/engines.sh up COUNT $folder"
    shift
    nsenter --target "$machine" --mount --uts --net --pid -- "$@"
}

# The programs are this machine's, in the network of the bridge, because they name processes by this machine's numbers.
at_switch() {
    machine=$(holder switch) || fail "No engines run in $folder." "tools/engines.sh up COUNT $folder"
    nsenter --target "$machine" --net "$@"
}

socket() { echo "unix://$folder/$1/docker.sock"; }
answers() { timeout 5 docker --host "$(socket "$1")" version >/dev/null 2>&1; }
last_words() { tail -n 1 "$folder/$1/log"; }
runs() { on "$1" sh -c "$running"; }
signal() { on "$1" sh -c "$running && kill -$2 \"\$pid\""; }

# Become the first process of a new machine. It sees this machine's programs and devices, its own folder, and a copy of
# /etc; nothing else of this machine's files, so that a test notices when the lab expects its files on another machine.
become_machine() {
    home=$1
    read -r pid _ </proc/self/stat # this machine's /proc still, so this is the process's number on this machine
    basename "$home" >/proc/sys/kernel/hostname
    ip link set lo up
    mount -t tmpfs -o mode=755 stampede "$home/root"
    cd "$home/root"
    for path in bin lib lib32 lib64 libx32 sbin usr dev sys; do
        if [ -L "/$path" ]; then cp -P "/$path" .
        elif [ -d "/$path" ]; then mkdir "$path"; mount --rbind "/$path" "$path"
        fi
    done
    mkdir -p proc run tmp var outside ".$home"
    chmod 1777 tmp
    cp -a /etc .
    rm -rf etc/docker # settings and identity of this machine's engine
    ln -s "$home/settings" etc/docker
    mount -t proc proc proc
    mount --bind "$home" ".$home"
    pivot_root . outside
    umount --lazy /outside
    rmdir /outside
    cd /
    echo "$pid" >"$home/pid.part"
    mv "$home/pid.part" "$home/pid"
    # A shell reaps the processes that lose their parents while it waits for sleep.
    exec sh -c 'while :; do sleep infinity; done' machine "$home"
}

start_machine() {
    if holder "$1" >/dev/null; then return; fi
    mkdir -p "$folder/$1/root" "$folder/$1/settings" "$folder/$1/data"
    rm -f "$folder/$1/pid"
    # From /, so that no process keeps a folder busy.
    (cd / && exec setsid unshare --mount --uts --net --pid --fork "$self" become-machine "$folder/$1") \
        </dev/null >"$folder/$1/log" 2>&1 &
    until holder "$1" >/dev/null; do
        if ! kill -0 $! 2>/dev/null; then
            fail "$1 could not be made: $(last_words "$1")" "Run this outside of containers, where root may mount."
        fi
        sleep 0.02
    done
}

connect() {
    if on "engine-$1" ip link show eth0 >/dev/null 2>&1; then
        at_switch ip link set "port-$1" up
        return
    fi
    at_switch ip link delete "port-$1" 2>/dev/null || true # of a machine that crashed a moment ago
    at_switch ip link add "port-$1" type veth peer name eth0 netns "$(holder "engine-$1")"
    at_switch ip link set "port-$1" master bridge up
    on "engine-$1" ip address add "$network.$1/24" dev eth0
    on "engine-$1" ip link set eth0 up
}

# A port of the bridge sends what its machine receives, so each packet between two machines is delayed once.
impair() {
    at_switch tc qdisc delete dev "port-$1" root 2>/dev/null || true
    if [ -z "${DELAY:-}${LOSS:-}" ]; then return; fi
    set -- "$1" ${DELAY:+delay "$DELAY"} ${LOSS:+loss "$LOSS"}
    if said=$(n=$1 && shift && at_switch tc qdisc add dev "port-$n" root netem "$@" 2>&1); then
        say "engine-$1: packets to this machine: delay ${DELAY:-0}, loss ${LOSS:-0}."
    elif [ "$1" = 1 ]; then
        case $said in
            *"kind is unknown"*) say "This kernel has no netem, so packets are neither delayed nor lost." ;;
            *) fail "tc refused DELAY=${DELAY:-} LOSS=${LOSS:-}: $said" "DELAY=5ms LOSS=1% tools/engines.sh up 3" ;;
        esac
    fi
}

start_engine() {
    if signal "$1" CONT; then return; fi
    say "Starting $1 …"
    # This shell ends at once, so the engine becomes a child of the machine's first process, which reaps it.
    on "$1" sh -c 'rm -f /run/docker.pid; setsid "$@" </dev/null >>"$0" 2>&1 & echo $! >/run/engine.pid' \
        "$folder/$1/log" dockerd --data-root "$folder/$1/data" --exec-root /run/docker --pidfile /run/docker.pid \
        --host "$(socket "$1")" --cgroup-parent "/$cluster-$1"
}

wait_for_engine() {
    deadline=$(($(date +%s) + start_s))
    until answers "$1"; do
        what=
        if ! runs "$1"; then what="ended instead of starting"
        elif [ "$(date +%s)" -gt "$deadline" ]; then what="does not answer after $start_s s"
        fi
        if [ -n "$what" ]; then fail "$1 $what: $(last_words "$1")" "The engine's log is $folder/$1/log."; fi
        sleep 0.1
    done
}

# The engine's containers go on. Return after the end of the engine, so that a new engine does not meet it.
kill_engine() {
    on "$1" sh -c "$running"' && containerd=$(cat /run/docker/containerd/containerd.pid) && kill -9 "$pid" &&
        while [ -d "/proc/$pid" ] || [ -d "/proc/$containerd" ]; do kill -9 "$containerd" 2>/dev/null; sleep 0.02; done'
}

# Print the address of a Docker context's engine; nothing if there is no such context.
context_host() { docker context inspect --format '{{.Endpoints.docker.Host}}' "$1" 2>/dev/null || true; }

add_context() {
    host=$(context_host "$cluster-$1")
    case $host in
        "$(socket "engine-$1")") ;;
        "") docker context create "$cluster-$1" --docker "host=$(socket "engine-$1")" >/dev/null ;;
        *) fail "The Docker context $cluster-$1 belongs to $host." "tools/engines.sh up $count /another/folder" ;;
    esac
}

check_count() {
    case $count in ""|*[!0-9]*) usage ;; esac
    if [ "$count" -lt 1 ] || [ "$count" -gt 250 ]; then
        fail "COUNT is $count; 1 to 250 are possible." "tools/engines.sh up 3"
    fi
    longest=$folder/engine-$count/docker.sock
    if [ ${#longest} -gt 107 ]; then
        fail "The path of a socket has at most 107 characters; $longest has ${#longest}." "tools/engines.sh up $count"
    fi
}

check_programs() {
    for program in docker dockerd ip nsenter unshare pivot_root; do
        if ! command -v "$program" >/dev/null; then
            fail "The program $program is missing." "sudo apt-get install docker.io iproute2 util-linux"
        fi
    done
}

describe_machines() {
    echo "machines:"
    for n in $engines; do echo "  engine-$n: {context: $cluster-$n, role: both}"; done
}

# Put all engines into one swarm, which the first one manages.
join() {
    outside() { [ "$(docker --context "$cluster-$1" info --format "{{.Swarm.LocalNodeState}}")" = inactive ]; }
    if outside 1; then docker --context "$cluster-1" swarm init --advertise-addr "$network.1" >/dev/null; fi
    token=$(docker --context "$cluster-1" swarm join-token --quiet worker)
    for n in $engines; do
        if outside "$n"; then
            docker --context "$cluster-$n" swarm join --advertise-addr "$network.$n" --token "$token" "$network.1:2377" >/dev/null
        fi
    done
}

up() {
    check_count
    check_programs
    engines=$(seq "$count")
    mkdir -p "$folder"
    start_machine switch
    at_switch ip link show bridge >/dev/null 2>&1 || at_switch ip link add bridge up type bridge
    for n in $engines; do
        add_context "$n"
        start_machine "engine-$n"
        connect "$n"
        impair "$n"
        start_engine "engine-$n"
    done
    for n in $engines; do wait_for_engine "engine-$n"; done
    join
    describe_machines >"$folder/machines.yaml.part"
    mv "$folder/machines.yaml.part" "$folder/machines.yaml"
    say "All engines up to engine-$count answer. Try: docker --context $cluster-$count info"
    say "The machines are described in $folder/machines.yaml."
}

down() {
    if [ ! -d "$folder/switch" ]; then say "No engines in $folder."; return; fi
    for home in "$folder"/engine-* "$folder/switch"; do
        name=$(basename "$home")
        say "Removing $name …"
        end_machine "$name"
        context=$cluster-${name#engine-}
        if [ "$(context_host "$context")" = "$(socket "$name")" ]; then docker context rm "$context" >/dev/null; fi
    done
    find /sys/fs/cgroup -depth -type d -path "*/$cluster-engine-*" -exec rmdir {} +
    rm -rf "$folder"/engine-* "$folder/switch" "$folder/machines.yaml"
    rmdir "$folder"
}

# All processes of a machine end with its first process, and its mounts and network end with its processes.
end_machine() {
    if ! pid=$(holder "$1"); then return; fi
    kill -9 "$pid"
    while [ -d "/proc/$pid" ]; do sleep 0.02; done
}

self=$(realpath "$0")
verb=${1:-}
if [ "$verb" = become-machine ]; then become_machine "$2"; fi
folder=${FOLDER:-/var/lib/stampede-engines}
case $verb in
    up) count=${2:-} folder=${3:-$folder} ;;
    down) folder=${2:-$folder} ;;
    run) name=engine-${2:-} ;;
    kill|crash|pause|resume|cut|mend) name=engine-${2:-} folder=${3:-$folder} ;;
    *) usage ;;
esac
if [ "$(uname)" != Linux ]; then
    fail "tools/engines.sh needs Linux, because it makes namespaces." "Use a Linux machine, real or virtual."
fi
if [ "$(id -u)" != 0 ]; then
    fail "tools/engines.sh needs root, because it makes namespaces." "sudo tools/engines.sh $*"
fi
folder=$(realpath -m "$folder")
cluster=$(basename "$folder" -engines)
case $verb in
    kill|pause|resume) runs "$name" || fail "$name was killed already." "tools/engines.sh up COUNT $folder" ;;
esac
case $verb in
    up) up ;;
    down) down ;;
    kill) kill_engine "$name" ;;
    crash) end_machine "$name" ;;
    pause) signal "$name" STOP ;;
    resume) signal "$name" CONT ;;
    cut) at_switch ip link set "port-$2" down ;;
    mend) at_switch ip link set "port-$2" up ;;
    run) shift 2; on "$name" "$@" ;;
esac
