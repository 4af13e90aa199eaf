"""CUDA graphs and pools of memory."""

import random

import torch
from torch import nn

from . import program
from .parts import DEVICE, Gpt, gpt, lengths, steps, tokens


def warm_up(step):
    """Runs a step on a stream of its own, as capture demands."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(stream)


def captured(step, pool=None):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = step()
    return graph, result


@program()
def graph_step():
    """A whole training step captured by hand, forward to optimizer, replayed"""
    model = gpt(layers=6)
    optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
    batch = tokens(8, 512)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss(batch)
        loss.backward()
        optimizer.step()
        return loss

    warm_up(step)
    graph, loss = captured(step)
    for _ in range(20):
        batch.copy_(tokens(8, 512))
        graph.replay()
        float(loss)


@program()
def graphs_one_pool():
    """Graphs for eight lengths in one pool, the longest first, then eager evaluation in between"""
    model = gpt(layers=6)
    pool, graphs = torch.cuda.graph_pool_handle(), {}
    for length in range(1024, 0, -128):
        batch = tokens(8, length)
        with torch.no_grad():
            warm_up(lambda: model(batch))
            graphs[length] = (batch, *captured(lambda: model(batch).argmax(-1), pool))
    for length in lengths(40, 128, 1024, 128):
        batch, graph, result = graphs[length]
        batch.copy_(tokens(8, length))
        graph.replay()
        if length % 256 == 0:
            with torch.no_grad():
                model(tokens(4, length)).float().softmax(-1).sum()


@program()
def graphs_deleted():
    """Graphs in pools of their own, deleted in another order than captured, with empty_cache"""
    model = gpt(layers=4)
    graphs = []
    for round in range(12):
        batch = tokens(random.choice((2, 4, 8)), random.choice((256, 512, 768)))
        with torch.no_grad():
            warm_up(lambda: model(batch))
            graphs.append((batch, *captured(lambda: model(batch).float().softmax(-1))))
        for _, graph, _ in graphs:
            graph.replay()
        if len(graphs) > 3:
            graph, result = graphs.pop(random.randrange(len(graphs)))[1:]
            graph.reset()
            del graph, result
        if round % 4 == 3:
            torch.cuda.empty_cache()


@program()
def graphed_layers():
    """make_graphed_callables on each layer, training goes on eagerly around them"""
    model = gpt(layers=4)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(8, 512, 1024, device=DEVICE, dtype=torch.bfloat16, requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(tuple(model.layers), ((x,),) * 4)
    for _ in range(15):
        y = model.embedding(tokens(8, 512))
        for layer in graphed:
            y = layer(y)
        model.head(y).float().logsumexp(-1).sum().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@program()
def decode_graphs():
    """Serving: a paged cache, a graph for each batch size in one pool, prefill without graphs"""
    width, layers, block = 2048, 8, 16
    model = Gpt(layers=layers, width=width).to(DEVICE, torch.bfloat16).eval()
    cache = [
        torch.zeros(2, 4096, block, width, device=DEVICE, dtype=torch.bfloat16)
        for _ in range(layers)
    ]
    pool, graphs = torch.cuda.graph_pool_handle(), {}
    with torch.no_grad():
        for size in (256, 128, 64, 32, 16, 8, 4, 2, 1):
            batch = tokens(size, 1)
            place = torch.zeros(size, dtype=torch.long, device=DEVICE)

            def step():
                x = model.embedding(batch)
                for layer, pages in zip(model.layers, cache):
                    pages[0].index_copy_(0, place, x.expand(-1, block, -1).contiguous())
                    seen = pages[0][place] + pages[1][place]
                    x = layer(x + seen.mean(1, keepdim=True))
                return model.head(x).float().argmax(-1)

            warm_up(step)
            # A graph reads its inputs from where they were.
            graphs[size] = (batch, place, *captured(step, pool))
        waiting = 0
        for length in lengths(40, 16, 2048, 16):
            model(tokens(1, length)).argmax(-1)
            waiting = min(waiting + random.randrange(24), 256)
            size = next(size for size in sorted(graphs) if size >= max(waiting, 1))
            for _ in range(8):
                batch, _, graph, result = graphs[size]
                graph.replay()
                # Before a replay it holds what the other graphs of the pool left there.
                batch.copy_(result)
            waiting = max(waiting - random.randrange(32), 0)


@program()
def sleep_and_wake():
    """Reinforcement learning: weights and cache for generation in pools that are released while the
    model trains"""
    model = gpt(layers=6)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(steps(6)):
        weights_pool, cache_pool = torch.cuda.MemPool(), torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(weights_pool):
            weights = [parameter.detach().clone() for parameter in model.parameters()]
        with torch.cuda.use_mem_pool(cache_pool):
            cache = [torch.empty(64 << 20, device=DEVICE) for _ in range(6)]
        with torch.no_grad():
            for length in lengths(4, 256, 1024):
                model(tokens(8, length)).float().softmax(-1).sum()
        del weights, cache, weights_pool, cache_pool
        torch.cuda.empty_cache()
        for length in lengths(3, 256, 1024):
            model.loss(tokens(8, length)).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


@program()
def compiled_training():
    """torch.compile(mode="reduce-overhead"): forward and backward as graphs, two shapes"""
    try:
        import triton  # noqa: F401

        how = {"mode": "reduce-overhead"}
    except ImportError:
        how = {"backend": "cudagraphs"}
    model = nn.Sequential(*(nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(8)))
    model.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
    compiled = torch.compile(model, dynamic=False, **how)
    for step in range(steps(16)):
        torch.compiler.cudagraph_mark_step_begin()
        compiled(torch.randn(4096 >> step % 2, 2048, device=DEVICE)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
