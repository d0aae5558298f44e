#!/usr/bin/env bash
# Runs the benchmarks of a build folder: `make bench`. Those of the host use Google Benchmark; their
# results are printed and kept as JSON in BUILD/bench. Those of GPUs have options of their own and run
# with their defaults; without a GPU they say WAIVED.
#
#   BENCH_ARGS=--benchmark_filter=demo make bench
set -euo pipefail

build=${1:?usage: tools/bench.sh BUILD_FOLDER}
read -ra arguments <<<"${BENCH_ARGS:-}"
mkdir -p "$build/bench"
num_run=0
for name in schedule_bench layer_bench; do
  [ -x "$build/bin/$name" ] || continue
  echo "== $name"
  "$build/bin/$name" --benchmark_out="$build/bench/$name.json" --benchmark_out_format=json \
    ${arguments[@]+"${arguments[@]}"}
  num_run=$((num_run + 1))
done
for name in plan_bench gemm_bench; do
  [ -x "$build/bin/$name" ] || continue
  echo "== $name"
  if nvidia-smi -L >/dev/null 2>&1; then "$build/bin/$name"; else echo "WAIVED: no GPU"; fi
  num_run=$((num_run + 1))
done
echo "bench: $num_run programs, results in $build/bench"
