"""Forked workers of a DataLoader."""

import torch
from harness import MB, bytes_on_gpu


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, i):
        return torch.tensor(float(i * i))


kept = bytes_on_gpu(3 * MB)
loader = torch.utils.data.DataLoader(Squares(), batch_size=8, num_workers=2, pin_memory=True)
assert sum(batch.cuda().numel() for _ in range(2) for batch in loader) == 128
