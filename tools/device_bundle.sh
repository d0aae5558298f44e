#!/usr/bin/env bash
# usage: tools/device_bundle.sh BUILD_DIR TARGET_DIR [PROGRAM...]
# Copies programs from BUILD_DIR/bin, and the shared libraries that a GPU machine may lack, into
# TARGET_DIR, so that they run there without build tools: tools/device_test.sh, or
# LD_LIBRARY_PATH=TARGET_DIR TARGET_DIR/slipstream ...
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,3p' "$0" >&2; exit 2; }
build=$1 target=$2
shift 2
programs=("$@")
[ $# -gt 0 ] || programs=(device_tests)
mkdir -p "$target"
for program in "${programs[@]}"; do
  cp "$build/bin/$program" "$target/"
  # The C library and the driver belong to the machine; everything else comes along.
  ldd "$build/bin/$program" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libcuda|libstdc\+\+|libgcc_s)\.so' |
    while read -r library; do cp -L "$library" "$target/"; done
done
strip --strip-debug "$target"/* 2>/dev/null || true
ls -la "$target"
