"""Models of libraries, with random weights."""

import random

import torch
import torch.nn.functional as F

from . import program
from .parts import DEVICE, lengths, steps, tokens, train


@program("peft", "transformers")
def lora():
    """peft: LoRA on a Llama of 1.3 billion weights in bfloat16"""
    from peft import LoraConfig, get_peft_model
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32_000,
        hidden_size=2048,
        intermediate_size=5504,
        num_hidden_layers=20,
        num_attention_heads=16,
    )
    with torch.device(DEVICE):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model = get_peft_model(model, LoraConfig(r=16, target_modules="all-linear"))
    optimizer = torch.optim.AdamW(it for it in model.parameters() if it.requires_grad)

    def loss(batch):
        return model(input_ids=batch, labels=batch).loss

    train(model, optimizer, (tokens(2, n) for n in lengths(steps(7), 256, 1024)), loss)


@program("transformers", "accelerate")
def trainer():
    """transformers: GPT-2 under the Trainer in bfloat16, batches padded to their longest text"""
    import tempfile

    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    texts = [{"input_ids": torch.randint(50257, (n,))} for n in lengths(160, 64, 1024, 1)]

    def collate(batch):
        longest = max(len(it["input_ids"]) for it in batch)
        padded = [F.pad(it["input_ids"], (0, longest - len(it["input_ids"]))) for it in batch]
        return {"input_ids": torch.stack(padded), "labels": torch.stack(padded)}

    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            per_device_train_batch_size=8,
            max_steps=steps(20),
            bf16=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        Trainer(GPT2LMHeadModel(GPT2Config()), settings, collate, texts).train()


@program("timm")
def timm_convnext():
    """timm: ConvNeXt on images of growing size, mixup, an average of the weights"""
    import timm
    from timm.utils import ModelEmaV2

    model = timm.create_model("convnext_tiny", num_classes=1000).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())
    average = ModelEmaV2(model)
    for step in range(14):
        side = 160 + 32 * (step // 3)
        images = torch.randn(32, 3, side, side, device=DEVICE)
        images = 0.7 * images + 0.3 * images.flip(0)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = F.cross_entropy(model(images), torch.randint(1000, (32,), device=DEVICE))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update(model)


@program("torchvision")
def retinanet():
    """torchvision: RetinaNet, images of many sizes, a varying number of boxes"""
    from torchvision.models.detection import retinanet_resnet50_fpn

    model = retinanet_resnet50_fpn(
        weights=None, weights_backbone=None, min_size=480, max_size=800
    ).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    for _ in range(steps(12)):
        images, targets = [], []
        for _ in range(4):
            high, wide = (random.randrange(320, 800, 16) for _ in range(2))
            images.append(torch.rand(3, high, wide, device=DEVICE))
            count = random.randrange(1, 30)
            corner = torch.rand(count, 2, device=DEVICE) * 200
            boxes = torch.cat([corner, corner + 10 + torch.rand_like(corner) * 100], 1)
            labels = torch.randint(1, 91, (count,), device=DEVICE)
            targets.append({"boxes": boxes, "labels": labels})
        sum(model(images, targets).values()).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@program("torch_geometric")
def graphsage():
    """torch_geometric: GraphSAGE on sampled subgraphs, every size differs"""
    from torch_geometric.nn import SAGEConv

    layers = torch.nn.ModuleList(SAGEConv(a, b) for a, b in ((256, 512), (512, 512), (512, 64)))
    layers.to(DEVICE)
    optimizer = torch.optim.Adam(layers.parameters())
    features = torch.randn(1_000_000, 256, device=DEVICE)
    for _ in range(steps(25)):
        nodes = random.randrange(20_000, 200_000)
        chosen = torch.randint(len(features), (nodes,), device=DEVICE)
        edges = torch.randint(nodes, (2, nodes * random.randrange(4, 10)), device=DEVICE)
        x = features[chosen]
        for layer in layers:
            x = F.relu(layer(x, edges))
        x.logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@program("transformers", "accelerate")
def t5():
    """transformers and accelerate: T5, sources and targets of different lengths, accumulation"""
    from accelerate import Accelerator
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=768, d_ff=2048, num_layers=8, num_heads=12, decoder_start_token_id=0)
    accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    model = T5ForConditionalGeneration(config)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters()))
    count = steps(10)
    for source, target in zip(lengths(count, 64, 512, 32), lengths(count, 32, 256, 32)):
        with accelerator.accumulate(model):
            loss = model(input_ids=tokens(8, source), labels=tokens(8, target)).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
