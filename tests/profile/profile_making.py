"""Profiles and tables for tests, with every required field filled in."""

from typing import Any

from trmodel.profile import DecodeTable, ExtendTable, LoadedProfile, Profile, load_profile

PROVENANCE = {"method": "assumed", "source": "test"}


def decode_table(batch, latency_ms, **fields: Any) -> DecodeTable:
    data = {"batch": batch, "latency_ms": latency_ms, "provenance": PROVENANCE, **fields}
    return DecodeTable.model_validate(data)


def extend_table(batch, new_tokens, latency_ms, **fields: Any) -> ExtendTable:
    data = {
        "batch": batch,
        "new_tokens": new_tokens,
        "latency_ms": latency_ms,
        "provenance": PROVENANCE,
        **fields,
    }
    return ExtendTable.model_validate(data)


def model(name: str, tensor_parallel: int = 1, **fields: Any) -> dict[str, Any]:
    constant = {"batch": [1, 1024], "latency_ms": [10.0, 10.0], "provenance": PROVENANCE}
    return {"name": name, "tensor_parallel": tensor_parallel, "decode": constant, **fields}


def routing(P, C=None, entry=None) -> dict[str, Any]:
    names = [f"m{i}" for i in range(len(P))]
    return {
        "name": "test",
        "models": names,
        "transition_probability": P,
        "committed_tokens": C or [[1.0] * len(P)] * len(P),
        "entry": entry or names[0],
        "source": "test",
    }


def profile(models: list[dict[str, Any]], hardware=None, **fields: Any) -> LoadedProfile:
    data = {
        "schema": "trmodel/profile",
        "schema_version": 1,
        "name": "test",
        "description": "for a test",
        "hardware": {"gpu": "none", "gpus": 4, **(hardware or {})},
        "obtained": "assumed",
        "models": models,
        **fields,
    }
    return load_profile(Profile.model_validate(data))
