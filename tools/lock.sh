#!/bin/sh
# Pin every package with its hashes, in the newest release that the .in files allow, and pin the base images.
set -eu
cd "$(dirname "$0")/.."
tools/venv.sh lock
lock() {
    python_version=$1 source=$2 target=$3
    shift 3
    .venv/bin/uv pip compile --quiet --no-config --universal --upgrade --generate-hashes --no-emit-index-url \
        --custom-compile-command "make lock" --python-version "$python_version" "$source" --output-file "$target" "$@"
}
lock 3.11 requirements/lock.in requirements/lock.txt
lock 3.11 pyproject.toml requirements/core.txt --extra lab
lock 3.11 pyproject.toml requirements/reader.txt --constraint requirements/core.txt
lock 3.11 requirements/tests.in requirements/tests.txt
lock 3.11 pyproject.toml requirements/notebook.txt --extra notebook --constraint requirements/core.txt --constraint requirements/tests.txt
for file in servers/*/requirements/*.in; do lock 3.13 "$file" "${file%.in}.txt"; done
tools/lock-images.sh
