"""Random data for the scripts of further.toml. The seed is fixed, so every call makes the same."""

import json
import pickle
import random
import shutil
import wave
from pathlib import Path

from data_programs import llama, tokenizer, words

HERE = Path(__file__).resolve().parent
NODES, LABELLED, FEATURES = 100_000, 60_000, 500
CHAT = (
    "{% for message in messages %}<|im_start|> {{ message['role'] }} {{ message['content'] }} "
    "<|im_end|> {% endfor %}{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)


def rows(path, examples):
    """A file with one example a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(example) + "\n" for example in examples))


def characters():
    """A vocabulary for which, without merges, a character is a token."""
    known = [chr(code) for code in range(33, 127)] + ["\u0120", "\u010a"]
    return {character: index for index, character in enumerate(known)}


def photos(folder, shape, number):
    """Images of random pixels."""
    import numpy
    from PIL import Image

    generator = numpy.random.default_rng(0)
    folder.mkdir(parents=True)
    for index in range(number):
        pixels = generator.integers(256, size=(*shape, 3), dtype=numpy.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.jpg")


def cars(folder):
    """Images with masks of two classes."""
    import numpy
    from PIL import Image

    photos(folder / "data" / "imgs", (640, 960), 90)
    masks = folder / "data" / "masks"
    masks.mkdir()
    generator = numpy.random.default_rng(0)
    for index in range(90):
        pixels = generator.integers(2, size=(640, 960), dtype=numpy.uint8) * 255
        Image.fromarray(pixels).save(masks / f"{index}_mask.png")
    (folder / "modules").mkdir()
    shutil.copy(HERE / "stand-ins" / "wandb.py", folder / "modules")


def sentences(hub):
    """Data sets of sentences under the names that they have on the hub, and a small RoBERTa."""
    from transformers import RobertaConfig, RobertaModel

    def short():
        return words(random.randrange(5, 40))

    nli = hub / "sentence-transformers" / "all-nli"
    for split, number in (("train", 10_000), ("dev", 1000)):
        names = ("anchor", "positive", "negative")
        rows(nli / f"{split}.jsonl", ({name: short() for name in names} for _ in range(number)))
    files = [{"split": split, "path": f"{split}.jsonl"} for split in ("train", "dev")]
    configs = [{"config_name": "triplet", "data_files": files}]
    (nli / "README.md").write_text(f"---\nconfigs: {json.dumps(configs)}\n---\n")
    for split in ("train", "validation", "test"):
        rows(
            hub / "sentence-transformers" / "stsb" / f"{split}.jsonl",
            (
                {"sentence1": short(), "sentence2": short(), "score": random.random()}
                for _ in range(1500)
            ),
        )
    config = RobertaConfig(num_hidden_layers=6, max_position_embeddings=514, pad_token_id=0)
    RobertaModel(config).save_pretrained(hub / "roberta")
    tokenizer(hub / "roberta", model_max_length=512)


def chats(data):
    """Conversations, pairs of answers, and a model of the Qwen2 architecture with 0.5 billion
    random weights."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

    def said(role, most):
        return {"role": role, "content": words(random.randrange(20, most))}

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
    marks = ["<|im_start|>", "<|im_end|>"]
    Qwen2Tokenizer(
        vocab=characters(),
        merges=[],
        additional_special_tokens=marks,
        chat_template=CHAT,
        model_max_length=32_768,
    ).save_pretrained(data / "qwen2")


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
            with wave.open(str(folder / f"{index}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(16_000)
                length = int(generator.integers(2, 15)) * 16_000
                noise = generator.integers(-8000, 8000, size=length, dtype=numpy.int16)
                file.writeframes(noise.tobytes())
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
