"""The start of a vLLM server, from its configuration alone.

Each process of the server adds what it knows to server.jsonl: the memory of its GPU at the end of each
phase, what vLLM itself found, and why the server did not start. When it is ready, the program ends."""

import contextlib
import functools
import gc
import importlib
import json
import multiprocessing
import os
import sys
import traceback
from pathlib import Path

import coalesce_fits_imports

FOLDER = Path(os.environ["COALESCE_FITS_FOLDER"])

# GPUs of the machine: vLLM uses as many as its arguments say.
GPUS = "8"
# No usage statistics, no hub: a model is a folder, or in the hub's cache.
OFFLINE = {"VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1"}
# How vLLM starts processes. Those that it spawns, its default, would each import everything once more.
START = "VLLM_WORKER_MULTIPROC_METHOD", "fork"

# The phases, and the functions of vLLM's worker that are them, in the order in which they run.
PHASES = {
    "context": "init_device",
    "weights": "load_model",
    "profile": "determine_available_memory",
    "kv_cache": "initialize_from_config",
    "warm_up": "compile_or_warm_up_model",
}
# What vLLM found, and where its worker, or what runs the model, has it. Bytes and tokens.
FOUND = {
    "requested_bytes": "requested_memory",
    "batched_tokens": "vllm_config.scheduler_config.max_num_batched_tokens",
    "weights_bytes": "model_runner.model_memory_usage",
    "activation_bytes": "peak_activation_memory",
    "other_bytes": "non_torch_memory",
    "graph_estimate_bytes": "cudagraph_memory_estimate",
    "available_bytes": "available_kv_cache_memory_bytes",
}
# Functions that raise ValueError if the GPU has too little memory for the server.
SHORT = {"request_memory", "_check_enough_kv_cache_memory", "check_enough_kv_cache_memory"}


def hooks(current):
    """The hooks into vLLM. `current` gives what watches this process."""
    server = Server(current)
    return [
        coalesce_fits_imports.After("vllm", server.began, begin),
        coalesce_fits_imports.After("vllm.engine.arg_utils", configure),
        coalesce_fits_imports.After("vllm.model_executor.models.registry", inspect_here),
        coalesce_fits_imports.After("vllm.v1.worker.gpu_worker", server.follow_worker),
        coalesce_fits_imports.After("vllm.v1.engine.core", server.follow_engine),
        coalesce_fits_imports.After("vllm.v1.engine.llm_engine", lambda module: end_after(module.LLMEngine)),
        coalesce_fits_imports.After("vllm.v1.engine.async_llm", lambda module: end_after(module.AsyncLLM)),
        coalesce_fits_imports.After("flashinfer.jit.core", compile_nothing),
        coalesce_fits_imports.After("flashinfer.comm.cuda_ipc", take_simulated),
        coalesce_fits_imports.After("vllm.model_executor.layers.quantization.auto_gptq", quantize_layers),
    ]


def begin(folder):
    """Before vLLM is imported."""
    os.environ.setdefault("FAKE_DEVICE_COUNT", GPUS)
    os.environ.setdefault(*START)
    os.environ.update(OFFLINE)


def configure(module):
    """Lets vLLM make up the weights, and do without a tokenizer: neither changes what it needs."""
    arguments = module.EngineArgs
    look_up, create = arguments.__post_init__, arguments.create_engine_config

    @functools.wraps(look_up)
    def looked_up(self):
        if not has_config(self.model):
            report("no_model", model=str(self.model))
            end(1)
        look_up(self)

    @functools.wraps(create)
    def created(self, *args, **kwargs):
        self.load_format = "dummy"
        self.skip_tokenizer_init = True
        return create(self, *args, **kwargs)

    arguments.__post_init__, arguments.create_engine_config = looked_up, created


def inspect_here(module):
    """vLLM looks at the class of a model in another process, which would import everything for that alone."""
    module._run_in_subprocess = lambda inspect: inspect()


def has_config(model):
    if Path(model).is_dir():
        return Path(model, "config.json").is_file()
    hub = importlib.import_module("huggingface_hub")
    with contextlib.suppress(ValueError):
        return isinstance(hub.try_to_load_from_cache(model, "config.json"), str)
    return False


def quantize_layers(module):
    """vLLM reads from the weights which layers of a GPTQ model are quantized. Without weights it would quantize none: all
    are, but for those that the configuration excludes."""
    update = module.AutoGPTQConfig.maybe_update_config

    @functools.wraps(update)
    def updated(self, *args, **kwargs):
        update(self, *args, **kwargs)
        if not self.modules_in_block_to_quantize:
            # Parts of names: each name contains this one.
            self.modules_in_block_to_quantize = [""]

    module.AutoGPTQConfig.maybe_update_config = updated


class NoKernels:
    """A library of compiled kernels, each of which does nothing."""

    def __getattr__(self, name):
        return lambda *args: None


def compile_nothing(module):
    """FlashInfer compiles with nvcc. What it allocates for its kernels, it allocates in Python."""
    module.JitSpec.build_and_load = lambda spec: NoKernels()


