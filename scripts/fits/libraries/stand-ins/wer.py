"""The metric that the script of Whisper gets from the hub: the share of words that differ."""

import datasets
import evaluate


class Errors(evaluate.Metric):
    def _info(self):
        text = datasets.Value("string")
        features = datasets.Features({"predictions": text, "references": text})
        return evaluate.MetricInfo(description=__doc__, citation="", features=features)

    def _compute(self, predictions, references):
        pairs = [(one.split(), other.split()) for one, other in zip(predictions, references)]
        wrong = sum(a != b for one, other in pairs for a, b in zip(one, other))
        return wrong / max(1, sum(len(other) for _, other in pairs))
