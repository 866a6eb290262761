#!/usr/bin/env bash
# Makes the root file system of a runtime image from an install prefix: the programs, the shared libraries that they
# load, the model repository, and a user that is not root. Nothing is downloaded and nothing needs root.
#
#   deploy/image_rootfs.sh PREFIX OUT [LIBRARY...]
#
#   PREFIX   from: cmake --install build --prefix PREFIX --component runtime --strip
#   OUT      a folder that does not exist yet
#   LIBRARY  libraries that are loaded with dlopen(), which ldd cannot see, such as libcublasLt.so
#
# SRU_SYSROOT  for programs of another architecture (arm64): the folder of the system that they were built for, with its
#              libraries, as scripts/arm64.sh makes it. Needs qemu-aarch64-static. Default: none, this system
#
# The driver's libraries (libcuda.so.1, libnvidia-*) are left out: NVIDIA's container toolkit mounts the host's. Where it
# puts them depends on its version and on the host, so the loader of the image finds them in any of these folders:
# the distribution's own, /usr/lib64 and /usr/local/nvidia/lib64. /etc has what the toolkit's hooks look at.
set -euo pipefail

if [ $# -lt 2 ]; then
  sed -n '2,15s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
prefix=$(readlink -f "$1") out=$2
shift 2
if [ ! -x "$prefix/bin/sru_server" ]; then
  echo "image_rootfs: $prefix/bin/sru_server is missing; install it there with cmake --install" >&2
  exit 1
fi
if [ -e "$out" ]; then
  echo "image_rootfs: $out exists already; remove it or name another folder" >&2
  exit 1
fi
# Paths of libraries are those of the system that the programs were built for.
sysroot=${SRU_SYSROOT:-}
[ -z "$sysroot" ] || sysroot=$(readlink -f "$sysroot")
loader=$(readelf -l "$prefix/bin/sru_server" | sed -n 's/.*program interpreter: \(.*\)\]/\1/p')
if [ ! -e "$sysroot$loader" ]; then
  echo "image_rootfs: SRU_SYSROOT: expected a folder with $loader, the loader of $prefix/bin/sru_server, found '$sysroot'" >&2
  exit 1
fi
compiler=
[ -z "$sysroot" ] || compiler=aarch64-linux-gnu-
# What ldd prints for a program or library. No library is looked for in the program's own folders.
list_libraries() {
  if [ -n "$sysroot" ]; then
    qemu-aarch64-static -L "$sysroot" "$sysroot$loader" --list "$1"
  else
    ldd "$1"
  fi
}

# LIBRARY by its file name -> path, from LD_LIBRARY_PATH and the linker's cache.
find_library() {
  local folder
  IFS=: read -ra folders <<<"${LD_LIBRARY_PATH:-}"
  for folder in "${folders[@]}"; do
    [ ! -e "$folder/$1" ] || { echo "$folder/$1"; return; }
  done
  # awk reads to the end: if it stopped at the first one, ldconfig would get SIGPIPE, which ends this script.
  [ -z "$sysroot" ] || return 0
  /sbin/ldconfig -p | awk -v name="$1" '$1 == name && !found {print $NF; found = 1}'
}

files=("$prefix"/bin/*)
loaded=()  # found by name; stored under the name that dlopen() is given, their SONAME
for name in "$@"; do
  path=$(find_library "$name")
  if [ -z "$path" ]; then
    echo "image_rootfs: library $name was not found; name its folder in LD_LIBRARY_PATH" >&2
    exit 1
  fi
  files+=("$path")
  loaded+=("$path")
done
closure=$(for file in "${files[@]}"; do list_libraries "$file"; done)
missing=$(grep 'not found' <<<"$closure" | grep -v -E 'libcuda\.so|libnvidia-' | sort -u || true)
if [ -n "$missing" ]; then
  printf 'image_rootfs: libraries are missing; name their folders in LD_LIBRARY_PATH:\n%s\n' "$missing" >&2
  exit 1
fi
mapfile -t libraries < <(awk '$2 == "=>" && $3 ~ /^\// {print $3}' <<<"$closure" | grep -v -E '/libcuda\.so|/libnvidia-' | sort -u)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"/{usr/bin,usr/local/bin,usr/share/doc,etc,proc,sys,dev,tmp,var/lib/dpkg/status.d}
chmod 1777 "$out/tmp"
cp -a "$prefix"/bin/. "$out/usr/local/bin/"
cp -a "$prefix"/share/sru/models "$out/models"
mkdir -p "$out/usr/local/share/sru"
ln -s /models "$out/usr/local/share/sru/models"  # where sru_server --demo looks
[ ! -d "$prefix/share/doc" ] || cp -a "$prefix"/share/doc/. "$out/usr/share/doc/"
for link in bin lib lib64; do
  mkdir -p "$out/usr/$link"
  ln -s "usr/$link" "$out/$link"
done

# All go into one of the folders that the loader searches without a cache, except the loader itself, whose path is part of
# each program.
multiarch=$(dirname "$(printf '%s\n' "${libraries[@]}" | grep '/libc\.so\.')")
multiarch=/usr${multiarch#/usr}
mkdir -p "$out$multiarch"
for library in "${libraries[@]}"; do
  case "$library" in
    */ld-linux*) ;;
    *) cp -L "$sysroot$library" "$out$multiarch/" ;;
  esac
