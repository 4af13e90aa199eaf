"""The start of a vLLM server, from its configuration alone.

Each process of the server adds what it knows to server.jsonl: the memory of its GPU at the end of each
phase, what vLLM itself found, and why the server did not start. When it is ready, the program ends."""

import contextlib
import functools
import importlib
import json
import multiprocessing
import os
import sys
from pathlib import Path

import coalesce_fits_imports

FOLDER = Path(os.environ["COALESCE_FITS_FOLDER"])

# GPUs of the machine: vLLM uses as many as its arguments say.
GPUS = "8"
# No usage statistics, no hub: a model is a folder, or in the hub's cache.
OFFLINE = {"VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}

# The phases, and the functions of vLLM's worker that are them, in the order in which they run.
PHASES = {
    "context": "init_device",
    "weights": "load_model",
    "profile": "determine_available_memory",
    "kv_cache": "initialize_from_config",
    "warm_up": "compile_or_warm_up_model",
}
# What vLLM found, and where its worker, or what runs the model, has it. Bytes.
FOUND = {
    "requested_bytes": "requested_memory",
    "weights_bytes": "model_runner.model_memory_usage",
    "activation_bytes": "peak_activation_memory",
    "other_bytes": "non_torch_memory",
    "graph_estimate_bytes": "cudagraph_memory_estimate",
    "available_bytes": "available_kv_cache_memory_bytes",
}


def hooks(current):
    """The hooks into vLLM. `current` gives what watches this process."""
    server = Server(current)
    return [
        coalesce_fits_imports.After("vllm", lambda module: None, begin),
        coalesce_fits_imports.After("vllm.engine.arg_utils", configure),
        coalesce_fits_imports.After("vllm.v1.worker.gpu_worker", server.follow_worker),
        coalesce_fits_imports.After("vllm.v1.engine.core", server.follow_engine),
        coalesce_fits_imports.After("vllm.v1.engine.llm_engine", lambda module: end_after(module.LLMEngine)),
        coalesce_fits_imports.After("vllm.v1.engine.async_llm", lambda module: end_after(module.AsyncLLM)),
        coalesce_fits_imports.After("flashinfer.jit.core", compile_nothing),
    ]


def begin(folder):
    """Before vLLM is imported."""
    os.environ.setdefault("FAKE_DEVICE_COUNT", GPUS)
    os.environ.update(OFFLINE)


def configure(module):
    """Lets vLLM make up the weights, and do without a tokenizer: neither changes what it needs."""
    create = module.EngineArgs.create_engine_config

    @functools.wraps(create)
    def created(args, *others, **named):
        if not has_config(args.model):
            report(
                error=f"{args.model} is neither a folder with config.json nor in the cache of the Hugging Face hub, and nothing "
                "is downloaded here. Name a folder with the model's config.json: its weights are not needed",
                kind="NoModel",
            )
            end(1)
        args.load_format = "dummy"
        args.skip_tokenizer_init = True
        return create(args, *others, **named)

    module.EngineArgs.create_engine_config = created


def has_config(model):
    if Path(model).is_dir():
        return Path(model, "config.json").is_file()
    hub = importlib.import_module("huggingface_hub")
    with contextlib.suppress(ValueError):
        return isinstance(hub.try_to_load_from_cache(model, "config.json"), str)
    return False


class NoKernels:
    """A library of compiled kernels, each of which does nothing."""

    def __getattr__(self, name):
        return lambda *args: None


def compile_nothing(module):
    """FlashInfer compiles with nvcc. What it allocates for its kernels, it allocates in Python."""
    module.JitSpec.build_and_load = lambda spec: NoKernels()


class Server:
    """What this process knows of the server."""

    def __init__(self, current):
        self.current = current

    def follow_worker(self, module):
        for phase, name in PHASES.items():
            self._follow(module.Worker, name, functools.partial(self._note, phase))

    def follow_engine(self, module):
        core = module.EngineCore
        self._follow(core, "_initialize_kv_caches", note_capacity)
        self._follow(core, "__init__", lambda core, result: report(ready=True))

    def _follow(self, owner, name, note):
        """Calls `note` after a function, and reports what it raises."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def followed(self_, *args, **kwargs):
            try:
                result = function(self_, *args, **kwargs)
                note(self_, result)
            except Exception as error:
                # Once: it passes through several of these functions.
                if not hasattr(error, "_coalesce_fits"):
                    error._coalesce_fits = True
                    report(error=str(error), kind=type(error).__name__, during=name)
                self._finish()
                raise
            return result

        setattr(owner, name, followed)

    def _note(self, phase, worker, result):
        torch = self.current().torch
        free, total = torch.cuda.mem_get_info()
        stats = torch.cuda.memory_stats()
        report(
            phase=phase,
            rank=worker.rank,
            total_bytes=total,
            used_bytes=total - free,
            reserved_bytes=stats["reserved_bytes.all.current"],
            allocated_bytes=stats["allocated_bytes.all.current"],
            found={name: int(value) for name, value in found(worker)},
        )
        if phase == "warm_up":
            self._finish()

    def _finish(self):
        watch = self.current()
        if watch is not None and watch.process == os.getpid():
            watch.finish()


def found(worker):
    for name, path in FOUND.items():
        with contextlib.suppress(AttributeError):
            yield name, functools.reduce(getattr, path.split("."), worker)


def note_capacity(core, config):
    """How many tokens the KV cache holds."""
    module = importlib.import_module("vllm.v1.core.kv_cache_utils")
    vllm_config = core.vllm_config
    length = vllm_config.model_config.max_model_len
    concurrency = module.get_max_concurrency_for_kv_cache_config(vllm_config, config)
    report(tokens=int(concurrency * length), concurrency=concurrency, context=length)


def report(**known):
    # One write, so that lines of several processes do not mix.
    with (FOLDER / "server.jsonl").open("a") as file:
        file.write(json.dumps(known) + "\n")


def end_after(engine):
    """Ends the program when this engine is ready."""
    start = engine.__init__

    @functools.wraps(start)
    def started(self, *args, **kwargs):
        start(self, *args, **kwargs)
        end(0)

    engine.__init__ = started


def end(status):
    """Ends this process and those that it started, at once."""
    for process in multiprocessing.active_children():
        process.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
