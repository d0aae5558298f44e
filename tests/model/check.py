#!/usr/bin/python3
"""Checks the protocol model with Spin: every configuration must hold, every event of interest
must be reached, and every mutation must fail in the way that is named for it.

    tests/model/check.py [--quick] [--out DIR] [--jobs N] [--only NAME]... [--json FILE] [--list]

The table goes to stdout, progress to stderr. Exit status 1 if anything deviates. The cases are
in cases.py, the model starts at slipstream.pml, README.md says what it means."""

import argparse
import concurrent.futures
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time

import cases

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE / "slipstream.pml"
# Exhaustive: states are stored in full (COLLAPSE is lossless), never as hashes or bits.
CC_FLAGS = ["-w", "-DSAFETY", "-DCOLLAPSE", "-DVECTORSZ=2048", "-DMEMLIM=6000"]
DEPTH = 100000      # the longest run has a few hundred steps; pan says so if this is too small
TIME_LIMIT_S = 1200


class Broken(Exception):
    """Spin or the compiler failed: says nothing about the protocol."""


def run(command, directory, log):
    """Runs a tool in `directory`; returns its combined output, also kept in `log`."""
    try:
        done = subprocess.run(command, cwd=directory, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise Broken(f"{command[0]} ran for more than {TIME_LIMIT_S} s") from error
    (directory / log).write_text(done.stdout)
    if done.returncode != 0 and command[0] != "./pan":
        raise Broken(f"{command[0]} failed: {done.stdout.strip()[-400:]}")
    return done.stdout


def classify(output):
    """The kind of failure, from pan's own words."""
    match = re.search(r"pan:\d+: (.*)", output)
    if not match:
        complete = "errors: 0" in output and "Search not completed" not in output
        return "holds" if complete else "incomplete"
    message = match.group(1)
    if "invalid end state" in message:
        return "hang"
    if "assertion violated" in message:
        for word, kind in (("unreached", "reached"), ("overwrite_", "overwrite"),
                           ("stale_", "stale"), ("lost_", "lost"), ("wrong_verdict", "verdict")):
            if word in message:
                return kind
    return f"other: {message}"


def check(case, out):
    """Generates, compiles and runs one verifier."""
    directory = out / case.name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    start = time.monotonic()
    result = {"name": case.name, "ranks": case.ranks, "epochs": case.epochs, "flags": case.flags,
              "what": case.what, "expected": "|".join(case.expected), "states": 0, "depth": 0,
              "detail": ""}
    try:
        defines = [f"-D{word}" for word in case.flags.split()]
        run(["spin", "-a", *defines, str(MODEL)], directory, "spin.log")
        # A mutation fails after few states: there the compiler's time counts, not pan's.
        optimise = "-O2" if case.expected == ("holds",) else "-O0"
        run(["cc", optimise, *CC_FLAGS, "-o", "pan", "pan.c"], directory, "cc.log")
        output = run(["./pan", f"-m{DEPTH}", "-n", *case.search.split()], directory, "pan.log")
        result["observed"] = classify(output)
        for key, pattern in (("states", r"^\s*([\d.e+]+) states, stored"),
                             ("depth", r"depth reached (\d+)")):
            match = re.search(pattern, output, re.MULTILINE)
            if match:
                result[key] = int(float(match.group(1)))
        match = re.search(r"pan:\d+: (.*) \(at depth", output)
        result["detail"] = match.group(1) if match else ""
    except (Broken, OSError) as error:
        result["observed"] = "broken"
        result["detail"] = str(error)
    result["seconds"] = round(time.monotonic() - start, 1)
    result["ok"] = result["observed"] in case.expected
    return result


def selected(arguments):
    """The groups of cases to run, in the order of the table."""
    groups = []
    for title, group in cases.GROUPS:
        chosen = [case for case in group
                  if (not arguments.quick or case.quick)
                  and (not arguments.only or case.name in arguments.only)]
        groups.append((title, chosen))
    unknown = set(arguments.only) - {case.name for _, group in cases.GROUPS for case in group}
    if unknown:
        sys.exit(f"check.py: no case is called {', '.join(sorted(unknown))}; --list names them")
    return groups


def print_table(groups, results):
    width = max((len(name) for name in results), default=4)
    columns = f"{{:<{width}}}  {{:>5}}  {{:>6}}  {{:>10}}  {{:>7}}  {{:<10}}  {{:<10}}  {{}}"
    for title, group in groups:
        if not group:
            continue
        print(f"\n{title}")
        print(columns.format("name", "ranks", "epochs", "states", "seconds", "expected",
                             "observed", ""))
        for case in group:
            row = results[case.name]
            verdict = "OK" if row["ok"] else f"BAD  {row['detail']}"
            print(columns.format(case.name, row["ranks"], row["epochs"], row["states"],
                                 f"{row['seconds']:.1f}", row["expected"], row["observed"],
                                 verdict))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("build/model"),
                        help="where verifiers are built (default build/model)")
    parser.add_argument("--jobs", type=int, default=2, help="verifiers at a time (default 2)")
    parser.add_argument("--quick", action="store_true", help="leave out the largest searches")
    parser.add_argument("--only", action="append", default=[], metavar="NAME",
                        help="only this case; may be given again")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="write the results")
    parser.add_argument("--list", action="store_true", help="name the cases and leave")
    arguments = parser.parse_args()

    groups = selected(arguments)
    if arguments.list:
        for title, group in groups:
            print(f"{title}:")
            for case in group:
                print(f"  {case.name:<34} {case.what}  [{case.flags}]")
        return 0
    for tool, package in (("spin", "spin"), ("cc", "gcc")):
        if not shutil.which(tool):
            sys.exit(f"check.py: {tool} is not installed ---> HINT: apt-get install {package}")

    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    # Longest first, so that the last job to end is a short one.
    queue = sorted((case for _, group in groups for case in group), key=lambda case: case.quick)
    results = {}
    with concurrent.futures.ThreadPoolExecutor(max(1, arguments.jobs)) as pool:
        for future in concurrent.futures.as_completed(pool.submit(check, case, out)
                                                      for case in queue):
            row = future.result()
            results[row["name"]] = row
            print(f"[{len(results)}/{len(queue)}] {row['name']}: {row['observed']}"
                  f"{'' if row['ok'] else ' (expected ' + row['expected'] + ')'}",
                  file=sys.stderr, flush=True)

    print_table(groups, results)
    failed = sum(not row["ok"] for row in results.values())
    if arguments.json:
        report = {"passed": len(results) - failed, "failed": failed,
                  "states": sum(row["states"] for row in results.values()),
                  "cases": [results[case.name] for _, group in groups for case in group]}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    print(f"\n{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
