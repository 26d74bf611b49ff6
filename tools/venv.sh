#!/bin/sh
# Install locked Python packages into .venv, and create .venv first if it does not exist. Compiling comes after core.
# Usage: tools/venv.sh core|compiled|tests|notebook
set -eu
cd "$(dirname "$0")/.."
wanted=$1
python=${PYTHON:-python3}

say() { printf '%s\n' "$*" >&2; }

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    say "error: Python 3.11 or newer is needed; $python is $("$python" --version 2>&1 || echo 'not there')"
    say ""
    say "hint: make experiment NAME=heavy-mix PYTHON=/path/to/python3.11"
    exit 1
fi

if [ "$wanted" = compiled ]; then
    say "Compiling the simulator …"
    PYTHONPATH=. .venv/bin/python -c 'from stampede.theory.simulate import warm_up; warm_up()'
    say "Compiling the reader of logs …"
    head='- - - [03/Nov/2026:09:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-"'
    logs=$(mktemp -d)
    echo "$head rt=0.1" > "$logs/balancer.log"
    echo "$head rt=0.05" > "$logs/server.log"
    PYTHONPATH=. .venv/bin/python -m stampede diagnose --balancer "$logs/balancer.log" --server "$logs/server.log" > /dev/null
    rm -r "$logs"
    touch .venv/compiled
    exit
fi

# On a network that re-signs TLS, only the host's CA bundle has the network's certificate.
if [ -z "${PIP_CERT:-}" ]; then
    for bundle in "${SSL_CERT_FILE:-}" /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
        if [ -s "$bundle" ]; then export PIP_CERT="$bundle"; break; fi
    done
fi

make_venv() { "$python" -m venv .venv >/dev/null 2>&1; }

if [ ! -x .venv/bin/pip ]; then
    say "Making .venv …"
    # On Debian and Ubuntu, the module venv is in a separate package.
    if ! make_venv && [ "$(id -u)" = 0 ] && [ -e /etc/debian_version ]; then
        say "Installing python3-venv …"
        export DEBIAN_FRONTEND=noninteractive
        apt-get update --quiet --quiet
        apt-get install --yes --quiet --quiet --no-install-recommends python3-venv >/dev/null
    fi
    if [ ! -x .venv/bin/pip ] && ! make_venv; then
        rm -rf .venv
        say "error: $python cannot make a virtual environment."
        say ""
        say "hint: sudo apt-get install python3-venv, then run the same command again"
        exit 1
    fi
fi

cat > .venv/bin/stampede <<'END'
#!/bin/sh
# The command line of this clone, from any folder.
here=$(cd "$(dirname "$0")/../.." && pwd)
PYTHONPATH="$here" exec "$here/.venv/bin/python" -m stampede "$@"
END
cat > .venv/bin/lab <<'END'
#!/bin/sh
echo "error: The command lab is now called stampede." >&2
echo >&2
echo "hint: stampede $*" >&2
exit 2
END
chmod +x .venv/bin/stampede .venv/bin/lab

say "Installing the Python packages of requirements/$wanted.txt …"
.venv/bin/pip install --quiet --disable-pip-version-check --require-hashes --requirement "requirements/$wanted.txt"
if [ "$wanted" = core ]; then
    for package in numpy numba duckdb pydantic_core vl_convert; do
        code=0
        (.venv/bin/python -c "import $package") > /dev/null 2>&1 || code=$?
        if [ "$code" = 132 ]; then  # SIGILL
            say "error: The package $package has an instruction that this machine's processor lacks."
            say ""
            say "hint: In a virtual machine, choose the CPU type host or x86-64-v3."
            say "      Otherwise use a machine with a newer processor."
            exit 1
        fi
    done
fi
touch ".venv/$wanted"
