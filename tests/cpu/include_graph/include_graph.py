"""Checks every #include of the project against allowed.txt.

Run by ctest (`include_graph`) and by tools/lint.sh. Read allowed.txt first: it is the graph. Standard
library only.

    python3 include_graph.py [--root FOLDER] [--allowed FILE]

Exit code 0 when all includes are allowed, 1 when some are not (one line each: file, line, include,
what would be allowed), 2 when allowed.txt itself is wrong.
"""

import argparse
import fnmatch
import pathlib
import re
import sys

SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".inl"}
SOURCE_FOLDERS = ("include", "src", "cli", "bench")
INCLUDE = re.compile(r"^\s*#\s*(?:include|include_next|import)\b\s*(.*)$")
TARGET = re.compile(r'^(?:<([^>]+)>|"([^"]+)")')


class GraphError(Exception):
    """allowed.txt does not say what it should."""


class Node:
    def __init__(self, name, prefix, projects, externals):
        self.name = name
        self.prefix = prefix  # a folder or a file without its suffix, relative to the root
        self.projects = projects  # "core" or "public/status.h"
        self.externals = externals  # group names or headers

    def holds(self, path):
        return path.startswith((self.prefix + "/", self.prefix + "."))

    def allowed_text(self):
        projects = " ".join([self.name] + self.projects)
        return f"{{{projects} | {' '.join(self.externals)}}}"


class Graph:
    def __init__(self, text, file_name="allowed.txt"):
        self.groups = {}
        self.nodes = {}
        for number, line in enumerate(text.splitlines(), start=1):
            line = line.split("#", 1)[0].strip()
            if not line:
                continue
            try:
                self._parse_line(line)
            except GraphError as error:
                raise GraphError(f"{file_name}:{number}: {error}") from None

    def _parse_line(self, line):
        kind, _, rest = line.partition(" ")
        if kind == "group":
            name, *headers = rest.split()
            self.groups[name] = headers
            return
        if kind != "node":
            raise GraphError(f"'{kind}' is neither 'group' nor 'node'")
        fields = rest.split("|")
        if len(fields) != 3 or len(fields[0].split()) != 2:
            raise GraphError("a node is 'node NAME PREFIX | project headers | external headers'")
        name, prefix = fields[0].split()
        projects, externals = fields[1].split(), fields[2].split()
        if name in self.nodes:
            raise GraphError(f"node {name} is there twice")
        for project in projects:
            if project.split("/")[0] not in self.nodes:
                raise GraphError(f"node {name} names {project}, which is not above it")
        self.nodes[name] = Node(name, prefix, projects, externals)

    def node_of(self, path):
        """The node whose prefix holds `path` (relative, with /), or None."""
        holders = [node for node in self.nodes.values() if node.holds(path)]
        return max(holders, key=lambda n: len(n.prefix), default=None)

    def group_of(self, header):
        for name, patterns in self.groups.items():
            if any(fnmatch.fnmatchcase(header, pattern) for pattern in patterns):
                return name
        # What is left and has no folder is the standard library's: <vector>, <stdint.h>.
        return None if "/" in header else "std"

    def allows_external(self, node, header):
        return header in node.externals or self.group_of(header) in node.externals

    def allows_project(self, node, path):
        target = self.node_of(path)
        if target is None:
            return False
        if target is node or target.name in node.projects:
            return True
        return f"{target.name}/{path[len(target.prefix) + 1:]}" in node.projects


def includes_of(text):
    """Yields (line number, text after #include), comments left out."""
    text = re.sub(r"/\*.*?\*/", lambda match: "\n" * match.group().count("\n"), text, flags=re.S)
    for number, line in enumerate(text.splitlines(), start=1):
        match = INCLUDE.match(line)
        if match:
            yield number, match.group(1).strip()


def resolve(root, file, header):
    """The project file that `header` means when `file` includes it, relative to root, or None."""
    for folder in (file.parent, root / "src", root / "include", root):
        candidate = folder / header
        if candidate.is_file():
            try:
                return candidate.resolve().relative_to(root.resolve()).as_posix()
            except ValueError:
                return None
    return None


def check_file(graph, root, file):
    """Yields one sentence per include that is not allowed."""
    path = file.relative_to(root).as_posix()
    node = graph.node_of(path)
    if node is None:
        yield f"{path}:1: no node of allowed.txt holds this folder; add one that says what it may include"
        return
    for number, directive in includes_of(file.read_text(encoding="utf-8", errors="replace")):
        where = f"{path}:{number}: {node.name} includes {directive}"
        match = TARGET.match(directive)
        if not match:
            yield f"{where}: only <header> and \"header\" can be checked"
            continue
        where = f"{path}:{number}: {node.name} includes {match.group()}"
        header = match.group(1) or match.group(2)
        project_path = resolve(root, file, header)
        if project_path is not None:
            if not graph.allows_project(node, project_path):
                yield f"{where}; allowed: {node.allowed_text()}"
        elif match.group(2):
            yield f"{where}: no such file; quotes are for the project's own headers"
        elif not graph.allows_external(node, header):
            group = graph.group_of(header)
            yield f"{where} ({group or 'no group has it'}); allowed: {node.allowed_text()}"


def source_files(root):
    for folder in SOURCE_FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix in SOURCE_SUFFIXES and file.is_file():
                yield file


def main(arguments=None):
    here = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description="Check #includes against the allowed graph.")
    parser.add_argument("--root", type=pathlib.Path, default=here.parents[2])
    parser.add_argument("--allowed", type=pathlib.Path, default=here / "allowed.txt")
    options = parser.parse_args(arguments)
    try:
        graph = Graph(options.allowed.read_text(encoding="utf-8"), options.allowed.name)
    except (OSError, GraphError) as error:
        print(f"include graph: {error}", file=sys.stderr)
        return 2
    files = list(source_files(options.root))
    if not files:
        print(f"include graph: no source files under {options.root}", file=sys.stderr)
        return 2
    violations = [v for file in files for v in check_file(graph, options.root, file)]
    for violation in violations:
        print(violation)
    print(f"include graph: {len(files)} files, {len(violations)} includes not allowed")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
