"""Step latencies of a live SGLang server, from the metrics it gives of every forward pass.

``sglang serve --enable-forward-pass-metrics`` (0.5.23) publishes a ``ForwardPassMetrics`` for each
iteration: the GPU time of the forward pass (``wall_time``, in seconds, from the first start to the
last end on its stream), and how many requests and tokens it took in. A record with decode requests
alone times a decode step; one with prefill requests alone, an extend step. Records are first come,
first served: the earliest ones of each kind and batch are warm-up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ConfigDict, Field

from trmodel.documents import (
    Document,
    Number,
    StrPath,
    WholeNumber,
    parse_document,
    parse_json,
    read_text,
    shown,
)
from trmodel.errors import InputError, UsageError
from trmodel.profile.importers.document import finished
from trmodel.profile.importers.samples import Samples, decode_table, extend_table, spread_note
from trmodel.profile.schema import Profile

MAX_BYTES = 256 * 2**20
MAX_PROBLEMS = 100
NEEDED = "a record of SGLang's forward-pass metrics on each line"

Count = Annotated[WholeNumber, Field(ge=0)]


class Scheduled(Document):
    """Requests of one iteration; the fields of SGLang's ScheduledRequestMetrics that are used."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    num_prefill_requests: Count
    sum_prefill_tokens: Count
    sum_prefill_kv_tokens: Count
    num_decode_requests: Count
    sum_decode_kv_tokens: Count


class Record(Document):
    """One iteration; the fields of SGLang's ForwardPassMetrics that are used."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal[1] = 1
    worker_id: str = ""
    dp_rank: Count = 0
    counter_id: Count | None = None
    wall_time: Annotated[Number, Field(ge=0)]
    scheduled_requests: Scheduled


def import_sglang_metrics(
    path: StrPath,
    model: str,
    *,
    tensor_parallel: int = 1,
    worker: str | None = None,
    warm_up: int = 5,
    min_samples: int = 10,
    name: str = "imported",
    description: str | None = None,
    gpu: str = "unknown",
    sglang_version: str | None = None,
    routing: str | None = None,
) -> Profile:
    """Make a profile of one model from the forward-pass metrics of the SGLang server that ran it.

    Parameters
    ----------
    path
        JSON lines (or one JSON array) of ForwardPassMetrics, of at most 256 MiB, or a pipe. A last
        line that was cut off is dropped.
    model
        What a routing calls the model; the metrics do not name it.
    tensor_parallel
        GPUs that the model is spread over.
    worker
        The ``worker_id`` to use of a file with several.
    warm_up
        Records to drop at the start, for each kind and batch (and number of new tokens).
    min_samples
        A size with fewer records than this, after warm-up, is left out and named in the note.
    name, description, gpu, routing
        Of the profile.
    sglang_version
        Of the server, for the profile; the metrics do not hold it.

    Returns
    -------
    A profile with the median of each decode step and, if prefill was seen, of each extend step.

    Raises
    ------
    UsageError
        If warm_up, min_samples or tensor_parallel makes no sense.
    InputError
        With every record that is wrong, by its line; if the file holds several servers; if there
        are too few decode steps with one request.
    """
    for what, value, least in (
        ("warm_up", warm_up, 0),
        ("min_samples", min_samples, 1),
        ("tensor_parallel", tensor_parallel, 1),
    ):
        if value < least:
            raise UsageError(f"{what}: must be at least {least}, got {value}")
    where = shown(path)
    records, truncated = _read_records(path, where)
    sorted_out = _sort(_of_one_worker(records, worker, where), warm_up)
    decode = sorted_out.decode.enough(min_samples)
    extend = sorted_out.extend.enough(min_samples)
    if (1, 1) not in decode.sizes:
        n = len(sorted_out.decode.sizes.get((1, 1), ()))
        raise InputError(
            f"{where}: a profile begins at batch 1, and {n} decode steps with one request are left "
            f"after warm-up, {min_samples} are needed; send requests one at a time for a while"
        )
    dropped = sorted_out.dropped
    dropped["cut off"] = int(truncated)
    provenance = {
        "method": "imported",
        "source": f"forward-pass metrics of SGLang {sglang_version or '(version unknown)'}, "
        f"{where}",
    }
    told = _dropped_note(dropped, len(records) + truncated)
    document: dict[str, Any] = {
        "name": model,
        "tensor_parallel": tensor_parallel,
        "decode": decode_table(decode)
        | {"provenance": provenance | {"note": f"{spread_note(decode)} {told}"}},
    }
    if any(batch == 1 for batch, _ in extend.sizes):
        note = f"{spread_note(extend)} New tokens above 8 are grouped to 3 binary digits. {told}"
        document["extend"] = extend_table(extend) | {"provenance": provenance | {"note": note}}
    return finished(
        {
            "name": name,
            "description": description
            or f"Forward passes of {model} on a live SGLang server; overhead and contention are "
            "not in it.",
            "hardware": {"gpu": gpu, "gpus": tensor_parallel},
            "software": {"sglang": sglang_version} if sglang_version else None,
            "obtained": "imported",
            "context_tokens": max(1, decode.context) if decode.context is not None else None,
            "models": [document],
            "routing": routing,
        },
        where,
    )


def _read_records(path: StrPath, where: str) -> tuple[list[Record], bool]:
    """Read all records; the last line of a file that does not end with a newline may be cut."""
    text, _ = read_text(path, NEEDED, MAX_BYTES)
    records, problems = [], []
    truncated = False
    for at, parse, last in _items(text, where):
        try:
            data = parse()
        except InputError as error:
            truncated = last
            if not last:
                problems += error.problems
            continue
        try:
            if not isinstance(data, dict):
                raise InputError(f"{at}: must be an object, {NEEDED}")
            records.append(parse_document(Record, data, at))
        except InputError as error:
            problems += error.problems
        if len(problems) > MAX_PROBLEMS:
            break
    if problems:
        more = [f"{where}: and more problems"] if len(problems) > MAX_PROBLEMS else []
        raise InputError([*problems[:MAX_PROBLEMS], *more])
    return records, truncated


def _items(text: str, where: str) -> Iterator[tuple[str, Any, bool]]:
    """Give each record's place, how to parse it, and whether it may have been cut off."""
    if text.lstrip().startswith("["):
        for i, each in enumerate(parse_json(text, where)):
            yield f"{where}: [{i}]", lambda each=each: each, False
        return
    lines = text.split("\n")  # a complete file ends with a newline, so that the last one is empty
    for i, line in enumerate(lines, start=1):
        if line.strip():
            at = f"{where}: line {i}"
            yield at, lambda line=line, at=at: parse_json(line, at), i == len(lines)


