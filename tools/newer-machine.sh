#!/bin/sh
# Run a Debian 13 with systemd, cgroup v2 and its own engine in a virtual machine, to try the lab there as an ordinary
# user. qemu emulates the processor, so this machine needs no virtualization of its own, and everything takes long.
#
# Usage: tools/newer-machine.sh up                        make it if needed, start it, and give it the lab's images
#        tools/newer-machine.sh try [OPTION…] [STEP…]     run tools.tried there, and bring its row of tried.json back
#        tools/newer-machine.sh run COMMAND               run a command of the shell there, as the user lab
#        tools/newer-machine.sh down                      end it, and remove everything but its console.log
# All is in the folder that the variable FOLDER names, /var/lib/stampede-machine by default. Only this machine reaches
# the virtual machine, at PORT (2226 by default). This needs Debian or Ubuntu, root, and 8 GB of disk.
set -eu
cd "$(dirname "$0")/.."

verb=${1:-}
folder=$(realpath -m "${FOLDER:-/var/lib/stampede-machine}")
root=$folder/root
port=${PORT:-2226}
start_s=600
images="stampede/gunicorn:27.0.1 stampede/nginx:trixie $(cut -d@ -f1 tools/base-images.txt | tr '\n' ' ')"

say() { printf '%s\n' "$*" >&2; }
usage() { sed -n 's/^# Usage: //p; s/^#        tools/tools/p' tools/newer-machine.sh >&2; exit 2; }
inside() {
    ssh -F /dev/null -i "$folder/key" -p "$port" -o BatchMode=yes -o ConnectTimeout=20 -o LogLevel=ERROR \
        -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null lab@127.0.0.1 "$@"
}
# shellcheck disable=SC2016  # the inner shell expands what is in single quotes
in_root() { unshare --mount --pid --fork sh -c 'mount -t proc proc "$0/proc" && exec chroot "$0" "$@"' "$root" "$@"; }
holder() { pid=$(cat "$folder/pid" 2>/dev/null) && grep -qsF "$folder/disk" "/proc/$pid/cmdline" && echo "$pid"; }

install_programs() {
    for program in mmdebstrap qemu-system-x86_64:qemu-system-x86 mkfs.ext4:e2fsprogs ssh:openssh-client; do
        if ! command -v "${program%:*}" >/dev/null; then
            DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends "${program#*:}"
        fi
    done
}

unpack() {
    say "Unpacking Debian 13 …"
    mirror=$(tools/debian-mirror.sh Debian)
    mmdebstrap --quiet --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg \
        --include=linux-image-cloud-amd64,systemd-sysv,udev,dbus,libpam-systemd,openssh-server,ca-certificates \
        --include=docker.io,docker-cli,docker-compose,docker-buildx,iptables,git,make,python3-venv \
        --dpkgopt='path-exclude=/usr/share/doc/*' trixie "$root" ${mirror:+"deb $mirror trixie main"}
    cp -L "$root/vmlinuz" "$root/initrd.img" "$folder"
}

# qemu's AVX2 makes numpy's sums differ from call to call. What numba compiles here for any processor is used there.
settle_in() {
    echo machine >"$root/etc/hostname"
    echo "127.0.0.1 localhost machine" >"$root/etc/hosts"
    printf '[Match]\nName=e*\n[Network]\nDHCP=yes\n' >"$root/etc/systemd/network/80-dhcp.network"
    cat >"$root/etc/environment" <<-'VARIABLES'
	LANG=C.UTF-8
	NPY_DISABLE_CPU_FEATURES="X86_V3 AVX2 FMA3 AVX F16C"
	NUMBA_CPU_NAME=generic
	VARIABLES
    in_root systemctl --quiet enable systemd-networkd docker ssh
    in_root systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer systemd-networkd-wait-online
    in_root useradd --create-home --shell /bin/bash --groups docker lab
    ssh-keygen -q -t ed25519 -N '' -f "$folder/key"
    install -D -m 600 "$folder/key.pub" "$root/home/lab/.ssh/authorized_keys"
    mkdir "$root/home/lab/stampede"
    git archive HEAD | tar --extract --directory "$root/home/lab/stampede"
    in_root chown -R lab: /home/lab
    for file in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt; do
        if [ -s "$file" ]; then cp -L --remove-destination "$file" "$root$file"; fi
    done
    say "Installing the lab's Python packages …"
    for wanted in core compiled; do
        in_root runuser --user lab -- \
            env HOME=/home/lab NUMBA_CPU_NAME=generic PIP_FIND_LINKS= /home/lab/stampede/tools/venv.sh "$wanted"
    done
    echo "nameserver 10.0.2.3" >"$root/etc/resolv.conf" # the name server of qemu's user-mode network
}

make_disk() {
    if [ -e "$folder/disk" ]; then return; fi
    install_programs
    rm -rf "$root" "$folder/key" "$folder/key.pub"
    mkdir -p "$folder"
    unpack
    settle_in
    truncate --size 16G "$folder/disk.part"
    mkfs.ext4 -q -d "$root" "$folder/disk.part"
    mv "$folder/disk.part" "$folder/disk"
    rm -rf "$root"
}

start() {
    if ! holder >/dev/null; then
        say "Starting the machine …"
        qemu-system-x86_64 -accel tcg,thread=multi -cpu max -smp 2 -m 6G -display none -daemonize \
            -pidfile "$folder/pid" -serial "file:$folder/console.log" -kernel "$folder/vmlinuz" \
            -initrd "$folder/initrd.img" -append "root=/dev/vda rw console=ttyS0" \
            -drive "file=$folder/disk,format=raw,if=virtio,discard=unmap" \
            -nic "user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:$port-:22"
    fi
    deadline=$(($(date +%s) + start_s))
    until inside docker version >/dev/null 2>&1; do
        if ! holder >/dev/null || [ "$(date +%s)" -gt "$deadline" ]; then
            say "error: the machine does not answer: $(tail -n 1 "$folder/console.log")"
            exit 1
        fi
        sleep 1
    done
}

up() {
    make_disk
    start
    for image in $images; do
        if ! inside docker image inspect "$image" >/dev/null 2>&1; then docker save "$image" | inside docker load; fi
    done
    say "Docker $(inside "docker version --format '{{.Server.Version}}'") answers there. tools/newer-machine.sh try"
}

try() {
    if [ $# = 0 ]; then
        set -- --measured="--variants one-process,connection-limit --duration 20s --trials 1" \
            heavy-mix export verify left-behind
    fi
    row=docs/reference/tried.json
    inside "cat >stampede/$row" <$row
    printf '%s\n' "$@" | inside "cd stampede && xargs --delimiter '\n' env PYTHONPATH=. .venv/bin/python -m tools.tried"
    inside "cat stampede/$row" >"$folder/tried.json"
    cp "$folder/tried.json" $row
    say "$row has the row. PYTHONPATH=. .venv/bin/python -m tools.reference writes it on the page."
}

down() {
    if pid=$(holder); then
        kill "$pid"
        while [ -d "/proc/$pid" ]; do sleep 0.1; done
    fi
    for file in root disk disk.part vmlinuz initrd.img key key.pub tried.json pid; do rm -rf "${folder:?}/$file"; done
}

case $verb in up|try|run|down) shift ;; *) usage ;; esac
if [ "$(id -u)" != 0 ]; then
    say "error: tools/newer-machine.sh needs root, because it unpacks a system."
    say "hint: sudo tools/newer-machine.sh $verb"
    exit 2
fi
case $verb in
    up) up ;;
    try) try "$@" ;;
    run) inside "$@" ;;
    down) down ;;
esac
