"""Random texts, images and models that more than one list reads."""

import json
import random
import shutil
import wave

WORDS = 20_000
CHAT = (
    "{% for message in messages %}<|im_start|> {{ message['role'] }} {{ message['content'] }} "
    "<|im_end|> {% endfor %}{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)


def words(number):
    """A text of so many words."""
    return " ".join(f"w{random.randrange(WORDS)}" for _ in range(number))


def sentence():
    """A text of the length of a sentence."""
    return words(random.randrange(5, 40))


def rows(path, examples):
    """A file with one example a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(example) + "\n" for example in examples))


def characters():
    """A vocabulary for which, without merges, a character is a token."""
    known = [chr(code) for code in range(33, 127)] + ["\u0120", "\u010a"]
    return {character: index for index, character in enumerate(known)}


def tokenizer(folder, **options):
    """A tokenizer for which a word is a token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
    vocabulary = special + [f"w{index}" for index in range(WORDS)]
    words = Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(vocabulary)}, unk_token="<unk>")
    )
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(
        tokenizer_object=words,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        mask_token="<mask>",
        cls_token="<s>",
        sep_token="</s>",
        **options,
    ).save_pretrained(folder)


def chat_tokenizer(folder):
    """A tokenizer for which a character is a token, with a template of chats."""
    from transformers import Qwen2Tokenizer

    Qwen2Tokenizer(
        vocab=characters(),
        merges=[],
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
        chat_template=CHAT,
        model_max_length=32_768,
    ).save_pretrained(folder)


def said(role, most):
    """A message of a chat."""
    return {"role": role, "content": words(random.randrange(20, most))}


def instructions(data):
    """Instructions with answers."""
    rows(
        data / "instructions" / "train.json",
        (
            {"instruction": words(20), "output": words(random.randrange(50, 500))}
            for _ in range(16 * 9)
        ),
    )


def pairs(hub, number):
    """Pairs of sentences with scores, under the name that they have on the hub."""
    for split in ("train", "validation", "test"):
        rows(
            hub / "sentence-transformers" / "stsb" / f"{split}.jsonl",
            (
                {"sentence1": sentence(), "sentence2": sentence(), "score": random.random()}
                for _ in range(number)
            ),
        )


def llama(folder):
    """A model of the Llama architecture with 0.7 billion random weights."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    config = LlamaConfig(
        hidden_size=2048,
        intermediate_size=5632,
        num_hidden_layers=12,
        num_attention_heads=32,
        num_key_value_heads=4,
        vocab_size=32000,
        max_position_embeddings=2048,
    )
    LlamaForCausalLM(config).save_pretrained(folder / "llama")
    torch.set_default_dtype(torch.float32)
    for path in (folder / "tokenizer").iterdir():
        shutil.copyfile(path, folder / "llama" / path.name)


def photos(folder, shape, number):
    """Images of random pixels."""
    import numpy
    from PIL import Image

    generator = numpy.random.default_rng(0)
    folder.mkdir(parents=True)
    for index in range(number):
        pixels = generator.integers(256, size=(*shape, 3), dtype=numpy.uint8)
        Image.fromarray(pixels).save(folder / f"{index}.jpg")


def masks(folder, shape, number, values, name):
    """A random value of those given for each pixel of an image."""
    import numpy
    from PIL import Image

    generator = numpy.random.default_rng(0)
    folder.mkdir(parents=True)
    for index in range(number):
        pixels = generator.integers(len(values), size=shape, dtype=numpy.uint8)
        pixels = numpy.array(values, dtype=numpy.uint8)[pixels]
        Image.fromarray(pixels).save(folder / name.format(index))


def recording(path, samples):
    """Samples of 16 bits, 16,000 a second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes(samples.tobytes())
