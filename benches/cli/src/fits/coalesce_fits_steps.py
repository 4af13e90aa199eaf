"""The steps and epochs of a PyTorch program that `coalesce fits` runs."""

import importlib
import os
import weakref

# Epochs that end early at most.
MOST_EPOCHS = int(os.environ["COALESCE_FITS_EPOCHS"])


def no_iterator():
    """Stands for a weak reference to nothing."""


class Steps:
    """The steps of the first optimizer, compared by what they requested."""

    def __init__(self, torch):
        self.torch = torch
        self.optimizer = None
        self.number = 0
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
        step = (
            *(now - before for now, before in zip(totals, self.totals)),
            stats["allocated_bytes.all.current"],
        )
        self.equal = self.equal + 1 if step == self.last else 1
        self.number, self.last, self.totals = self.number + 1, step, totals

    def begin_anew(self):
        """Compares further steps only with each other."""
        self.equal, self.last = 0, None


class Epochs:
    """Ends epochs early.

    The iterator of the DataLoader that gives the batches says that there are no more."""

    def __init__(self, steps):
        self.steps = steps
        # Epochs that were to end early, and those that did: some programs request no further batch.
        self.tried = self.ended = 0
        # The peak of reserved bytes when the last epoch was to end.
        self.reserved = 0
        # The iterators that gave the last batch and that are done. Weak references, because an
        # iterator that is deleted ends its workers.
        self.last = self.done = no_iterator

    def begin(self):
        base = importlib.import_module("torch.utils.data.dataloader")._BaseDataLoaderIter
        give = base.__next__

        def give_unless_done(iterator):
            if iterator is self.done():
                if iterator._num_yielded > 0:
                    self.ended = self.tried
                    self.steps.begin_anew()
                    raise StopIteration
                # It begins the next epoch, because its workers persist.
                self.done = no_iterator
            batch = give(iterator)
            self.last = weakref.ref(iterator)
            return batch

        base.__next__ = give_unless_done

    def end(self, reserved):
        """Ends the epoch at its next batch, unless further epochs show nothing new.

        `reserved` is the peak of reserved bytes."""
        grew, self.reserved = reserved > self.reserved, reserved
        if self.last() is None or not grew or self.tried == MOST_EPOCHS:
            return False
        self.done = self.last
        self.tried += 1
        self.steps.begin_anew()
        return True
