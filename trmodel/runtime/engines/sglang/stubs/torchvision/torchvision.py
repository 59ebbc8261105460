"""Stands in for torchvision: SGLang and transformers import it for pictures."""

from trmodel.runtime.engines.sglang.stand_in import stand_in

__version__ = "0.0.0"

stand_in(__name__, {})
