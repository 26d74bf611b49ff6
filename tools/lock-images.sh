#!/bin/sh
# Pin the base images by the digests that their registry names now. One that it does not name keeps its pin.
set -eu
cd "$(dirname "$0")"
pins=$(while IFS=@ read -r image pinned; do
    digest=$(docker buildx imagetools inspect "$image" </dev/null | sed -n 's/^Digest: *//p')
    [ -n "$digest" ] || echo "No registry has $image for us; it stays pinned as it is." >&2
    echo "$image@${digest:-$pinned}"
done < base-images.txt)
echo "$pins" > base-images.txt
