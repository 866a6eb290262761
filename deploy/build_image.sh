#!/usr/bin/env bash
# Builds a container image of the server with whichever engine there is: docker, podman or buildah.
#
#   deploy/build_image.sh [--target=cpu|cuda|test] [--tag=NAME] [--engine=docker|podman|buildah]
#                         [--local_base] [--cuda=13|12] [--cuda_toolkit=DIR] [--prebuilt=BUILD] [--arch=amd64|arm64]
#
#   --target        cpu (default) and cuda make an image; test builds and runs the tests in the build image
#   --tag           name of the image; default: sru-server:cpu, sru-server:cuda
#   --arch          of the machines that the image is for; default: this machine's. For another one the engine compiles under
#                   qemu, if it can, which takes hours; --prebuilt with a cross build (scripts/arm64.sh) takes seconds
#   --engine        default: the first of docker, podman, buildah that works here
#   --local_base    makes the base image with debootstrap (root; needs a Debian mirror, SRU_DEBIAN_MIRROR, as
#                   scripts/debian_root.sh uses it) instead of pulling one: for machines that reach no registry
#   --cuda          with --target=cuda: 13 (default) needs an NVIDIA driver from 580 on, 12 one from 525 on; GPUs from
#                   compute capability 8.0 on with either
#   --cuda_toolkit  with --local_base and --target=cuda: a CUDA toolkit of this machine to put into that base
#   --prebuilt      uses the programs of this build folder (cmake --preset release, then build) and the libraries of
#                   this machine, or those that it was cross-compiled with, instead of compiling: takes
#                   seconds and needs no base image
#
# Its label io.grpc.version says which gRPC an image has, as its `sru_server --version` does.
#
# SRU_IMAGE_STORAGE  folder for buildah's images; default: build/image-storage. Show them with
#                    buildah --root=build/image-storage --storage-driver=vfs images
# SOURCE_DATE_EPOCH  the time that the image says it was made, in seconds; default: now
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  echo "build_image: $*" >&2
  exit 1
}

target=cpu tag='' engine='' local_base='' cuda='' cuda_toolkit='' prebuilt='' arch=''
for argument in "$@"; do
  case "$argument" in
    --target=cpu | --target=cuda | --target=test) target=${argument#*=} ;;
    --tag=?*) tag=${argument#*=} ;;
    --engine=docker | --engine=podman | --engine=buildah) engine=${argument#*=} ;;
    --local_base) local_base=yes ;;
    --cuda=13 | --cuda=12) cuda=${argument#*=} ;;
    --cuda_toolkit=?*) cuda_toolkit=${argument#*=} ;;
    --prebuilt=?*) prebuilt=${argument#*=} ;;
    --arch=amd64 | --arch=arm64) arch=${argument#*=} ;;
    -h | --help)
      sed -n '2,27s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    *) fail "unexpected argument '$argument'; --help lists what there is" ;;
  esac
done
if [ -n "$prebuilt" ] && [ ! -x "$prebuilt/bin/sru_server" ]; then
  fail "--prebuilt: $prebuilt/bin/sru_server is missing; build it with: make build"
fi
if [ -n "$prebuilt" ] && [ "$target" != cpu ]; then
  fail "--prebuilt makes images for the CPU only; leave it out, or leave out --target=$target"
fi
case "$(uname -m)" in
  x86_64) own_arch=amd64 ;;
  aarch64) own_arch=arm64 ;;
  *) own_arch=$(uname -m) ;;
esac
if [ -n "$prebuilt" ]; then
  case "$(readelf -h "$prebuilt/bin/sru_server" 2>/dev/null)" in
    *X86-64*) built_arch=amd64 ;;
    *AArch64*) built_arch=arm64 ;;
    *) built_arch=$own_arch ;;
  esac
  if [ "${arch:-$own_arch}" != "$built_arch" ]; then
    fail "--prebuilt: expected programs for ${arch:-$own_arch}, found $prebuilt/bin/sru_server for $built_arch;" \
      "build others, or give --arch=$built_arch"
  fi
fi
arch=${arch:-$own_arch}
if [ "$arch" != "$own_arch" ] && [ -n "$local_base" ]; then
  fail "--local_base makes bases of this machine's architecture, $own_arch; use --prebuilt with --arch=$arch (scripts/arm64.sh)"
fi
if [ -n "$cuda" ] && { [ "$target" != cuda ] || [ -n "$cuda_toolkit" ]; }; then
  fail "--cuda chooses the base of --target=cuda; leave it out with --target=$target${cuda_toolkit:+ and --cuda_toolkit}"
fi

platform=() suffix=''
[ "$arch" = "$own_arch" ] || { platform=(--platform "linux/$arch") suffix=-$arch; }
tag=${tag:-sru-server:$target$suffix}

works() {
  case "$1" in
    docker) docker info ;;
    podman) podman info ;;
    buildah) buildah --version ;;
  esac >/dev/null 2>&1
}
for candidate in docker podman buildah; do
  if [ -z "$engine" ] && works "$candidate"; then
    engine=$candidate
  fi
done
[ -n "$engine" ] || fail "no container engine works here; install docker, podman or buildah (scripts/deps.sh deploy)"
works "$engine" || fail "--engine: $engine does not work here; '$engine info' says why"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
storage=${SRU_IMAGE_STORAGE:-$PWD/build/image-storage}
# This works without a privileged daemon: there are no overlay mounts and no network namespaces.
buildah_() {
  buildah --root "$storage" --runroot "$work/run" --storage-driver vfs "$@"
}

