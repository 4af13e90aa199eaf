"""Random data for the scripts of programs.toml. The seed is fixed, so every call makes the same."""

import json
import random

from random_data import instructions, llama, tokenizer, words

GRAPHS, NODES, EDGES = 4096, 100, 400
PROTEINS = 5000


def images(folder):
    """Folders of images, by class, for training and for validation."""
    import numpy
    from PIL import Image

    generator = numpy.random.default_rng(0)
    for part, number in (("train", 160), ("val", 32)):
        for label in range(8):
            to = folder / part / f"class{label}"
            to.mkdir(parents=True)
            for index in range(number):
                pixels = generator.integers(256, size=(96, 96, 3), dtype=numpy.uint8)
                Image.fromarray(pixels).save(to / f"{index}.jpg")


def texts(folder):
    """Texts for language models."""
    import numpy

    (folder / "text.txt").write_text("\n".join(words(500) for _ in range(800)))
    lines = [words(random.randrange(20, 400)) for _ in range(64 * 14)]
    (folder / "lines.txt").write_text("\n".join(lines))
    corpus = folder / "words"
    corpus.mkdir()
    for name, number in (("train", 64 * 256 * 6), ("valid", 6000), ("test", 6000)):
        (corpus / f"{name}.txt").write_text(words(number))
    (corpus / "input.txt").write_text("O God, O God!\n" + words(20_000))
    # Lightning takes 4000 sequences of 35 words for validation and testing.
    demo = folder / "demo" / "data"
    demo.mkdir(parents=True)
    (demo / "wikitext-2.txt").write_text(words(35 * (4000 + 8 * 20 + 1)))
    tokens = folder / "tokens"
    tokens.mkdir()
    generator = numpy.random.default_rng(0)
    for name in ("train", "val"):
        generator.integers(50257, size=1 << 20, dtype=numpy.uint16).tofile(tokens / f"{name}.bin")
    instructions(folder)


def graphs(folder):
    """A set of graphs of equal size, in the format of TUDataset."""
    raw = folder / "RANDOM" / "raw"
    raw.mkdir(parents=True)
    count = GRAPHS * NODES
    edges = []
    for graph in range(GRAPHS):
        first = graph * NODES + 1
        # Distinct, or some would be left out.
        picked = sorted(random.sample(range(NODES * (NODES - 1)), EDGES))
        for edge in picked:
            one, other = divmod(edge, NODES - 1)
            edges.append(f"{first + one}, {first + other + (other >= one)}")
    columns = {
        "A": edges,
        "graph_indicator": [index // NODES + 1 for index in range(count)],
        "graph_labels": [index % 2 for index in range(GRAPHS)],
        "node_labels": [index % 7 for index in range(count)],
    }
    for name, rows in columns.items():
        (raw / f"RANDOM_{name}.txt").write_text("\n".join(map(str, rows)) + "\n")


def proteins(folder):
    """Graphs of equal size with labels for every node, in the format of PPI."""
    import numpy

    folder.mkdir(parents=True)
    generator = numpy.random.default_rng(0)
    for split, number in (("train", 4), ("valid", 2), ("test", 2)):
        count = number * PROTEINS
        links = []
        for graph in range(number):
            pairs = set()
            while len(pairs) < 6 * PROTEINS:
                one, other = sorted(random.sample(range(PROTEINS), 2))
                pairs.add((one, other))
            first = graph * PROTEINS
            links += [{"source": first + one, "target": first + other} for one, other in pairs]
        graph = {"directed": False, "multigraph": False, "graph": {}, "links": links}
        graph["nodes"] = [{"id": index} for index in range(count)]
        (folder / f"{split}_graph.json").write_text(json.dumps(graph))
        numpy.save(folder / f"{split}_feats.npy", generator.normal(size=(count, 50)))
        numpy.save(folder / f"{split}_labels.npy", generator.integers(2, size=(count, 121)))
        numpy.save(folder / f"{split}_graph_id.npy", numpy.arange(count) // PROTEINS)


def make(folder):
    """Makes all of them."""
    random.seed(0)
    data = folder / "data"
    data.mkdir()
    images(data / "images")
    texts(data)
    tokenizer(data / "tokenizer")
    llama(data)
    # Its examples read their data from a folder beside theirs.
    graphs(folder / "scripts" / "pyg" / "data" / "TU")
    proteins(folder / "scripts" / "pyg" / "data" / "PPI" / "raw")
