"""Trains a transformer on batches of different lengths, with a DataLoader that has workers."""

import torch
from torch import nn
from torch.utils.data import DataLoader


def padded(sentences):
    return nn.utils.rnn.pad_sequence(sentences, batch_first=True)


if __name__ == "__main__":
    data = [torch.randint(1, 1000, (8 + number % 56,)) for number in range(4096)]
    embed = nn.Embedding(1000, 256, padding_idx=0).cuda()
    layer = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda()
    optimizer = torch.optim.AdamW([*embed.parameters(), *model.parameters()])
    for batch in DataLoader(data, 64, num_workers=2, collate_fn=padded):
        tokens = batch.cuda()
        seen = model(embed(tokens), src_key_padding_mask=tokens == 0)[tokens != 0]
        seen.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
