"""Records training programs whose tensors are known: record.py PROGRAM OUT python|all

Writes OUT.pickle, a memory snapshot, and OUT.json: at some moments, the number of entries so far and the addresses of the
parameters, gradients, optimizer state and inputs. README.md says what became of them."""
import json
import pickle
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

NAME, OUT, STACKS = sys.argv[1:4]
DEV, WIDTH, LAYERS, WORDS = "cuda", 256, 6, 5000


class Mlp(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.a, self.b, self.n = nn.Linear(h, 4 * h), nn.Linear(4 * h, h), nn.LayerNorm(h)

    def forward(self, x):
        return x + self.b(F.gelu(self.a(self.n(x))))


class Net(nn.Module):
    def __init__(self, checkpointed=False):
        super().__init__()
        self.e, self.o = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.l = nn.ModuleList(Mlp(WIDTH) for _ in range(LAYERS))
        self.scale = nn.Parameter(torch.ones(WIDTH, device=DEV))
        self.checkpointed = checkpointed

    def forward(self, i):
        x = self.e(i) * self.scale
        for layer in self.l:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return self.o(x)


class OwnOptimizer(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, dict(lr=0.1))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
                state["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                p.sub_(state["m"] / (state["v"].sqrt() + 1e-8))


truth = []


def note(when, model, opt, inputs):
    kinds = {
        "parameters": list(model.parameters()) + list(model.buffers()),
        "gradients": [p.grad for p in model.parameters()],
        "optimizer_state": [v for s in opt.state.values() for v in s.values() if torch.is_tensor(v)],
        "inputs": inputs,
    }
    on_device = lambda tensors: [t for t in tensors if t is not None and t.is_cuda]
    truth.append({
        "when": when,
        "entries": len(torch.cuda.memory._snapshot()["device_traces"][0]),
        "tensors": {k: [t.untyped_storage().data_ptr() for t in on_device(v)] for k, v in kinds.items()},
    })


def train(model, opt, steps=3, amp=False, zero=True, accumulated=1, batch=16, length=256, stop=False):
    for step in range(steps):
        for _ in range(accumulated):
            i = torch.zeros(batch, length, dtype=torch.long).to(DEV)
            y = torch.zeros(batch * length, dtype=torch.long).to(DEV)
            with torch.autocast("cuda", torch.bfloat16, enabled=amp):
                logits = model(i)
                note("forward", model, opt, [i, y])
                loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), y)
            del logits
            if stop and step == steps - 1:
                return
            first = next(model.parameters())
            hook = first.register_hook(lambda gradient: note("backward", model, opt, [i, y]))
            loss.backward()
            hook.remove()
        note("before step", model, opt, [i, y])
        opt.step()
        note("after step", model, opt, [i, y])
        opt.zero_grad(set_to_none=zero)


def record():
    torch.cuda.memory._record_memory_history(stacks=STACKS)


adamw = lambda model: torch.optim.AdamW(model.parameters())
if not NAME.startswith("late"):
    record()
model = Net(NAME == "ckpt").to(DEV)
match NAME:
    case "adamw" | "ckpt":
        train(model, adamw(model))
    case "amp":
        train(model, torch.optim.AdamW(model.parameters(), foreach=False), amp=True)
    case "sgd":
        train(model, torch.optim.SGD(model.parameters(), 0.1, momentum=0.9), zero=False)
    case "plainsgd":
        train(model, torch.optim.SGD(model.parameters(), 0.1))
    case "accum":
        train(model, adamw(model), accumulated=3)
    case "own":
        train(model, OwnOptimizer(model.parameters()))
    case "oom":
        train(model, adamw(model), steps=2, stop=True)
    case "oomfirst":
        train(model, adamw(model), steps=1, stop=True)
    case "late":
        opt = adamw(model)
        record()
        train(model, opt)
    case "late2":
        opt = adamw(model)
        train(model, opt, steps=1)
        truth.clear()
        record()
        train(model, opt)
pickle.dump(torch.cuda.memory._snapshot(), open(OUT + ".pickle", "wb"))
json.dump(truth, open(OUT + ".json", "w"))
