#!/usr/bin/env python3
"""Counts the modules of each package and the imports between their files.

For every package of the workspace it prints:

- files and lines of Rust below `src/`;
- rooms: modules directly below `src/` (a file, with its folder if it has one);
- arrows: pairs of rooms of which one imports from the other;
- circles: groups of files that import each other, directly or through others. The files of each
  group are listed.

An import is a `use` or a path, outside of tests, comments and strings. It counts for the file that
defines the item, however it is re-exported. A file that only declares a module does not import it.
What a module takes from the modules that contain it is not counted in circles: a folder's own file
may hold what the files in the folder share.

`--expect N` exits with 1 if there are more than N circles.
"""

import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|r(\#*)".*?"\1|b?"(?:\\.|[^"\\])*"|b?'(?:\\.[^']*|[^'\\])'""",
    re.DOTALL,
)
ITEM = re.compile(
    r"^(?P<indent> *)(?:pub(?:\([^)]*\))? +)?"
    r"(?:const +|async +|unsafe +|extern +\"C\" +|default +)*"
    r"(?:fn|struct|enum|trait|type|const|static|union|macro_rules!) +(?P<name>[A-Za-z_]\w*)",
    re.MULTILINE,
)
MODULE = re.compile(r"^ *(?:pub(?:\([^)]*\))? +)?mod +(\w+);", re.MULTILINE)
USE = re.compile(r"\b(pub(?:\([^)]*\))? +)?use +([^;]+);")
PATH = re.compile(r"\b((?:\w+::)+\w+)")


class Package:
    """The files of one package, and what each module defines and re-exports."""

    def __init__(self, name: str, root: Path):
        self.name = name
        self.folder = root.parent
        self.text: dict[str, str] = {}
        self.file: dict[str, Path] = {}
        self.items: dict[str, set[str]] = {}
        self.exports: dict[str, dict[str, str]] = {}
        self.globs: dict[str, list[str]] = {}
        self.read("", root, root.parent)

    def read(self, module: str, file: Path, folder: Path) -> None:
        """Reads a module and all those it declares."""
        text = without_tests(TOKEN.sub(blank, file.read_text()))
        self.text[module] = text
        self.file[module] = file
        self.items[module] = {m["name"] for m in ITEM.finditer(text) if not m["indent"]}
        self.exports[module] = {}
        self.globs[module] = []
        for child in MODULE.findall(text):
            below = f"{module}::{child}" if module else child
            for place in (folder / f"{child}.rs", folder / child / "mod.rs"):
                if place.exists():
                    self.read(below, place, folder / child)
        for _, tree in USE.findall(text):
            for path, alias in leaves(tree):
                target = self.absolute(module, path)
                if target is None:
                    continue
                if alias == "*":
                    self.globs[module].append(target)
                else:
                    self.exports[module][alias] = target

    def absolute(self, module: str, path: str) -> str | None:
        """A path from the root of the package; None if it leads outside."""
        parts = path.split("::")
        here = module.split("::") if module else []
        if parts[0] == "crate":
            return "::".join(parts[1:])
        if parts[0] in ("self", "super"):
            while parts and parts[0] in ("self", "super"):
                if parts[0] == "super":
                    here = here[:-1]
                parts = parts[1:]
            return "::".join(here + parts)
        first = "::".join([*here, parts[0]])
        if first in self.text or parts[0] in MODULE.findall(self.text[module]):
            return "::".join(here + parts)
        return None

    def home(self, path: str, seen: frozenset[str] = frozenset()) -> str | None:
        """The module whose file defines what a path from the root names."""
        if path in seen:
            return None
        seen = seen | {path}
        if path in self.text:
            return path
        parts = path.split("::")
        for cut in range(len(parts) - 1, -1, -1):
            module = "::".join(parts[:cut])
            if module not in self.text:
                continue
            name = parts[cut]
            if name in self.items[module]:
                return module
            if name in self.exports[module]:
                rest = "::".join([self.exports[module][name], *parts[cut + 1 :]])
                return self.home(rest, seen)
            for target in self.globs[module]:
                found = self.home(f"{target}::{name}", seen)
                if found is not None and found != target:
                    return found
            return module if name and name[0].islower() is False else None
        return None

    def imports(self) -> dict[str, set[str]]:
        """For each module, the modules that define what it names."""
        found: dict[str, set[str]] = defaultdict(set)
        for module, text in self.text.items():
            wanted: set[str] = set()
            for public, tree in USE.findall(text):
                if public:
                    continue
                wanted.update(path for path, _ in leaves(tree))
            rest = USE.sub("", text)
            wanted.update(PATH.findall(rest))
            for path in wanted:
                target = self.absolute(module, path.removesuffix("::*"))
                home = None if target is None else self.home(target)
                # A path to a module on its own is followed by the paths to what is in it.
                if home is not None and home != module and home != target:
                    found[module].add(home)
                elif home is not None and home == target and home != module:
                    alias = path.split("::")[-1]
                    for item in re.findall(rf"\b{alias}::(\w+)", rest):
                        inner = self.home(f"{home}::{item}")
                        if inner is not None and inner != module:
                            found[module].add(inner)
        return found

    def rooms_of(self, library: "Package") -> set[str]:
        """The rooms of the library of the same package that this program names."""
        name = library.name.replace("-", "_")
        found = set()
        for text in self.text.values():
            for path in [path for _, tree in USE.findall(text) for path, _ in leaves(tree)]:
                first, _, rest = path.partition("::")
                home = library.home(rest) if first == name else None
                if home:
                    found.add(home.split("::")[0])
        return found


