"""Profiles from what others measured: NVIDIA's aiconfigurator, a plain table, a live SGLang."""

from trmodel.profile.importers.aiconfigurator import import_aiconfigurator, parse_model
from trmodel.profile.importers.document import profile_text
from trmodel.profile.importers.sglang_metrics import import_sglang_metrics
from trmodel.profile.importers.table import import_csv

__all__ = [
    "import_aiconfigurator",
    "import_csv",
    "import_sglang_metrics",
    "parse_model",
    "profile_text",
]
