"""Checks that what the documents name is there. tools/lint.sh runs it. Standard library only.

- a path such as host/drive.cc or docs/design.md exists under src/, include/ or the root;
- a name in backquotes behind a path (core/problem.cc `validate`) occurs in that file;
- a relative link leads somewhere.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "CONTRIBUTING.md"] + sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md"))
PATH = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)+[\w.-]*\.(?:h|cc|cuh|cu|py|sh|md|txt|json|svg))(?!\w)"
                  r"(?:\s+`~?(\w+(?:::~?\w+)*)`)?")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
# Written by a build or by the reader, not in the tree.
NOT_IN_THE_TREE = re.compile(r"^(build|PRESET)/|FOLDER|PRESET")


def find(document, path):
    for folder in ("src", "include", "", "tests/cpu", "tests", pathlib.Path(document).parent):
        file = ROOT / folder / path
        if file.is_file():
            return file
    return None


def check(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), start=1):
        for path, name in PATH.findall(line):
            if NOT_IN_THE_TREE.search(path):
                continue
            file = find(document, path)
            if file is None:
                yield f"{document}:{number}: {path} does not exist"
            elif name and not re.search(rf"\b{name.split('::')[-1]}\b", file.read_text("utf-8")):
                yield f"{document}:{number}: {path} has no '{name}'"
        for target in LINK.findall(line):
            if not (ROOT / document).parent.joinpath(target).exists():
                yield f"{document}:{number}: the link {target} leads nowhere"


def main():
    findings = [finding for document in DOCUMENTS for finding in check(document)]
    for finding in findings:
        print(finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
