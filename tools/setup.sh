#!/usr/bin/env bash
# Installs the Debian packages that are missing, and only those. `make run` and `make test` call it
# first; when nothing is missing it asks dpkg once and ends.
#
#   tools/setup.sh build    what compiling and running needs
#   tools/setup.sh test     the same, and what `make test` needs
#
# CUDA is never installed: it is used where nvcc is found and left out elsewhere.
set -euo pipefail

build_packages=(build-essential cmake ninja-build ccache pkg-config python3
  libfmt-dev nlohmann-json3-dev libtomlplusplus-dev libcli11-dev libopenblas-dev
  libgtest-dev libgmock-dev libbenchmark-dev)
# libclang-rt-dev holds the runtime of libFuzzer; spin checks the protocol's model.
test_packages=(git python3-numpy clang libclang-rt-dev clang-format clang-tidy spin)

case "${1:-build}" in
  build) wanted=("${build_packages[@]}") ;;
  test) wanted=("${build_packages[@]}" "${test_packages[@]}") ;;
  *)
    echo "setup: '$1' is no set of packages; use build or test" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "setup: no dpkg here, so nothing is installed; this must be there: ${wanted[*]}" >&2
  exit 0
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${wanted[@]}" 2>/dev/null |
  sed -n 's/^installed //p' || true)
missing=()
for package in "${wanted[@]}"; do
  grep -qx "$package" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "setup: installing ${missing[*]}"
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo)
  if ! command -v sudo >/dev/null; then
    echo "setup: this needs root and there is no sudo; as root, run" >&2
    echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
fi
if ! { "${as_root[@]}" apt-get update -qq &&
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}"; }; then
  echo "setup: apt-get could not install what is missing; once it can, run" >&2
  echo "  apt-get update && apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