done
for library in "$out$multiarch"/libicudata.so.*; do
  [ ! -e "$library" ] || "$(dirname "$0")/trim_icu.sh" "$library" "${compiler}g++"
done
cp -L "$sysroot$loader" "$out$loader"
libraries+=("$loader")
for library in "${loaded[@]}"; do
  soname=$(objdump -p "$library" | awk '$1 == "SONAME" {print $2}')
  cp -L "$library" "$out$multiarch/${soname:-$(basename "$library")}"
done
libraries+=("${loaded[@]}")

cat >"$out/etc/passwd" <<'EOF'
root:x:0:0:root:/:/sbin/nologin
sru:x:65532:65532:sru:/:/sbin/nologin
EOF
cat >"$out/etc/group" <<'EOF'
root:x:0:
sru:x:65532:
EOF
echo 'hosts: files dns' >"$out/etc/nsswitch.conf"
[ ! -e "$sysroot/etc/os-release" ] || cp -L "$sysroot/etc/os-release" "$out/etc/os-release"

# By this file the container toolkit (up to 1.17) knows that libraries belong into /usr/lib/*-linux-gnu and not into /usr/lib64.
[ ! -e "$sysroot/etc/debian_version" ] || cp -L "$sysroot/etc/debian_version" "$out/etc/debian_version"
# The host's ldconfig may write the cache again, after the driver's libraries have been mounted; the toolkit (up to 1.17, with
# CDI) does nothing if there is none.
mkdir -p "$out/etc/ld.so.conf.d"
echo 'include /etc/ld.so.conf.d/*.conf' >"$out/etc/ld.so.conf"
printf '%s\n' "$multiarch" /usr/lib64 /usr/local/nvidia/lib64 >"$out/etc/ld.so.conf.d/sru.conf"
# This system's knows no library of another architecture. Those folders are searched without a cache, too.
[ -n "$sysroot" ] || /sbin/ldconfig -X -r "$out"

# The packages of the libraries: their licenses, and the stanzas that scanners search for known vulnerabilities. dpkg knows
# a file by its path before or after the merge of /lib into /usr/lib, so one of the two is never found.
if command -v dpkg-query >/dev/null; then
  query=(dpkg-query --admindir="$sysroot/var/lib/dpkg")
  owners=$(for library in "${libraries[@]}"; do
    real=$(readlink -f "$sysroot$library")
    real=${real#"$sysroot"}
    printf '%s\n' "$real" "${real#/usr}"
  done | xargs "${query[@]}" -S 2>/dev/null | sed 's/: .*//' | tr -d ' ' | tr ',' '\n' | sort -u || true)
  for package in $owners; do
    name=${package%%:*}
    "${query[@]}" -s "$package" >"$out/var/lib/dpkg/status.d/$name"
    if [ -e "$sysroot/usr/share/doc/$name/copyright" ]; then
      mkdir -p "$out/usr/share/doc/$name"
      cp -L "$sysroot/usr/share/doc/$name/copyright" "$out/usr/share/doc/$name/"
    fi
  done
fi
chmod -R u+rwX,go+rX,go-w "$out"
chmod 1777 "$out/tmp"
echo "image_rootfs: $out has ${#libraries[@]} libraries, $(du -sm "$out" | cut -f1) MB"
