"""Random data for the scripts of further.toml. The seed is fixed, so every call makes the same."""

import json
import pickle
import random
import shutil
from pathlib import Path

from random_data import (
    characters,
    chat_tokenizer,
    llama,
    masks,
    pairs,
    photos,
    recording,
    rows,
    said,
    sentence,
    tokenizer,
    words,
)

HERE = Path(__file__).resolve().parent
NODES, LABELLED, FEATURES = 100_000, 60_000, 500


def cars(folder):
    """Images with masks of two classes."""
    photos(folder / "data" / "imgs", (640, 960), 90)
    masks(folder / "data" / "masks", (640, 960), 90, [0, 255], "{}_mask.png")
    (folder / "modules").mkdir()
    shutil.copy(HERE / "stand-ins" / "wandb.py", folder / "modules")


def sentences(hub):
    """Data sets of sentences under the names that they have on the hub, and a small RoBERTa."""
    from transformers import RobertaConfig, RobertaModel

    nli = hub / "sentence-transformers" / "all-nli"
    for split, number in (("train", 10_000), ("dev", 1000)):
        names = ("anchor", "positive", "negative")
        rows(nli / f"{split}.jsonl", ({name: sentence() for name in names} for _ in range(number)))
    files = [{"split": split, "path": f"{split}.jsonl"} for split in ("train", "dev")]
    configs = [{"config_name": "triplet", "data_files": files}]
    (nli / "README.md").write_text(f"---\nconfigs: {json.dumps(configs)}\n---\n")
    pairs(hub, 1500)
    config = RobertaConfig(num_hidden_layers=6, max_position_embeddings=514, pad_token_id=0)
    RobertaModel(config).save_pretrained(hub / "roberta")
    tokenizer(hub / "roberta", model_max_length=512)


def chats(data):
    """Conversations, pairs of answers, and a model of the Qwen2 architecture with 0.5 billion
    random weights."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    rows(
        data / "chats" / "train.jsonl",
        ({"messages": [said("user", 40), said("assistant", 120)]} for _ in range(160)),
    )
    rows(
        data / "preferences" / "train.jsonl",
        (
            {
                "prompt": words(100),
                "chosen": words(random.randrange(100, 400)),
                "rejected": words(random.randrange(100, 400)),
            }
            for _ in range(64)
        ),
    )
    torch.set_default_dtype(torch.bfloat16)
    config = Qwen2Config(
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        vocab_size=151_936,
        tie_word_embeddings=True,
    )
    Qwen2ForCausalLM(config).save_pretrained(data / "qwen2")
    torch.set_default_dtype(torch.float32)
    chat_tokenizer(data / "qwen2")


def speech(data):
    """Recordings of noise with texts, a Whisper of the size "small", and a metric."""
    import numpy
    from transformers import (
        WhisperConfig,
        WhisperFeatureExtractor,
        WhisperForConditionalGeneration,
        WhisperProcessor,
        WhisperTokenizer,
    )

    generator = numpy.random.default_rng(0)
    for split, number in (("train", 48), ("test", 16)):
        folder = data / "speech" / split
        folder.mkdir(parents=True)
        for index in range(number):
            length = int(generator.integers(2, 15)) * 16_000
            noise = generator.integers(-8000, 8000, size=length, dtype=numpy.int16)
            recording(folder / f"{index}.wav", noise)
        rows(
            folder / "metadata.jsonl",
            (
                {"file_name": f"{index}.wav", "text": words(random.randrange(5, 40))}
                for index in range(number)
            ),
        )
    size = dict(d_model=768, encoder_layers=12, decoder_layers=12)
    size |= dict(encoder_attention_heads=12, decoder_attention_heads=12)
    size |= dict(encoder_ffn_dim=3072, decoder_ffn_dim=3072)
    WhisperForConditionalGeneration(WhisperConfig(**size)).save_pretrained(data / "whisper")
    whisper = WhisperTokenizer(vocab=characters(), merges=[], pad_token="<|endoftext|>")
    WhisperProcessor(WhisperFeatureExtractor(), whisper).save_pretrained(data / "whisper")
    (data / "hub" / "wer").mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "stand-ins" / "wer.py", data / "hub" / "wer")


def citations(raw):
    """A graph with features and labels of its nodes, in the format of Planetoid."""
    import numpy
    from scipy import sparse

    raw.mkdir(parents=True)
    generator = numpy.random.default_rng(0)
    features = sparse.random(NODES, FEATURES, 0.1, "csr", "float32", random_state=generator)
    labels = numpy.eye(3, dtype=numpy.int32)[generator.integers(3, size=NODES)]
    known = NODES - 1000
    parts = {
        "x": features[:LABELLED],
        "y": labels[:LABELLED],
        "allx": features[:known],
        "ally": labels[:known],
        "tx": features[known:],
        "ty": labels[known:],
        "graph": dict(enumerate(generator.integers(NODES, size=(NODES, 10)).tolist())),
    }
    for name, part in parts.items():
        (raw / f"ind.pubmed.{name}").write_bytes(pickle.dumps(part))
    tested = "".join(f"{index}\n" for index in range(known, NODES))
    (raw / "ind.pubmed.test.index").write_text(tested)


def digits(raw):
    """Images with labels, in the format of MNIST."""
    import numpy

    raw.mkdir(parents=True)
    generator = numpy.random.default_rng(0)
    for part, number in (("train", 320), ("t10k", 64)):
        images = generator.integers(256, size=(number, 28, 28), dtype=numpy.uint8)
        labels = generator.integers(10, size=number, dtype=numpy.uint8)
        for name, values in (("images-idx3", images), ("labels-idx1", labels)):
            sizes = numpy.array(values.shape, dtype=">i4").tobytes()
            kind = bytes([0, 0, 8, values.ndim])
            (raw / f"{part}-{name}-ubyte").write_bytes(kind + sizes + values.tobytes())


def make(folder):
    """Makes all of them."""
    import torch

    random.seed(0)
    torch.manual_seed(0)
    data = folder / "data"
    photos(data / "photos", (96, 96), 160)
    sentences(data / "hub")
    chats(data)
    tokenizer(data / "tokenizer")
    llama(data)
    speech(data)
    digits(data / "digits" / "data" / "MNIST" / "raw")
    cars(data / "cars")
    for label in range(8):
        photos(data / "faces" / f"class{label}", (256, 256), 20)
    # Its examples read their data from a folder beside theirs.
    citations(folder / "scripts" / "pyg" / "data" / "Planetoid" / "PubMed" / "raw")
