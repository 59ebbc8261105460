"""Profiles: what a step of each model costs on one machine, and where the numbers come from."""

from trmodel.profile.build import build_system
from trmodel.profile.interpolate import decode_latency
from trmodel.profile.load import LoadedProfile, load_profile, profile_names
from trmodel.profile.schema import (
    DecodeTable,
    Hardware,
    Method,
    ModelProfile,
    Overhead,
    Profile,
    Provenance,
    SlowDown,
    profile_schema,
)

__all__ = [
    "DecodeTable",
    "Hardware",
    "LoadedProfile",
    "Method",
    "ModelProfile",
    "Overhead",
    "Profile",
    "Provenance",
    "SlowDown",
    "build_system",
    "decode_latency",
    "load_profile",
    "profile_names",
    "profile_schema",
]
