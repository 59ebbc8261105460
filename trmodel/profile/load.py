"""Load a profile from a file or by the name of a built-in one."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from trmodel.documents import (
    StrPath,
    document_names,
    find_document,
    load_document,
)
from trmodel.profile.schema import PROFILE_SCHEMA, PROFILE_VERSION, Profile
from trmodel.profile.smooth import smoothed_model

BUILTIN = Path(__file__).parent / "builtin"


@dataclass(frozen=True)
class LoadedProfile:
    """A profile and where it came from.

    Parameters
    ----------
    profile
        The validated document, with small dips of its tables smoothed; the provenance of a table
        says so.
    origin
        "built-in NAME", the path as given, or "profile NAME" if it was made in Python.
    sha256
        Of the bytes of the file, hexadecimal: it identifies the profile in results.
    smoothed
        What was smoothed when it was loaded, in lines by the name of the model.
    """

    profile: Profile
    origin: str
    sha256: str
    smoothed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def profile_names() -> list[str]:
    """Return the names of the built-in profiles, sorted."""
    return document_names(BUILTIN)


def load_profile(source: StrPath | Profile | LoadedProfile) -> LoadedProfile:
    """Load a profile.

    Parameters
    ----------
    source
        The path of a JSON file, or the name of a built-in profile with or without ``.json``; a
        file that exists wins. The hash of a :class:`Profile` made in Python is that of its JSON
        text. In both, dips of under 5 % are smoothed (:mod:`trmodel.profile.smooth`).

    Raises
    ------
    InputError
        If there is no such file or built-in profile, or with every problem of the file.
    """
    if isinstance(source, LoadedProfile):
        return source
    if isinstance(source, Profile):
        text = source.model_dump_json(by_alias=True)
        digest = hashlib.sha256(text.encode("utf-8")).hexdigest()
        return _loaded(source, f"profile {source.name}", digest)
    path, origin = find_document(source, BUILTIN, "profile")
    profile, sha256 = load_document(Profile, path, PROFILE_SCHEMA, PROFILE_VERSION)
    return _loaded(profile, origin, sha256)


def _loaded(profile: Profile, origin: str, sha256: str) -> LoadedProfile:
    models, told = [], {}
    for model in profile.models:
        smooth, notes = smoothed_model(model)
        models.append(smooth)
        if notes:
            told[model.name] = notes
    if told:
        profile = profile.model_copy(update={"models": tuple(models)})
    return LoadedProfile(profile, origin, sha256, told)
