"""Trains a small network of convolutions under automatic mixed precision."""

import torch
from torch import nn

channels = [3, 32, 64, 128]
blocks = [
    layer
    for before, after in zip(channels, channels[1:])
    for layer in (nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU())
]
model = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler()
for _ in range(20):
    images = torch.randn(64, 3, 96, 96, device="cuda")
    labels = torch.randint(10, (64,)).cuda()
    with torch.autocast("cuda", torch.float16):
        loss = nn.functional.cross_entropy(model(images), labels)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