def without_ancestors(imports: dict[str, set[str]]) -> dict[str, set[str]]:
    """The imports without those of a module from the modules that contain it."""
    return {
        module: {other for other in others if other and not module.startswith(f"{other}::")}
        for module, others in imports.items()
        if module
    }


def blank(match: re.Match[str]) -> str:
    """Nothing, in as many lines."""
    return '""' + "\n" * match[0].count("\n")


def without_tests(text: str) -> str:
    """A file without its `#[cfg(test)]` items."""
    while True:
        found = re.search(r"#\[cfg\((?:all\()?test\b[^\]]*\]\s*", text)
        if found is None:
            return text
        start, at, depth = found.start(), found.end(), 0
        while at < len(text):
            if text[at] == "{":
                depth += 1
            elif text[at] == "}":
                depth -= 1
                if depth == 0:
                    break
            elif text[at] == ";" and depth == 0:
                break
            at += 1
        text = text[:start] + text[at + 1 :]


def leaves(tree: str) -> list[tuple[str, str]]:
    """All paths of a `use` tree, each with the name that it gets."""
    tree = " ".join(tree.split())
    opened = tree.find("{")
    if opened < 0:
        path, _, alias = tree.partition(" as ")
        path = path.strip()
        return [(path, alias.strip() or path.split("::")[-1])] if path else []
    head, inner = tree[:opened], tree[opened + 1 : tree.rindex("}")]
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(inner + ","):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            parts.append(inner[start:at].strip())
            start = at + 1
    found = []
    for part in parts:
        if part == "self" or part.startswith("self as"):
            part = part.replace("self", head.rstrip(":").split("::")[-1], 1)
            found += leaves(head.rstrip(":").rpartition("::")[0] + "::" + part)
        elif part:
            found += leaves(head + part)
    return [(path.removeprefix("::"), alias) for path, alias in found]


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(graph.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while True:
                group.append(stack.pop())
                if group[-1] == node:
                    break
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for node in sorted(graph):
        if node not in index:
            visit(node)
    return found


class Totals:
    """The figures of one package: its library and its program together."""

    def __init__(self, name: str, roots: list[Path]):
        self.name = name
        parts = [Package(name, root) for root in roots]
        self.rooms = {module.split("::")[0] for part in parts for module in part.text if module}
        self.arrows: set[tuple[str, str]] = set()
        self.circles: list[list[str]] = []
        for part in parts:
            imports = part.imports()
            self.circles += circles(without_ancestors(imports))
            for module, others in imports.items():
                pairs = {(module.split("::")[0], other.split("::")[0]) for other in others}
                self.arrows |= {
                    (one, other) for one, other in pairs if one != other and one and other
                }
            if part is not parts[0]:
                self.arrows |= {("program", room) for room in part.rooms_of(parts[0])}
        self.files = sorted(roots[0].parent.rglob("*.rs"))

    def row(self) -> str:
        figures = (len(self.files), lines(self.files), len(self.rooms), len(self.arrows))
        return "{:24} {:6} {:7} {:6} {:7} {:8}".format(self.name, *figures, len(self.circles))


def lines(files: list[Path]) -> int:
    """The lines of all files together."""
    return sum(file.read_text().count("\n") for file in files)


def output(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def packages() -> list[Totals]:
    """All packages of the workspace."""
    found = []
    metadata = json.loads(output("cargo", "metadata", "--format-version", "1", "--no-deps"))
    for package in metadata["packages"]:
        kinds = {"lib", "rlib", "cdylib", "bin"}
        targets = [target for target in package["targets"] if kinds & set(target["kind"])]
        roots = [Path(target["src_path"]) for target in targets]
        found.append(Totals(package["name"], [root for root in roots if root.parent.name == "src"]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--expect", type=int, metavar="N", help="fail if there are more circles")
    parser.add_argument("--arrows", metavar="PACKAGE", help="list the arrows of a package")
    args = parser.parse_args()
    heads = ("package", "files", "lines", "rooms", "arrows", "circles")
    print("{:24} {:>6} {:>7} {:>6} {:>7} {:>8}".format(*heads))
    count = 0
    for package in packages():
        print(package.row())
        count += len(package.circles)
        for circle in package.circles:
            print(f"  circle: {', '.join(module or 'lib' for module in circle)}")
        if args.arrows == package.name:
            print("".join(f"  {one} -> {other}\n" for one, other in sorted(package.arrows)), end="")
    tracked = [Path(file) for file in output("git", "ls-files", "*.rs").split()]
    files = [file for file in tracked if file.exists()]
    print(f"Rust in the repository: {len(files)} files, {lines(files)} lines")
    if args.expect is not None and count > args.expect:
        sys.exit(f"{count} circles of files, expected at most {args.expect}")


if __name__ == "__main__":
    main()
