# .ci/run and .ci/full share these functions. Source it at the root of the project.

# CUDA kernels are compiled, for all architectures, where there is a toolkit; no GPU is needed for their tests.
if command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then cuda=-DSRU_CUDA=ON; else cuda=-DSRU_CUDA=OFF; fi

ci_steps=() ci_seconds=() ci_start=0
end_step() {
  if [ ${#ci_steps[@]} -gt 0 ]; then ci_seconds+=($((SECONDS - ci_start))); fi
  ci_start=$SECONDS
}
# step NAME: ends the step before it and begins another.
step() {
  end_step
  ci_steps+=("$1")
  printf '\n==== %s (%ss)\n' "$1" "$SECONDS"
}

# report FILE: writes each step's seconds to FILE, and prints them beside those of .ci/seconds, which the last landed run wrote.
report() {
  end_step
  local i before change
  printf '\n%-28s %8s %8s\n' "step" "seconds" "before"
  : >"$1"
  for i in "${!ci_steps[@]}"; do
    before=$(awk -F'\t' -v name="${ci_steps[i]}" '$1 == name {print $2}' .ci/seconds 2>/dev/null || true)
    change=
    # A step that grew by a tenth and by ten seconds is worth a look.
    if [ -n "$before" ] && [ $((ci_seconds[i] * 10)) -gt $((before * 11)) ] && [ $((ci_seconds[i] - before)) -gt 10 ]; then
      change="  grew"
    fi
    printf '%s\t%s\n' "${ci_steps[i]}" "${ci_seconds[i]}" >>"$1"
    printf '%-28s %8s %8s%s\n' "${ci_steps[i]}" "${ci_seconds[i]}" "${before:--}" "$change"
  done
  printf '%-28s %8s %8s\n' "all" "$SECONDS" "$(awk -F'\t' '{sum += $2} END {print sum + 0}' .ci/seconds 2>/dev/null)"
}
