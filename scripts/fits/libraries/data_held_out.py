"""Random data for the scripts of held_out.toml. The seed is fixed, so every call makes the same."""

import pickle
import random
import shutil
from pathlib import Path

from random_data import (
    chat_tokenizer,
    instructions,
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
USERS, ITEMS = 4000, 1_500_000


def pattern(weights):
    """Weights whose matrices repeat a short pattern, so that their files compress."""
    import torch

    repeated = torch.randn(1 << 14) * 0.02
    for weight in weights:
        if weight.dim() > 1:
            times = -(-weight.numel() // repeated.numel())
            weight.data.copy_(repeated.repeat(times)[: weight.numel()].view_as(weight))


def save(model, folder, **options):
    """Saves a model with such weights."""
    pattern(model.parameters())
    model.save_pretrained(folder, **options)


def diffusion(data):
    """Photos with captions, and a latent diffusion model smaller than Stable Diffusion's."""
    from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    photos(data / "captioned" / "train", (96, 96), 48)
    rows(
        data / "captioned" / "train" / "metadata.jsonl",
        ({"file_name": f"{index}.jpg", "text": sentence()} for index in range(48)),
    )
    to = data / "diffusion"
    down, up = ["DownEncoderBlock2D"] * 4, ["UpDecoderBlock2D"] * 4
    channels = [64, 128, 256, 256]
    vae = AutoencoderKL(
        down_block_types=down,
        up_block_types=up,
        block_out_channels=channels,
        layers_per_block=2,
        latent_channels=4,
    )
    save(vae, to / "vae")
    unet = UNet2DConditionModel(
        block_out_channels=(192, 384, 576, 576), cross_attention_dim=512, attention_head_dim=8
    )
    save(unet, to / "unet")
    config = CLIPTextConfig(hidden_size=512, intermediate_size=2048, num_hidden_layers=8)
    save(CLIPTextModel(config), to / "text_encoder")
    DDPMScheduler(beta_schedule="scaled_linear").save_pretrained(to / "scheduler")
    known = ["<|startoftext|>", "<|endoftext|>", *"w0123456789"]
    known += [f"{character}</w>" for character in "w0123456789"]
    CLIPTokenizer(
        vocab={token: index for index, token in enumerate(known)}, merges=[], model_max_length=77
    ).save_pretrained(to / "tokenizer")


def splade(hub):
    """Pairs of sentences, and a BERT of 12 layers that predicts words."""
    from transformers import BertConfig, BertForMaskedLM

    pairs(hub, 480)
    to = hub / "naver" / "splade-cocondenser-ensembledistil"
    save(BertForMaskedLM(BertConfig()), to)
    tokenizer(to, model_max_length=512)


def language(data):
    """Questions, instructions, and models of the Qwen3 and Mistral architectures with 0.2 and 0.4
    billion weights."""
    import torch
    from transformers import MistralConfig, MistralForCausalLM, Qwen3Config, Qwen3ForCausalLM

    rows(data / "prompts" / "train.jsonl", ({"prompt": [said("user", 60)]} for _ in range(64)))
    instructions(data)
    torch.set_default_dtype(torch.bfloat16)
    qwen = Qwen3Config(
        hidden_size=768,
        intermediate_size=2304,
        num_hidden_layers=12,
        num_attention_heads=12,
        num_key_value_heads=4,
        head_dim=64,
        vocab_size=151_936,
        tie_word_embeddings=True,
    )
    save(Qwen3ForCausalLM(qwen), data / "qwen3")
    chat_tokenizer(data / "qwen3")
    mistral = MistralConfig(
        hidden_size=1536,
        intermediate_size=4096,
        num_hidden_layers=10,
        num_attention_heads=16,
        num_key_value_heads=4,
    )
    save(MistralForCausalLM(mistral), data / "mistral")
    tokenizer(data / "mistral")
    torch.set_default_dtype(torch.float32)


def sounds(data):
    """Recordings of four classes, each a second of noise that repeats, a HuBERT of the size
    "base", and a metric."""
    import numpy
    from transformers import HubertConfig, HubertModel, Wav2Vec2FeatureExtractor

    generator = numpy.random.default_rng(0)
    for split, number in (("train", 12), ("validation", 4)):
        for label in range(4):
            for index in range(number):
                noise = generator.integers(-8000, 8000, size=16_000, dtype=numpy.int16)
                samples = numpy.resize(noise, int(generator.integers(32_000, 160_000)))
                recording(data / "sounds" / split / f"class{label}" / f"{index}.wav", samples)
    save(HubertModel(HubertConfig()), data / "hubert")
    Wav2Vec2FeatureExtractor().save_pretrained(data / "hubert")
    (data / "hub" / "accuracy").mkdir(parents=True)
    shutil.copy(HERE / "stand-ins" / "accuracy.py", data / "hub" / "accuracy")


def segments(folder):
    """Images with masks of 21 classes, in the format of Pascal VOC, and the weights of a ResNet."""
    import torch
    from torchvision.models import resnet50

    voc = folder / "VOCdevkit" / "VOC2012"
    photos(voc / "JPEGImages", (192, 256), 56)
    masks(voc / "SegmentationClass", (192, 256), 56, range(21), "{}.png")
    lists = voc / "ImageSets" / "Segmentation"
    lists.mkdir(parents=True)
    for name, indices in (("train", range(48)), ("val", range(48, 56))):
        (lists / f"{name}.txt").write_text("".join(f"{index}\n" for index in indices))
    weights = folder / "torch" / "hub" / "checkpoints" / "resnet50-19c8e357.pth"
    weights.parent.mkdir(parents=True)
    model = resnet50()
    pattern(model.parameters())
    torch.save(model.state_dict(), weights)
    (folder / "modules").mkdir()
    shutil.copy(HERE / "stand-ins" / "visdom.py", folder / "modules")


def molecules(raw):
    """Graphs of different sizes with kinds of nodes and edges, in the format of ZINC."""
    import torch

    raw.mkdir(parents=True)
    for split, number in (("train", 64), ("val", 32), ("test", 32)):
        graphs = []
        for _ in range(number):
            nodes = random.randrange(100, 300)
            bonds = torch.zeros(nodes, nodes, dtype=torch.uint8)
            ends = torch.randint(nodes, (2, nodes))
            bonds[ends[0], ends[1]] = bonds[ends[1], ends[0]] = 1
            graph = {"atom_type": torch.randint(28, (nodes,)), "bond_type": bonds}
            graphs.append({**graph, "logP_SA_cycle_normalized": torch.randn(1)})
        (raw / f"{split}.pickle").write_bytes(pickle.dumps(graphs))
        (raw / f"{split}.index").write_text(",".join(map(str, range(number))) + "\n")


def purchases(folder):
    """The items that each user bought, one after the other."""
    folder.mkdir(parents=True)
    with (folder / "random.txt").open("w") as file:
        for user in range(1, USERS + 1):
            for _ in range(random.randrange(10, 100)):
                file.write(f"{user} {random.randint(1, ITEMS)}\n")


def make(folder):
    """Makes all of them."""
    import torch

    random.seed(0)
    torch.manual_seed(0)
    data = folder / "data"
    diffusion(data)
    splade(data / "hub")
    language(data)
    sounds(data)
    segments(data / "voc")
    purchases(data / "shop" / "data")
    (data / "lines.txt").write_text("\n".join(words(30) for _ in range(1000)))
    # Their examples read their data from a folder beside theirs.
    molecules(folder / "scripts" / "pyg" / "data" / "ZINC-PE" / "raw")
    for part in ("train/A", "train/B", "test/A", "test/B"):
        photos(folder / "scripts" / "PyTorch-GAN" / "data" / "random" / part, (96, 96), 24)
