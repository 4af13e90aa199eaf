#!/usr/bin/env python3
"""Counts the modules of each package and the imports between their files.

For every package of the repository it prints:

- files and lines of Rust below `src/`;
- rooms: modules directly below `src/` (a file, with its folder if it has one);
- arrows: pairs of rooms of which one imports from the other;
- up: arrows from a lower layer to a higher one. The layers are `ROOMS` and `PACKAGES` below. In a package
  without declared layers, an arrow runs up if it closes a circle of rooms. Each is listed;
- circles: groups of files that import each other, directly or through others. The files of each
  group are listed.

An import is a `use` or a path, outside of tests, comments and strings. It counts for the file that
defines the item, however it is re-exported. A file that only declares a module does not import it.
What a module takes from the modules that contain it is not counted in circles: a folder's own file
may hold what the files in the folder share. Between packages, the dependencies of the manifests
count, those of tests and examples included.

`--check` exits with 1 if an arrow runs up or if there are other circles than the two of `CIRCLES`.
"""

import argparse
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

# Packages by the start of their folder, the lowest layer first. A package depends on its own layer and on lower ones.
PACKAGES = (
    ("allocator",),
    ("workloads",),
    ("benches",),
    ("benches/advisor",),
    ("benches/cli", "benches/page", "benches/suite"),
    ("scripts",),
)
# The rooms of packages that declare layers, the lowest first. A room uses lower layers only.
ROOMS = {
    "coalesce-alloc": (
        ("base", "release"),
        ("driver", "placement", "settings"),
        ("mempool",),
        ("error", "history", "stats"),
        ("checkpoint", "snapshot"),
        ("private_pools",),
        ("allocator",),
        ("lifetimes", "pytorch"),
        ("policy",),
        ("managed",),
        ("adaptor", "registry"),
    ),
}
# The packages with a circle of files: the calls of the simulated CUDA share its state, and an eager program's tape holds
# tensors that hold their tape.
CIRCLES = {"coalesce-simcuda": 1, "coalesce-workloads": 1}

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
        """The module whose file defines the item of this path, which starts at the root."""
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
    """The figures of one package: its library and its programs together."""

    def __init__(self, name: str, folder: str, roots: list[Path]):
        self.name = name
        self.folder = folder
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
        folders = {file.parent for file in roots}
        self.files = sorted(file for folder in folders for file in folder.rglob("*.rs"))

    def up(self) -> list[tuple[str, str]]:
        """The arrows from a lower layer to a higher one."""
        if self.name in ROOMS:
            layer = {room: at for at, rooms in enumerate(ROOMS[self.name]) for room in rooms}
            if missing := sorted(self.rooms - {*layer}):
                sys.exit(f"{self.name}: ROOMS in {__file__} lacks {', '.join(missing)}")
            return sorted((one, other) for one, other in self.arrows if layer[one] < layer[other])
        graph: dict[str, set[str]] = defaultdict(set)
        for one, other in self.arrows:
            graph[one].add(other)
        # Where files may form a circle, so may their rooms.
        allowed = {frozenset(circle) for circle in self.circles}
        closed = [circle for circle in circles(graph) if frozenset(circle) not in allowed]
        return sorted(
            (one, other) for circle in closed for one, other in self.arrows if {one, other} <= {*circle}
        )

    def row(self) -> str:
        figures = [len(self.files), lines(self.files), len(self.rooms), len(self.arrows)]
        return ROW.format(self.name, *figures, len(self.up()), len(self.circles))


ROW = "{:24} {:>6} {:>7} {:>6} {:>7} {:>4} {:>8}"


def lines(files: list[Path]) -> int:
    """The lines of all files together."""
    return sum(file.read_text().count("\n") for file in files)


def output(*command: str) -> str:
    """What a command prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def manifests() -> list[dict]:
    """What cargo knows of each package of the repository, inside the workspace and outside of it."""
    command = ("cargo", "metadata", "--format-version", "1", "--no-deps", "--manifest-path")
    found = {}
    for manifest in output("git", "ls-files", "Cargo.toml", "*/Cargo.toml").split():
        if Path(manifest).exists() and str(Path(manifest).resolve()) not in found:
            for package in json.loads(output(*command, manifest))["packages"]:
                found[package["manifest_path"]] = package
    return list(found.values())


def folder_of(package: dict) -> str:
    """The folder of a package in the repository."""
    return Path(package["manifest_path"]).parent.relative_to(Path.cwd()).as_posix()


def totals(package: dict) -> Totals:
    """The figures of a package, without its tests, benchmarks and examples."""
    kinds = {"lib", "rlib", "cdylib", "bin"}
    targets = [target for target in package["targets"] if kinds & set(target["kind"])]
    roots = [Path(target["src_path"]) for target in targets]
    roots = [root for root in roots if root.name in ("lib.rs", "main.rs")] or roots
    return Totals(package["name"], folder_of(package), roots)


def layer_of(folder: str) -> int:
    """The layer of a package, by the longest start of its folder that is listed."""
    starts = {start: at for at, layer in enumerate(PACKAGES) for start in layer}
    fitting = [start for start in starts if f"{folder}/".startswith(f"{start}/")]
    if not fitting:
        sys.exit(f"{folder} has no layer; add it to PACKAGES in {__file__}")
    return starts[max(fitting, key=len)]


def dependencies_up(packages: list[dict]) -> list[tuple[str, str]]:
    """The dependencies of a package on one of a higher layer."""
    folder = {package["name"]: folder_of(package) for package in packages}
    pairs = {
        (package["name"], needed["name"])
        for package in packages
        for needed in package["dependencies"]
        if needed["name"] in folder
    }
    return sorted(
        (one, other) for one, other in pairs if layer_of(folder[one]) < layer_of(folder[other])
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="fail on an arrow up or a new circle")
    parser.add_argument("--arrows", metavar="PACKAGE", help="list the arrows of a package")
    args = parser.parse_args()
    print(ROW.format("package", "files", "lines", "rooms", "arrows", "up", "circles"))
    complaints = []
    known = manifests()
    for package in map(totals, known):
        print(package.row())
        for circle in package.circles:
            print(f"  circle: {', '.join(module or 'lib' for module in circle)}")
        for one, other in package.up():
            complaints.append(f"{package.name}: {one} uses {other}, which is in a higher layer")
        if len(package.circles) > CIRCLES.get(package.name, 0):
            complaints.append(f"{package.name}: a circle of files that CIRCLES does not have")
        if args.arrows == package.name:
            print("".join(f"  {one} -> {other}\n" for one, other in sorted(package.arrows)), end="")
    for one, other in dependencies_up(known):
        complaints.append(f"{one} depends on {other}, which is in a higher layer")
    tracked = [Path(file) for file in output("git", "ls-files", "*.rs").split()]
    files = [file for file in tracked if file.exists()]
    print(f"Rust in the repository: {len(files)} files, {lines(files)} lines")
    print("\n".join(complaints) or "no arrow runs up")
    if args.check and complaints:
        sys.exit(1)


if __name__ == "__main__":
    main()
