#!/usr/bin/env bash
# usage: tools/device_test.sh DIR [gtest arguments]
# Runs all device tests from a bundle (tools/device_bundle.sh). The last line counts them.
set -uo pipefail
[ $# -ge 1 ] || { sed -n '2,3p' "$0" >&2; exit 2; }
dir=$1
shift
# One queue per folded rank, and no module loaded while a kernel waits for a peer.
export CUDA_DEVICE_MAX_CONNECTIONS=32 CUDA_MODULE_LOADING=EAGER
log=$(mktemp)
LD_LIBRARY_PATH="$dir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "$dir/device_tests" "$@" 2>&1 | tee "$log"
code=${PIPESTATUS[0]}
passed=$(grep -cE '^\[       OK \]' "$log")
skipped=$(grep -cE '^\[  SKIPPED \] [A-Za-z0-9_/]+\.[A-Za-z0-9_/]+ \(' "$log")
failed=$(grep -cE '^\[  FAILED  \] .* \(' "$log")
rm -f "$log"
[ "$code" -eq 0 ] || [ "$failed" -gt 0 ] || failed=1  # it died
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
