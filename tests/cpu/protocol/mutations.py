#!/usr/bin/env python3
"""Takes each order and each step out of the shipped protocol headers, one at a time, and demands
that the test which guards it notices.

mutations.json is the registry:
  programs  name -> {"sources": compiled once per mutation with ThreadSanitizer,
                     "shared_sources": compiled once (optional), "flags", "libraries" (optional),
                     "args": how to run one test, default ["{test}"]}
  caught    [mutation, program, test, kind]; kind is how it must fail:
            "race" (ThreadSanitizer), "wrong" (a check does not hold), "hang"
  pending   mutations that no code uses yet; listed, never passed
A mutation of mutation.h that is in none of them is a failure. So is one that does not compile.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
FLAGS = ["-std=c++20", "-O1", "-g1", "-fsanitize=thread", "-fno-omit-frame-pointer",
         f"-I{ROOT}/include", f"-I{ROOT}/src"]
RACE_EXIT_CODE = 66
TEST_SECONDS = 20  # of a test that must pass or fail by itself
HANG_SECONDS = 3   # of one that must hang: it is over in a fraction of that when nothing is mutated


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--compiler", default=os.environ.get("CXX", "g++"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", default="", help="regular expression over mutation names")
    parser.add_argument("--registry", type=pathlib.Path,
                        default=pathlib.Path(__file__).with_name("mutations.json"))
    return parser.parse_args()


def declared_mutations():
    text = (ROOT / "src/protocol/mutation.h").read_text()
    body = re.search(r"enum class Mutation \{(.*?)\n\};", text, re.S).group(1)
    names = re.findall(r"^\s*(k\w+),", re.sub(r"//.*", "", body), re.M)
    return [name for name in names if name != "kNone"]


class Builder:
    """Compiles programs; what does not depend on the mutation only once."""

    def __init__(self, compiler, programs, folder):
        ccache = shutil.which("ccache")
        self.compiler = [ccache, compiler] if ccache else [compiler]
        self.linker = [compiler]
        self.programs = programs
        self.folder = pathlib.Path(folder)
        self.shared_objects = {}
        self.plain_objects = {}  # program -> source -> object without a mutation

    @staticmethod
    def is_touched(source, mutation):
        """Steps of roles act in the file that tests for them, all others in headers."""
        return not mutation.startswith("kRole") or mutation in (ROOT / source).read_text()

    def compile(self, program, source, name, test=""):
        object_file = self.folder / f"{name}-{test}-{source.replace('/', '_')}.o"
        flags = FLAGS + program.get("flags", [])
        if name != "shared":
            flags = flags + [f"-DSLIPSTREAM_MUTATE={name}"]
        subprocess.run(self.compiler + flags + ["-c", str(ROOT / source), "-o", str(object_file)],
                       check=True, capture_output=True, text=True, cwd=ROOT)
        return str(object_file)

    def prepare(self, program_name):
        program = self.programs[program_name]
        self.shared_objects[program_name] = [
            self.compile(program, source, "shared") for source in program.get("shared_sources", [])]
        self.plain_objects[program_name] = {
            source: self.compile(program, source, "kNone") for source in program["sources"]}

    def build(self, program_name, mutation, test=""):
        program = self.programs[program_name]
        plain = self.plain_objects[program_name]
        touched = [] if mutation == "kNone" else [
            source for source in program["sources"] if self.is_touched(source, mutation)]
        mutated = [self.compile(program, source, mutation, test) for source in touched]
        objects = mutated + [plain[source] for source in program["sources"] if source not in touched]
        binary = self.folder / f"{program_name}-{mutation}-{test}"
        subprocess.run(self.linker + FLAGS + objects + self.shared_objects[program_name] +
                       ["-o", str(binary)] + program.get("libraries", []) + ["-lpthread"],
                       check=True, capture_output=True, text=True, cwd=ROOT)
        for object_file in mutated:
            os.unlink(object_file)
        return binary


def run_test(binary, program, test, seconds):
    """-> (kind, output) with kind "passed", "race", "wrong" or "hang"."""
    args = [part.format(test=test) for part in program.get("args", ["{test}"])]
    environment = dict(os.environ, TSAN_OPTIONS=f"halt_on_error=1 exitcode={RACE_EXIT_CODE}")
    try:
        done = subprocess.run([str(binary), *args], timeout=seconds, env=environment,
                              capture_output=True, text=True)
    except subprocess.TimeoutExpired:
        return "hang", ""
    output = done.stdout + done.stderr
    if done.returncode == 0:
        return "passed", output
    return "race" if done.returncode == RACE_EXIT_CODE else "wrong", output


def try_mutation(builder, mutation, program_name, test, expected):
    """-> (passed, how it went)."""
    try:
        binary = builder.build(program_name, mutation, test)
    except subprocess.CalledProcessError as error:
        return False, f"does not compile: {error.stderr.strip().splitlines()[0]}"
    seconds = HANG_SECONDS if expected == "hang" else TEST_SECONDS
    kind, output = run_test(binary, builder.programs[program_name], test, seconds)
    binary.unlink()
    if kind == expected:
        return True, kind
    return False, f"{kind}, expected {expected}\n{output[-1500:]}"


def try_unmutated(builder, program_name, tests):
    """All tests of a program without a mutation. -> list of (test, passed, how)."""
    builder.prepare(program_name)
    binary = builder.build(program_name, "kNone")
    results = []
    for test in tests:
        kind, output = run_test(binary, builder.programs[program_name], test, TEST_SECONDS)
        results.append((test, kind == "passed", kind if kind == "passed" else f"{kind}\n{output}"))
    return results


def main():
    arguments = parse_arguments()
    registry = json.loads(arguments.registry.read_text())
    caught = [entry for entry in registry["caught"] if re.search(arguments.only, entry[0])]
    begin = time.monotonic()
    num_passed = num_failed = 0

    def report(passed, line):
        nonlocal num_passed, num_failed
        num_passed += passed
        num_failed += not passed
        print(line if passed else f"FAILED {line}", flush=True)

    tests_of = collections.defaultdict(list)
    for _, program_name, test, _ in caught:
        if test not in tests_of[program_name]:
            tests_of[program_name].append(test)

    with tempfile.TemporaryDirectory() as folder, \
            concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        builder = Builder(arguments.compiler, registry["programs"], folder)
        for results in pool.map(lambda item: try_unmutated(builder, *item), tests_of.items()):
            for test, passed, how in results:
                report(passed, f"{'(nothing)':32} {test:44} {how}")
        outcomes = pool.map(lambda entry: try_mutation(builder, *entry), caught)
        for (mutation, _, test, _), (passed, how) in zip(caught, outcomes):
            report(passed, f"{mutation:32} {test:44} {how}")

    registered = {entry[0] for entry in registry["caught"]}
    for mutation in declared_mutations():
        if mutation in registry["pending"]:
            print(f"{mutation:32} (pending: no code uses it yet)")
        elif mutation not in registered:
            report(False, f"{mutation:32} no test is registered for it")
    for mutation in sorted(registered.union(registry["pending"]) - set(declared_mutations())):
        report(False, f"{mutation:32} is not declared in mutation.h")

    print(f"{time.monotonic() - begin:.0f} s")
    print(f"{num_passed} passed, {num_failed} failed")
    return 0 if num_failed == 0 and num_passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