def take_simulated(module):
    """FlashInfer looks for a CUDA runtime in this process. Torchvision brings one of its own, which does not run on the
    simulated driver."""
    cuda = importlib.import_module("torch").version.cuda
    module.cudart = module.CudaRTLibrary(f"libcudart.so.{cuda.partition('.')[0]}")


class Server:
    """What this process knows of the server."""

    def __init__(self, current):
        self.current = current

    def began(self, module):
        """Values decide nothing in a server that starts. What follows them would fix the sizes of the batches for which
        vLLM compiles."""
        watch = self.current()
        if watch is not None:
            watch.values.__exit__(None, None, None)

    def follow_worker(self, module):
        for phase, name in PHASES.items():
            self._follow(module.Worker, name, functools.partial(self._phase, phase))

    def follow_engine(self, module):
        self._follow(module.EngineCore, "_initialize_kv_caches", self._capacity)
        self._follow(module.EngineCore, "__init__", self._ready)
        plan = getattr(module, "get_kv_cache_configs", None)
        if plan is None:
            # Only the shortage of the KV cache remains unknown.
            return

        @functools.wraps(plan)
        def planned(*args):
            try:
                return plan(*args)
            except ValueError:
                with contextlib.suppress(Exception):
                    note_shortage(*args)
                raise

        module.get_kv_cache_configs = planned

    def _follow(self, owner, name, within):
        """Runs a function of vLLM within a context, and reports what it raises."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def followed(self_, *args, **kwargs):
            try:
                with within(self_) as done:
                    result = function(self_, *args, **kwargs)
                    done(result)
            except Exception as error:
                # Once: it passes through several of these functions.
                if not hasattr(error, "_coalesce_fits"):
                    error._coalesce_fits = True
                    is_memory = lacks_memory(self.current().torch, error)
                    report("failed", error=str(error), during=name, is_memory=is_memory)
                self._finish()
                raise
            return result

        setattr(owner, name, followed)

    @contextlib.contextmanager
    def _phase(self, phase, worker):
        watch = self.current()
        if phase == "context":
            # vLLM collects garbage in each phase. Nothing on the GPU is older than this.
            gc.freeze()
        with watch.peaks.apart() as peak:
            yield lambda result: report("phase", phase=phase, **memory(watch.torch, peak), **found(worker))
        if phase == "weights":
            follow_capture(worker.model_runner)
        if phase == "warm_up":
            self._finish()

    @contextlib.contextmanager
    def _capacity(self, core):
        yield lambda config: note_capacity(core.vllm_config, config)

    @contextlib.contextmanager
    def _ready(self, core):
        yield lambda result: report("ready")

    def _finish(self):
        watch = self.current()
        if watch.process == os.getpid():
            watch.finish()


def memory(torch, peak):
    """The memory of the GPU that is in use, and the peak of a phase in which PyTorch reserved peak() bytes."""
    free, total = torch.cuda.mem_get_info()
    others = total - free - torch.cuda.memory_reserved()
    return {"used_bytes": total - free, "peak_bytes": others + peak()}


def found(worker):
    """What vLLM found so far."""
    values = {"rank": worker.rank}
    for name, path in FOUND.items():
        with contextlib.suppress(AttributeError):
            values[name] = int(functools.reduce(getattr, path.split("."), worker))
    return values


def follow_capture(runner):
    """Reports what CUDA graphs took."""
    capture = runner.capture_model

    def captured():
        taken = capture()
        report("graphs", bytes=int(taken or 0))
        return taken

    runner.capture_model = captured


def lacks_memory(torch, error):
    """Whether a server does not start because memory is short. vLLM raises an error of its own from PyTorch's."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    frames = traceback.extract_tb(error.__traceback__)
    if frames and frames[-1].name in SHORT:
        return True
    cause = error.__cause__ or error.__context__
    return cause is not None and lacks_memory(torch, cause)


def note_capacity(vllm_config, kv_cache_config):
    """How many tokens the KV cache holds."""
    module = importlib.import_module("vllm.v1.core.kv_cache_utils")
    context = vllm_config.model_config.max_model_len
    requests = module.get_max_concurrency_for_kv_cache_config(vllm_config, kv_cache_config)
    report("capacity", tokens=int(requests * context), requests=requests, context=context)


def note_shortage(vllm_config, specs, available):
    """How much memory one request lacks, and how long it could be."""
    module = importlib.import_module("vllm.v1.core.kv_cache_utils")
    layers, memory = specs[0], min(available)
    report(
        "shortage",
        context=vllm_config.model_config.max_model_len,
        needed_bytes=module.max_memory_usage_bytes(vllm_config, layers.values()),
        longest=module.estimate_max_model_len(vllm_config, layers, memory) if memory > 0 else 0,
    )


def report(line, **known):
    # One write, so that lines of several processes do not mix.
    with (FOLDER / "server.jsonl").open("a") as file:
        file.write(json.dumps({"line": line, **known}) + "\n")


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
