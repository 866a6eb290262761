#!/usr/bin/env bash
# Makes ICU's data, 31 MB, as small as server/translation needs it: rules for breaks, names of languages and regions in English, NFKC. Needs icupkg and
# objcopy.
#
#   deploy/trim_icu.sh LIBRARY [COMPILER]
#
#   LIBRARY   a copy of libicudata.so.*, which is written anew
#   COMPILER  [PREFIX]g++ of the library's architecture, whose binutils have the same prefix; default: g++
set -euo pipefail
if [ $# -lt 1 ] || [ $# -gt 2 ]; then
  sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
library=$1 compiler=${2:-g++}
PATH=$PATH:/usr/sbin  # icupkg
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
symbol=$("${compiler%g++}objdump" -T "$library" | grep -o 'icudt[0-9]*_dat')
name=${symbol%_dat}l.dat
"${compiler%g++}objcopy" -O binary --only-section=.rodata "$library" "$work/$name"
icupkg -l "$work/$name" |
  grep -Ev '^(brkitr/.*|nfkc\.nrm|(lang|region)/(root|en|res_index|pool)\.res)$' |
  grep -Ev '^(root|en|pool|likelySubtags|metadata|supplementalData|keyTypeData|res_index|icuver)\.res$' >"$work/others.lst"
mkdir "$work/used"
used=$work/used/$name
icupkg -r "$work/others.lst" "$work/$name" "$used"
printf '.section .rodata\n.balign 16\n.globl %s\n.type %s,%%object\n%s:\n.incbin "%s"\n.size %s, .-%s\n' \
  "$symbol" "$symbol" "$symbol" "$used" "$symbol" "$symbol" |
  "$compiler" -shared -nostdlib -Wl,-z,noexecstack -Wl,-soname,"$(basename "$library")" -x assembler - -o "$library"
