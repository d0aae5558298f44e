#!/usr/bin/env bash
# All that a change must pass, in one run: `make test` calls it after tools/setup.sh, CI does the
# same. Every stage runs even if an earlier one failed; the summary comes last and ends with
# 'N passed, N failed, N skipped'. Logs: build/test/STAGE.log.
#
# What is built: the default preset whole (with CUDA where nvcc is), all but the benchmarks once more
# with AddressSanitizer and UBSan, and only the tests of the threaded parts with ThreadSanitizer.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

preset=${PRESET:-auto}
jobs=${JOBS:-$(nproc)}

logs=build/test
mkdir -p "$logs"
rm -f "$logs"/*

passed=0 failed=0 skipped=0
summary=()

report() { # STAGE SECONDS RESULT
  summary+=("$(printf '%-18s %5s s   %s' "$1" "$2" "$3")")
  printf '%s\n' "${summary[-1]}"
}

left_out() { # STAGE WHY
  summary+=("$(printf '%-18s       -   left out: %s' "$1" "$2")")
  printf '%s\n' "${summary[-1]}"
}

# stage NAME COMMAND...: one result. The log is shown only if it failed.
stage() {
  local name=$1 begin=$SECONDS
  shift
  if "$@" >"$logs/$name.log" 2>&1 </dev/null; then
    passed=$((passed + 1))
    report "$name" $((SECONDS - begin)) ok
    return 0
  fi
  failed=$((failed + 1))
  tail -n 80 "$logs/$name.log"
  report "$name" $((SECONDS - begin)) "FAILED (see $logs/$name.log)"
  return 1
}

# ctest_stage NAME PRESET [ctest options]: as many results as ctest has entries.
ctest_stage() {
  local name=$1 folder=build/$2 begin=$SECONDS junit=$PWD/$logs/$1.xml
  local num_tests num_failed num_skipped
  shift 2
  ctest --test-dir "$folder" --output-on-failure --no-tests=error --output-junit "$junit" "$@" \
    >"$logs/$name.log" 2>&1 </dev/null
  local code=$?
  num_tests=$(sed -n 's/^[[:space:]]*tests="\([0-9]*\)".*/\1/p' "$junit" 2>/dev/null | head -n 1)
  num_failed=$(sed -n 's/^[[:space:]]*failures="\([0-9]*\)".*/\1/p' "$junit" 2>/dev/null | head -n 1)
  num_skipped=$(sed -n 's/^[[:space:]]*skipped="\([0-9]*\)".*/\1/p' "$junit" 2>/dev/null | head -n 1)
  if [ -z "$num_tests" ] || { [ $code -ne 0 ] && [ "$num_failed" -eq 0 ]; }; then
    num_tests=1 num_failed=1 num_skipped=0 # ctest itself failed: no entries, or all lost
  fi
  passed=$((passed + num_tests - num_failed - num_skipped))
  failed=$((failed + num_failed))
  skipped=$((skipped + num_skipped))
  local text="$((num_tests - num_failed - num_skipped)) passed, $num_failed failed"
  [ "$num_skipped" -eq 0 ] || text+=", $num_skipped skipped"
  if [ "$num_failed" -gt 0 ]; then
    tail -n 120 "$logs/$name.log"
    text+=" (see $logs/$name.log)"
  fi
  report "$name" $((SECONDS - begin)) "$text"
}

build() { # PRESET [targets...]
  local name=$1
  shift
  cmake --preset "$name" && cmake --build "build/$name" -j "$jobs" --target "${@:-all}"
}

echo "slipstream: make test, preset $preset, $jobs jobs; logs in $logs"
begin_all=$SECONDS

stage "build-$preset" build "$preset" && ctest_stage "tests-$preset" "$preset" -j "$jobs"
stage lint tools/lint.sh

stage build-asan build asan && ctest_stage tests-asan asan -j "$jobs"

# Only what runs threads is worth the second build.
if stage build-tsan build tsan threaded_tests; then
  ctest_stage tests-tsan tsan -L '^threaded$'
fi

# The model and the fuzzer keep one core each.
stage build-fuzz build fuzz fuzzers
fuzz_built=$?
if [ -f tests/model/check.py ]; then
  python3 tests/model/check.py --quick --jobs 1 >"$logs/model-output.log" 2>&1 </dev/null &
  model_pid=$!
fi
[ $fuzz_built -ne 0 ] || ctest_stage fuzz fuzz -L '^fuzz$'
finish_model() {
  wait "$model_pid"
  local code=$?
  cat "$logs/model-output.log"
  return $code
}
if [ -n "${model_pid:-}" ]; then
  stage model finish_model
else
  left_out model "no tests/model here"
fi

printf '\n'
printf '%s\n' "${summary[@]}"
printf '%-18s %5s s\n\n' total $((SECONDS - begin_all))
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" -eq 0 ]
