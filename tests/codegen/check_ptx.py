#!/usr/bin/env python3
"""check_ptx.py SOURCE.cu FILE.ptx: compares the ordered and atomic memory instructions of each kernel
with the list in the '// ptx:' comment above it. Order and scope are the protocol; a compiler or
library that emits a fence or a wider scope instead changes its cost or its meaning."""
import re
import sys

ORDERED = re.compile(r"^\s*(?:@!?%p\d+\s+)?"
                     r"((?:ld|st)\.(?:acquire|release|relaxed|volatile|mmio)[\w.]*"
                     r"|(?:atom|red|fence|membar)[\w.]*)", re.M)


def expected_of(source):
    pattern = r'^// ptx: (.*)\nextern "C" __global__ void (\w+)\('
    return {name: text.split() for text, name in re.findall(pattern, source, re.M)}


def kernels_of(ptx):
    # The body ends at the first closing brace in column 0.
    return dict(re.findall(r"\.entry (\w+)\((.*?)\n\}", ptx, re.S))


def main():
    source, ptx = (open(path, encoding="utf-8").read() for path in sys.argv[1:3])
    kernels = kernels_of(ptx)
    num_passed = num_failed = 0
    for name, expected in expected_of(source).items():
        found = ORDERED.findall(kernels.get(name, ""))
        if found == expected:
            num_passed += 1
        else:
            num_failed += 1
            print(f"FAILED {name}: found {' '.join(found) or 'none'}, expected {' '.join(expected)}")
    print(f"{num_passed} passed, {num_failed} failed")
    return 0 if num_failed == 0 and num_passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
