#!/bin/sh
# Pin each base image by the digest that its registry names now. If no registry names a digest, the image keeps its pin.
set -eu
cd "$(dirname "$0")"
pins=$(while IFS=@ read -r image pinned; do
    digest=$(docker buildx imagetools inspect "$image" </dev/null | sed -n 's/^Digest: *//p')
    [ -n "$digest" ] || echo "No registry names a digest of $image, so its pin stays as it is." >&2
    echo "$image@${digest:-$pinned}"
done < base-images.txt)
echo "$pins" > base-images.txt
