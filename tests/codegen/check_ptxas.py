"""Compiles the Hopper engine's kernels as the build does, with ptxas reporting, and fails on what ruins
a main loop without any other sign: serialised wgmma (C7510, C7512), setmaxnreg ignored (C7508), stack
frames and spills.

    python3 check_ptxas.py BUILD_FOLDER      the folder with compile_commands.json
    python3 check_ptxas.py --self-test       does it find a planted violation?

Exit code 0: clean. 1: violations, one line each. 77: no such kernels in this build (skipped).
Standard library only.
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

SKIPPED = 77
KERNELS = "src/gemm/sm90_kernels_*.cu"
WARNINGS = re.compile(r"\bC75(08|10|12)\b")
ENTRY = re.compile(r"Compiling entry function '([^']+)'")
FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")


def violations(report):
    """Lines that say what is wrong in a ptxas report, and the number of kernels it covers."""
    found, kernel, num_kernels = [], "?", 0
    for line in report.splitlines():
        if match := ENTRY.search(line):
            kernel, num_kernels = match.group(1), num_kernels + 1
        if WARNINGS.search(line):
            found.append(line.strip())
        if (match := FRAME.search(line)) and any(int(n) for n in match.groups()):
            found.append(f"{kernel}: {match.group(0)}")
    return found, num_kernels


def compile_with_report(entry):
    command = shlex.split(entry["command"])
    if "ccache" in pathlib.Path(command[0]).name:
        command = command[1:]
    with tempfile.TemporaryDirectory() as folder:
        command[command.index("-o") + 1] = str(pathlib.Path(folder) / "kernels.o")
        if "-MF" in command:
            command[command.index("-MF") + 1] = str(pathlib.Path(folder) / "kernels.d")
        result = subprocess.run(command + ["-Xptxas", "-v"], cwd=entry["directory"], text=True,
                                capture_output=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{entry['file']} does not compile:\n{result.stderr}")
    return result.stdout + result.stderr


def self_test():
    entry = "ptxas info    : Compiling entry function 'kernel' for 'sm_90a'\n"
    clean = entry + "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
    spill = entry + "    16 bytes stack frame, 24 bytes spill stores, 24 bytes spill loads\n"
    serial = ("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
              "serialized due to insufficient register resources\n")
    assert violations(clean) == ([], 1)
    assert violations(spill)[0] == ["kernel: 16 bytes stack frame, 24 bytes spill stores, 24 bytes "
                                    "spill loads"]
    assert len(violations(clean + serial)[0]) == 1


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    database = pathlib.Path(sys.argv[1]) / "compile_commands.json"
    entries = json.loads(database.read_text()) if database.exists() else []
    entries = [e for e in entries if pathlib.PurePath(e["file"]).match(KERNELS)]
    if not entries:
        print(f"skipped: {database} builds no {KERNELS}")
        return SKIPPED
    failed = False
    for entry in entries:
        found, num_kernels = violations(compile_with_report(entry))
        if num_kernels == 0:
            found.append("ptxas reported no kernel")
        failed |= bool(found)
        for line in found:
            print(f"{entry['file']}: {line}")
        print(f"{pathlib.PurePath(entry['file']).name}: {num_kernels} kernels, {len(found)} violations")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
