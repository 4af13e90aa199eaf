"""The steps and epochs of a PyTorch program that `coalesce fits` runs."""

import importlib
import os
import time
import weakref
from collections.abc import Mapping

# Epochs that end early at most.
MOST_EPOCHS = int(os.environ["COALESCE_FITS_EPOCHS"])
# Seconds in which the remaining batches of an epoch are looked at.
LOOK_SECONDS = 5


def no_iterator():
    """Stands for a weak reference to nothing."""


class Steps:
    """The steps of the first optimizer, compared by what they requested."""

    def __init__(self, torch):
        self.torch = torch
        self.optimizer = None
        self.number = 0
        # The peak of reserved bytes, and the step that reached it.
        self.reserved = self.grown = 0
        # Successive equal steps, the last included.
        self.equal = 0
        self.last = None
        self.totals = (0, 0)

    def of(self, optimizer):
        if self.optimizer is None:
            self.optimizer = optimizer
        return optimizer is self.optimizer

    def end(self):
        """Notes a step: its mallocs, their bytes, and the bytes held at its end."""
        stats = self.torch.cuda.memory_stats()
        totals = (stats["allocation.all.allocated"], stats["allocated_bytes.all.allocated"])
        reserved = stats["reserved_bytes.all.peak"]
        step = (
            *(now - before for now, before in zip(totals, self.totals)),
            stats["allocated_bytes.all.current"],
        )
        self.equal = self.equal + 1 if step == self.last else 1
        self.number, self.last, self.totals = self.number + 1, step, totals
        if reserved > self.reserved:
            self.reserved, self.grown = reserved, self.number

    def without_growth(self):
        """The steps since the last one that reserved more than all before."""
        return self.number - self.grown

    def begin_anew(self):
        """Compares further steps only with each other."""
        self.equal, self.last = 0, None


class Epochs:
    """Ends epochs early.

    The iterator of the DataLoader that gives the batches gives only those of the rest that are
    larger than all before, and then says that there are no more."""

    def __init__(self, steps):
        self.steps = steps
        # Epochs that were to end early, and those that did: some programs request no further batch.
        self.tried = self.ended = 0
        # The peak of reserved bytes when the last epoch was to end.
        self.reserved = 0
        # The iterators that gave the last batch and that are done. Weak references, because an
        # iterator that is deleted ends its workers.
        self.last = self.done = no_iterator
        # The elements of the largest tensor at each place of a batch, and of the largest batch.
        self.largest = {}
        # When to look no further.
        self.until = 0

    def begin(self):
        base = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter
        give = base.__next__

        def give_unless_done(iterator):
            if iterator is self.done():
                if iterator._num_yielded > 0:
                    self.ended = self.tried
                    self.steps.begin_anew()
                    return self.larger(give, iterator)
                # It begins the next epoch, because its workers persist.
                self.done = no_iterator
            batch = give(iterator)
            self.last = weakref.ref(iterator)
            self.is_larger(batch)
            return batch

        base.__next__ = give_unless_done

    def end(self, reserved):
        """Ends the epoch at its next batch, unless further epochs show nothing new.

        `reserved` is the peak of reserved bytes."""
        grew, self.reserved = reserved > self.reserved, reserved
        if self.last() is None or not grew or self.tried == MOST_EPOCHS:
            return False
        self.done = self.last
        self.until = time.monotonic() + LOOK_SECONDS
        self.tried += 1
        self.steps.begin_anew()
        return True

    def larger(self, give, iterator):
        """The next batch that is larger than all before; StopIteration if there is none."""
        while time.monotonic() < self.until:
            batch = give(iterator)
            if self.is_larger(batch):
                return batch
        raise StopIteration

    def is_larger(self, batch):
        """Notes a batch, and whether it or one of its tensors is larger than all before."""
        found = False
        parts = list(sizes(batch))
        for place, elements in enumerate([*parts, sum(parts)]):
            if elements > self.largest.get(place, -1):
                self.largest[place] = elements
                found = True
        return found


def sizes(batch):
    """The number of elements of each tensor in a batch."""
    if hasattr(batch, "numel"):
        yield batch.numel()
    elif isinstance(batch, Mapping):
        for part in batch.values():
            yield from sizes(part)
    elif isinstance(batch, (list, tuple)):
        for part in batch:
            yield from sizes(part)
    elif hasattr(batch, "to_dict"):
        yield from sizes(batch.to_dict())