version=$(cat VERSION)
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
sysroot=
commit=$(git describe --always --dirty --abbrev=8 --exclude='*' 2>/dev/null) || commit=
arguments=(--build-arg "VERSION=$version" --build-arg "REVISION=$revision" --build-arg "COMMIT=$commit"
  --build-arg "CREATED=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%Y-%m-%dT%H:%M:%SZ)")

# OCI's own format has no HEALTHCHECK; docker makes its own.
format=(--format docker)
[ "$engine" != docker ] || format=()
build=("$engine" build)
[ "$engine" != buildah ] || build=(buildah_ bud --isolation chroot)

# make_base NAME [TOOLKIT]: a Debian 12 from debootstrap, with a CUDA toolkit if one is named.
make_base() {
  local root=$work/base path=/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  echo "build_image: making $1 with debootstrap"
  scripts/debian_root.sh bookworm "$root" || return
  if [ -n "${2:-}" ]; then
    # Compiling and linking need these; the rest of a toolkit (profilers, cuDNN) is several times larger.
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
[ "$target" != test ] || stage='test'
if [ -n "$prebuilt" ]; then
  stage=runtime-prebuilt context=$work/context
  mkdir "$context"
  cmake --install "$prebuilt" --prefix "$work/prefix" --component runtime --strip >/dev/null
  sysroot=$(sed -n 's/^SRU_SYSROOT:[A-Z]*=//p' "$prebuilt/CMakeCache.txt")
  SRU_SYSROOT=$sysroot deploy/image_rootfs.sh "$work/prefix" "$context/rootfs"
else
  if [ -n "$local_base" ]; then
    command -v debootstrap >/dev/null || fail "--local_base needs debootstrap (scripts/deps.sh deploy)"
    [ "$(id -u)" -eq 0 ] || fail "--local_base needs root, for debootstrap"
  fi
  if [ "$target" = cuda ]; then
    if [ -n "$local_base" ]; then
      [ -n "$cuda_toolkit" ] || fail "--local_base with --target=cuda needs --cuda_toolkit=DIR, such as /usr/local/cuda"
      [ -x "$cuda_toolkit/bin/nvcc" ] || fail "--cuda_toolkit: $cuda_toolkit/bin/nvcc is missing"
      make_base localhost/sru-base:cuda "$(readlink -f "$cuda_toolkit")"
      cuda=$("$cuda_toolkit/bin/nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
      [ -n "$cuda" ] || fail "--cuda_toolkit: expected 'release VERSION' in what its nvcc --version says, found none"
      arguments+=(--build-arg CUDA_BASE=localhost/sru-base:cuda)
    elif [ "$cuda" = 12 ]; then
      arguments+=(--build-arg CUDA_BASE=docker.io/nvidia/cuda:12.9.1-devel-ubuntu24.04)
    fi
    # A driver runs every minor version of its CUDA.
    arguments+=(--build-arg "CUDA_REQUIRED=${cuda:-13}.0")
  fi
  # docker without BuildKit also builds the stages that the CUDA image does not need.
  if [ -n "$local_base" ] && { [ "$target" != cuda ] || [ "$engine" = docker ]; }; then
    make_base localhost/sru-base:debian
    arguments+=(--build-arg BASE=localhost/sru-base:debian)
  fi
fi

"${build[@]}" "${platform[@]}" "${format[@]}" -f "$PWD/Dockerfile" --target "$stage" -t "$tag" "${arguments[@]}" "$context"
if [ "$stage" = test ]; then
  echo "build_image: every test has passed, ${SECONDS}s"
  exit 0
fi

# The label comes from the program itself.
[ "$engine" != buildah ] || container=$(buildah_ from "${platform[@]}" --pull-never "$tag")
case "$engine${sysroot:+ of another architecture}" in
  *' of another architecture')
    grpc=$(qemu-aarch64-static -L "$context/rootfs" "$context/rootfs/usr/local/bin/sru_server" --version)
    ;;
  docker | podman)
    grpc=$("$engine" run "${platform[@]}" --rm --network none "$tag" --version)
    ;;
  buildah)
    # buildah run sets limits that only the privileged may.
    if [ "$(id -u)" -eq 0 ]; then
      grpc=$(chroot "$(buildah_ mount "$container")" /usr/local/bin/sru_server --version)
    else
      grpc=$(buildah_ run --isolation chroot "$container" /usr/local/bin/sru_server --version)
    fi
    ;;
esac
grpc=$(sed -n 's/.*gRPC \([0-9][0-9.]*\).*/\1/p' <<<"$grpc")
[ -n "$grpc" ] || fail "expected 'gRPC VERSION' in what the image's sru_server --version says, found none"
case "$engine" in
  docker | podman)
    printf 'FROM %s\nLABEL io.grpc.version="%s"\n' "$tag" "$grpc" >"$work/Dockerfile"
    "$engine" build "${platform[@]}" "${format[@]}" -q -f "$work/Dockerfile" -t "$tag" "$work" >/dev/null
    size=$("$engine" image inspect --format '{{.Size}}' "$tag")
    ;;
  buildah)
    buildah_ config --label "io.grpc.version=$grpc" "$container"
    buildah_ commit -q --rm "${format[@]}" "$container" "$tag" >/dev/null
    size=$(buildah_ images --json "$tag" | sed -n 's/.*"size": "\(.*\)".*/\1/p')
    ;;
esac
echo "build_image: $tag from stage $stage with $engine, gRPC $grpc, size $size, ${SECONDS}s"
