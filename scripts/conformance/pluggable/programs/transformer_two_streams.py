"""A transformer whose batches are copied on a second stream.

FAKE_HOLD_EVENTS=1
FAKE_TOTAL_BYTES=2G
"""

import torch
from harness import record_history, report
from torch import nn

record_history()
side = torch.cuda.Stream()
model = nn.TransformerEncoder(
    nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 4, enable_nested_tensor=False
).cuda()
optimizer = torch.optim.AdamW(model.parameters())
torch.backends.cuda.enable_cudnn_sdp(False)
for step in range(6):
    with torch.cuda.stream(side):
        batch = torch.zeros(8, 128 + 32 * (step % 3), 512).to("cuda", non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    batch.record_stream(torch.cuda.current_stream())
    model(batch).sum().backward()
    del batch
    optimizer.step()
    optimizer.zero_grad()
report()
