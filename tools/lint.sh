#!/usr/bin/env bash
# Style and structure of all tracked files; `make lint` and `make test` run it, on a clean clone too.
#
#   tools/lint.sh           clang-tidy on a few core files (those whose mistakes cost most)
#   tools/lint.sh --full    clang-tidy on every .cc file
#
# clang-tidy needs a compile_commands.json: the one of the first preset in build/.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

core_files=(src/checkpoint/safetensors_header.cc src/schedule/host_builder.cc
  src/symmetric/rendezvous.cc src/host/down_reduce_push.cc)
max_lines=500
good_lines=400
num_bad=0

fail() {
  echo "lint: $1"
  num_bad=$((num_bad + 1))
}

mapfile -t tracked < <(git ls-files --cached --others --exclude-standard | while read -r file; do
  [ -f "$file" ] && printf '%s\n' "$file"
done)
select_files() { printf '%s\n' "${tracked[@]}" | grep -E "$1"; }

mapfile -t cpp < <(select_files '\.(h|cc|cu|cuh|inl)$')
mapfile -t python < <(select_files '\.py$')
mapfile -t shell < <(select_files '\.sh$|^\.ci/run$')
mapfile -t text < <(select_files '\.(h|cc|cu|cuh|inl|py|sh|md|txt|cmake|json|toml|pml|svg)$|^\.')
mapfile -t sized < <(select_files '\.(h|cc|cu|cuh|inl|py|sh|pml)$')

unformatted=$(clang-format --dry-run -Werror "${cpp[@]}" 2>&1 | sed -n 's/:[0-9]*:[0-9]*: error.*//p' |
  sort -u | tr '\n' ' ')
[ -z "$unformatted" ] || fail "not formatted, use make format: $unformatted"

if grep -nP '\t' "${text[@]}"; then fail "tabs"; fi
if grep -nP '[ \t]+$' "${text[@]}"; then fail "spaces at the end of a line"; fi

for file in "${sized[@]}"; do
  lines=$(wc -l <"$file")
  if [ "$lines" -gt $max_lines ]; then
    fail "$file has $lines lines, at most $max_lines: split it by subject"
  elif [ "$lines" -gt $good_lines ]; then
    echo "lint: note: $file has $lines lines, about $good_lines read well"
  fi
done

python3 -c '
import sys
bad = 0
for path in sys.argv[1:]:
    try:
        compile(open(path, encoding="utf-8").read(), path, "exec")
    except SyntaxError as error:
        print(error)
        bad = 1
sys.exit(bad)' "${python[@]}" || fail "Python that does not compile"

for file in "${shell[@]}"; do
  bash -n "$file" || fail "$file: bash cannot read it"
  [ -x "$file" ] || fail "$file is not executable"
done

python3 -B tests/cpu/include_graph/include_graph.py || fail "include graph"
python3 -B tools/check_docs.py || fail "documents that name what is not there"

commands=$(find build -maxdepth 2 -name compile_commands.json 2>/dev/null | sort | head -n 1)
if [ -z "$commands" ]; then
  echo "lint: note: no build folder, clang-tidy left out"
else
  if [ "${1:-}" = --full ]; then
    mapfile -t core_files < <(select_files '^(src|cli|bench)/.*\.cc$')
  fi
  printf '%s\0' "${core_files[@]}" | xargs -0 -P "$(nproc)" -n 1 \
    clang-tidy --quiet -p "$(dirname "$commands")" 2>/dev/null || fail "clang-tidy"
fi

[ $num_bad -eq 0 ] || { echo "lint: $num_bad kinds of findings"; exit 1; }
echo "lint: ${#cpp[@]} C++ files, ${#python[@]} Python files: nothing to say"
