#!/bin/sh
# What the container runs: index /photos, then serve the index to those who know the key. Arguments go to `kenthash serve`.
# KENTHASH_INDEX: the index, by default photos.kh in the cache volume.
# KENTHASH_KEY: the key that requests must send; without it one is made, kept in the cache volume and printed.
set -eu
index="${KENTHASH_INDEX:-/cache/photos.kh}"
key=/cache/key.txt
if [ -n "${KENTHASH_KEY:-}" ]; then
    (umask 077 && printf '%s\n' "$KENTHASH_KEY" > "$key")
elif [ ! -s "$key" ]; then
    (umask 077 && python -c 'import secrets; print(secrets.token_urlsafe(24))' > "$key")
    echo "the key of this service is $(cat "$key")" >&2
fi
kenthash index add /photos --index "$index"
exec kenthash serve --index "$index" --host 0.0.0.0 --port 8000 --api-key-file "$key" "$@"