def _of_one_worker(records: list[Record], worker: str | None, where: str) -> list[Record]:
    workers = sorted({record.worker_id for record in records})
    if worker is not None:
        if worker not in workers:
            known = ", ".join(map(repr, workers))
            raise InputError(f"{where}: no record of worker {worker!r}; there are {known}")
        return [record for record in records if record.worker_id == worker]
    if len(workers) > 1:
        raise InputError(
            f"{where}: records of {len(workers)} servers, which may run different models; choose "
            f"a worker: {', '.join(map(repr, workers))}"
        )
    return records


@dataclass
class _Sorted:
    decode: Samples = field(default_factory=Samples)
    extend: Samples = field(default_factory=Samples)
    dropped: Counter[str] = field(default_factory=Counter)


def _sort(records: list[Record], warm_up: int) -> _Sorted:
    """Tell decode from extend steps, and drop those that time neither or belong to warm-up."""
    result = _Sorted()
    seen: Counter[tuple[str, int, int]] = Counter()
    last: defaultdict[int, list[int]] = defaultdict(list)
    for record in records:
        if record.counter_id is not None:
            last[record.dp_rank].append(record.counter_id)
        requests = record.scheduled_requests
        prefill, decode = requests.num_prefill_requests, requests.num_decode_requests
        if not prefill and not decode:
            result.dropped["idle"] += 1
        elif prefill and decode:
            result.dropped["mixed"] += 1
        elif record.wall_time == 0 or (prefill and not requests.sum_prefill_tokens):
            result.dropped["not timed"] += 1
        else:
            kind = "decode" if decode else "extend"
            batch = decode or prefill
            new = 1 if decode else _grouped(requests.sum_prefill_tokens / prefill)
            seen[kind, batch, new] += 1
            if seen[kind, batch, new] <= warm_up:
                result.dropped["warm-up"] += 1
                continue
            cached = requests.sum_decode_kv_tokens if decode else requests.sum_prefill_kv_tokens
            samples = result.decode if decode else result.extend
            samples.add(batch, new, 1000.0 * record.wall_time, cached / batch)
    # Messages are numbered for each rank; a server that restarted counts from 0 again.
    result.dropped["lost"] = sum(
        int(np.maximum(np.diff(ids) - 1, 0).sum()) for ids in last.values()
    )
    return result


def _grouped(tokens: float) -> int:
    """Round a number of tokens to 3 binary digits, so within an eighth; exact up to 8."""
    whole = max(1, round(tokens))
    step = 1 << max(0, whole.bit_length() - 3)
    return round(whole / step) * step


def _dropped_note(dropped: Counter[str], total: int) -> str:
    lost = dropped.pop("lost", 0)
    parts = [f"{count} {reason}" for reason, count in dropped.items() if count]
    note = f"Of {total} records dropped: {', '.join(parts) or 'none'}."
    if lost:
        note += f" {lost} more were lost on the way."
    return f"{note} GPU time of the forward pass, without scheduling."
