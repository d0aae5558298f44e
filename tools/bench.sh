#!/usr/bin/env bash
# Runs every benchmark of a build folder: `make bench`. Results are printed and kept as JSON in
# BUILD/bench. BENCH_ARGS goes to each: BENCH_ARGS=--benchmark_filter=tables make bench
set -euo pipefail

build=${1:?usage: tools/bench.sh BUILD_FOLDER}
read -ra arguments <<<"${BENCH_ARGS:-}"
mkdir -p "$build/bench"
num_run=0
for binary in "$build"/bin/*_bench; do
  [ -x "$binary" ] || continue
  name=$(basename "$binary")
  echo "== $name"
  "$binary" --benchmark_out="$build/bench/$name.json" --benchmark_out_format=json \
    ${arguments[@]+"${arguments[@]}"}
  num_run=$((num_run + 1))
done
if [ $num_run -eq 0 ]; then
  echo "bench: no benchmark in $build/bin, left out"
else
  echo "bench: $num_run run, results in $build/bench"
fi
