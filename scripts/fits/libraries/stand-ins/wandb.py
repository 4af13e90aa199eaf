"""What the script of the U-Net calls of Weights & Biases, which logs to a server. Logs nothing."""


class Image:
    def __init__(self, value):
        pass


Histogram = Image


class Run:
    def __init__(self):
        self.config = {}

    def log(self, values):
        pass


def init(**options):
    return Run()
