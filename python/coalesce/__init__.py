"""Why PyTorch ran out of GPU memory, and which settings help.

    import coalesce

    coalesce.record()  # before the first tensor on a GPU; leaves a snapshot when memory runs out
    print(coalesce.advise("snapshot-rank0.pickle").text)
    print(coalesce.diff("before.pickle", "after.pickle").text)
    print(coalesce.explain(error).text)  # an out-of-memory error, or the end of a log
    print(coalesce.fits("train.py", device="rtx4090").text)  # without a GPU

`coalesce.transformers.OomReport` and `coalesce.lightning.OomReport` are callbacks that record and,
if a training dies of an out-of-memory error, write the report.

Reading files needs nothing but this package. Only record() and the callbacks import PyTorch.
"""

from ._advice import Advice, JobAdvice, RankNeeds, advise
from ._difference import Difference, diff
from ._explain import Explanation, explain
from ._fits import Fits, fits
from ._program import CoalesceError
from ._record import Recording, record

__all__ = [
    "Advice",
    "CoalesceError",
    "Difference",
    "Explanation",
    "Fits",
    "JobAdvice",
    "RankNeeds",
    "Recording",
    "advise",
    "diff",
    "explain",
    "fits",
    "record",
]


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("coalesce-gpu")
    raise AttributeError(f"module 'coalesce' has no attribute {name!r}")
