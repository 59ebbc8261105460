"""Profiles: what a step of each model costs on one machine, and where the numbers come from."""

from trmodel.profile.build import build_system
from trmodel.profile.capacity import Capacity, CapacityCheck, GpuBudget, check_capacity
from trmodel.profile.context import Context, context_range, recorded_context
from trmodel.profile.fit_record import FitRecord, FittedParameter
from trmodel.profile.handoff import HandedOver, handed_over, handoff_latency
from trmodel.profile.interpolate import (
    StepLatency,
    decode_latency,
    extend_latency,
    step_latency,
)
from trmodel.profile.load import LoadedProfile, load_profile, profile_names
from trmodel.profile.plausible import plausibility_warnings
from trmodel.profile.schema import (
    DecodeTable,
    ExtendTable,
    Handoff,
    HandoffPair,
    Hardware,
    Memory,
    Method,
    ModelProfile,
    Overhead,
    Profile,
    Provenance,
    SlowDown,
    Wake,
    profile_schema,
)
from trmodel.profile.smooth import smoothed
from trmodel.profile.steps import model_steps
from trmodel.profile.unknown import unknown_costs

__all__ = [
    "Capacity",
    "CapacityCheck",
    "Context",
    "DecodeTable",
    "ExtendTable",
    "FitRecord",
    "FittedParameter",
    "GpuBudget",
    "HandedOver",
    "Handoff",
    "HandoffPair",
    "Hardware",
    "LoadedProfile",
    "Memory",
    "Method",
    "ModelProfile",
    "Overhead",
    "Profile",
    "Provenance",
    "SlowDown",
    "StepLatency",
    "Wake",
    "build_system",
    "check_capacity",
    "context_range",
    "decode_latency",
    "extend_latency",
    "handed_over",
    "handoff_latency",
    "load_profile",
    "model_steps",
    "plausibility_warnings",
    "profile_names",
    "profile_schema",
    "recorded_context",
    "smoothed",
    "step_latency",
    "unknown_costs",
]
