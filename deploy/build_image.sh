#!/usr/bin/env bash
# Builds a container image of the server with what is there: docker, podman or buildah.
#
#   deploy/build_image.sh [--target=cpu|cuda|test] [--tag=NAME] [--engine=docker|podman|buildah]
#                         [--local_base] [--cuda_toolkit=DIR] [--prebuilt=BUILD]
#
#   --target        cpu (default) and cuda make an image; test builds and runs every test in the build image
#   --tag           name of the image; default: sru-server:cpu, sru-server:cuda
#   --engine        default: the first of docker, podman, buildah that works here
#   --local_base    makes the base image with debootstrap (root; needs a Debian mirror) instead of pulling one: for
#                   machines that reach no registry
#   --cuda_toolkit  with --local_base and --target=cuda: a CUDA toolkit of this machine to put into that base
#   --prebuilt      takes the programs of this build folder (cmake --preset release, then build) and the libraries of
#                   this machine instead of compiling: seconds, and no base image is needed
#
# SRU_IMAGE_STORAGE  folder for buildah's images; default: build/image-storage. Show them with
#                    buildah --root=build/image-storage --storage-driver=vfs images
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "build_image: $*" >&2
  exit 1
}

target=cpu tag='' engine='' local_base='' cuda_toolkit='' prebuilt=''
for argument in "$@"; do
  case "$argument" in
    --target=cpu | --target=cuda | --target=test) target=${argument#*=} ;;
    --tag=?*) tag=${argument#*=} ;;
    --engine=docker | --engine=podman | --engine=buildah) engine=${argument#*=} ;;
    --local_base) local_base=yes ;;
    --cuda_toolkit=?*) cuda_toolkit=${argument#*=} ;;
    --prebuilt=?*) prebuilt=${argument#*=} ;;
    -h | --help)
      sed -n '2,20s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) fail "unexpected argument '$argument'; --help lists what there is" ;;
  esac
done
tag=${tag:-sru-server:$target}
if [ -n "$prebuilt" ] && [ ! -x "$prebuilt/bin/sru_server" ]; then
  fail "--prebuilt: $prebuilt/bin/sru_server is missing; build it with: make build"
fi
if [ -n "$prebuilt" ] && [ "$target" != cpu ]; then
  fail "--prebuilt makes images for the CPU only; leave it out, or leave out --target=$target"
fi

works() {
  case "$1" in
    docker) docker info ;;
    podman) podman info ;;
    buildah) buildah --version ;;
  esac >/dev/null 2>&1
}
if [ -z "$engine" ]; then
  for candidate in docker podman buildah; do
    if works "$candidate"; then
      engine=$candidate
      break
    fi
  done
fi
[ -n "$engine" ] || fail "no container engine works here; install docker, podman or buildah (scripts/deps.sh deploy)"
works "$engine" || fail "--engine: $engine does not work here; '$engine info' says why"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
storage=${SRU_IMAGE_STORAGE:-$PWD/build/image-storage}
# Without a privileged daemon: no overlay mounts, no network namespaces.
buildah_() {
  buildah --root "$storage" --runroot "$work/run" --storage-driver vfs "$@"
}

version=$(sed -n 's/^project(sru_server VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
arguments=(--build-arg "VERSION=$version" --build-arg "REVISION=$revision"
  --build-arg "CREATED=$(date -u +%Y-%m-%dT%H:%M:%SZ)")

# make_base NAME [TOOLKIT]: a Debian from debootstrap, with a CUDA toolkit if one is named.
make_base() {
  local root=$work/base path=/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  echo "build_image: making $1 with debootstrap"
  debootstrap --variant=minbase bookworm "$root" "${SRU_DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/log" 2>&1 ||
    { tail -n 20 "$work/log" >&2; fail "debootstrap failed; its last lines stand above"; }
  rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
  if [ -n "${2:-}" ]; then
    # What compiling and linking needs; the rest of a toolkit (profilers, cuDNN) is several times larger.
    mkdir -p "$root/usr/local/cuda/lib64"
    cp -a "$2"/{bin,include,nvvm} "$root/usr/local/cuda/"
    cp -a "$2"/lib64/{libcudart,libcudadevrt,libcublasLt}* "$root/usr/local/cuda/lib64/"
    [ ! -d "$2/lib64/stubs" ] || cp -a "$2/lib64/stubs" "$root/usr/local/cuda/lib64/"
    ln -s lib64 "$root/usr/local/cuda/lib"
    echo /usr/local/cuda/lib64 >"$root/etc/ld.so.conf.d/cuda.conf"
    chroot "$root" ldconfig
  fi
  case "$engine" in
    buildah)
      local container
      container=$(buildah_ from scratch)
      buildah_ add -q "$container" "$root" / >/dev/null
      buildah_ config --env "PATH=$path" "$container"
      buildah_ commit -q --rm "$container" "$1" >/dev/null
      ;;
    *) tar -C "$root" -c . | "$engine" import --change "ENV PATH=$path" - "$1" >/dev/null ;;
  esac
  rm -rf "$root"
}

context=. stage=runtime-$target
[ "$target" != test ] || stage=test
if [ -n "$prebuilt" ]; then
  stage=runtime-prebuilt context=$work/context
  mkdir "$context"
  cmake --install "$prebuilt" --prefix "$work/prefix" --component runtime --strip >/dev/null
  deploy/image_rootfs.sh "$work/prefix" "$context/rootfs"
elif [ -n "$local_base" ]; then
  command -v debootstrap >/dev/null || fail "--local_base needs debootstrap (scripts/deps.sh deploy)"
  [ "$(id -u)" -eq 0 ] || fail "--local_base needs root, for debootstrap"
  if [ "$target" = cuda ]; then
    [ -n "$cuda_toolkit" ] || fail "--local_base with --target=cuda needs --cuda_toolkit=DIR, such as /usr/local/cuda"
    [ -x "$cuda_toolkit/bin/nvcc" ] || fail "--cuda_toolkit: $cuda_toolkit/bin/nvcc is missing"
    make_base localhost/sru-base:cuda "$(readlink -f "$cuda_toolkit")"
    arguments+=(--build-arg CUDA_BASE=localhost/sru-base:cuda)
  fi
  # docker without BuildKit also builds the stages that the CUDA image does not need.
  [ "$target" = cuda ] && [ "$engine" != docker ] || make_base localhost/sru-base:debian
  arguments+=(--build-arg BASE=localhost/sru-base:debian)
fi

case "$engine" in
  docker | podman)
    format=()
    [ "$engine" = docker ] || format=(--format docker)  # OCI's own format has no HEALTHCHECK
    "$engine" build "${format[@]}" -f Dockerfile --target "$stage" -t "$tag" "${arguments[@]}" "$context"
    size=$("$engine" image inspect --format '{{.Size}}' "$tag")
    ;;
  buildah)
    buildah_ bud --isolation chroot --format docker -f "$PWD/Dockerfile" --target "$stage" -t "$tag" \
      "${arguments[@]}" "$context"
    size=$(buildah_ images --json "$tag" | sed -n 's/.*"size": "\(.*\)".*/\1/p')
    ;;
esac
echo "build_image: $tag from stage $stage with $engine, size $size, ${SECONDS}s"
