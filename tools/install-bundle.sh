#!/bin/sh
# Install the lab from an unpacked bundle, without a network: ./install.sh [FOLDER], by default ~/stampede.
# `stampede bundle` puts this file into the bundle as install.sh.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
target=${1:-$HOME/stampede}
python=${PYTHON:-python3}

say() { printf '%s\n' "$*" >&2; }
fail() {
    say "error: $1"
    say ""
    say "hint: $2"
    exit 1
}
told() { sed -n "s/^$1=//p" "$here/about"; }

machine="$(uname -s) $(uname -m)"
[ "$machine" = "$(told machine)" ] ||
    fail "This bundle is for $(told machine); this machine is $machine." "Make a bundle on a machine like this: stampede bundle"

say "Checking the files of the bundle …"
if command -v sha256sum >/dev/null; then check="sha256sum --check --quiet"; else check="shasum --algorithm 256 --check --quiet"; fi
(cd "$here" && $check sha256sums >&2) || fail "The bundle is damaged, or was changed." "Copy the file again."

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || echo "not there")
case " $(told pythons) " in
    *" $version "*) ;;
    *) fail "This bundle is for Python $(told pythons); $python is $version." "PYTHON=/path/to/python ./install.sh, or a bundle made with --pythons $version" ;;
esac
command -v make >/dev/null || fail "make is not installed." "The bundle has no make: install it from the distribution."
docker version >/dev/null 2>&1 ||
    fail "No container engine answers." "The bundle has no engine: install Docker's engine with Compose and buildx, start it, and run ./install.sh again."
[ ! -e "$target" ] || fail "$target exists already." "./install.sh /another/folder"

say "Unpacking the lab into $target …"
mkdir -p "$target"
tar -xzf "$here/lab.tar.gz" -C "$target"
for wanted in core compiled; do
    PIP_NO_INDEX=1 PIP_FIND_LINKS="$here/wheels" "$target/tools/venv.sh" "$wanted"
done
cp "$here/about" "$target/.venv/bundle"

say "Loading the images …"
"$python" -c 'import lzma, shutil, sys; shutil.copyfileobj(lzma.open(sys.argv[1]), sys.stdout.buffer, 2**20)' "$here/images.tar.xz" |
    docker load --quiet >&2

cd "$target"
.venv/bin/stampede doctor
say ""
say "The lab is in $target. The unpacked bundle is no longer needed."
say "To take the lesson: cd $target && make lesson"
say "To measure $(told experiments | sed 's/ / or /g'): cd $target && make experiment NAME=$(told experiments | cut -d' ' -f1)"
