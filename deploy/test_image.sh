#!/bin/sh
# Tests an image that deploy/build_image.sh made: starts its root file system as the image says (user, entry point,
# variables, read-only, no capability), classifies, scrapes, runs the health check, stops it with SIGTERM. Needs root.
#
#   deploy/test_image.sh [IMAGE] [--engine=docker|podman|buildah]     default: sru-server:cpu
set -eu
image=sru-server:cpu
case "${1:-}" in
  -h | --help)
    sed -n '2,5s/^# \{0,1\}//p' "$0"
    exit 0
    ;;
  '' | --*) ;;
  *)
    image=$1
    shift
    ;;
esac
exec python3 -B "$(dirname "$0")/../tests/deploy/image_test.py" --image="$image" "$@"
