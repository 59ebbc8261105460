"""Import of a plain table: round trip, and every row that is wrong, at once and by its line."""

import csv
import io
import re
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trmodel.errors import InputError
from trmodel.profile.importers import import_csv

PLAIN = """model,batch,latency_ms
small,1,2.5
small,4,3.5
large,1,25
large,8,27.25
"""

FULL = """\ufeffbatch, model, context_tokens, latency_ms, new_tokens, tensor_parallel
1, small, 512, 2.5, , 1
4, small, 512, 3.5, , 1
4, small, 2048, 4.5, , 1

1, small, 2048, 3.5, , 1
1, small, 1024, 3, 1, 1
1, small, 1024, 9, 64, 1
1, "large, one", 1024, 25, , 2
"""


def write(tmp_path, text):
    path = tmp_path / "steps.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_plain_table(tmp_path):
    path = write(tmp_path, PLAIN)
    profile = import_csv(path, name="mine", gpu="Acme")
    small, large = profile.models
    assert (small.name, small.decode.batch, small.decode.latency_ms) == (
        "small",
        (1, 4),
        (2.5, 3.5),
    )
    assert (large.name, large.decode.batch, large.decode.latency_ms) == (
        "large",
        (1, 8),
        (25, 27.25),
    )
    assert small.decode.context_tokens is None
    assert small.extend is None
    assert small.tensor_parallel == 1
    assert small.decode.provenance.method == profile.obtained == "imported"
    assert small.decode.provenance.source == f"table {path}"
    assert (profile.name, profile.hardware.gpu, profile.hardware.gpus) == ("mine", "Acme", 1)


def test_a_table_with_contexts_and_extend_steps(tmp_path):
    profile = import_csv(write(tmp_path, FULL), source="our lab", context_tokens=1024)
    small, large = profile.models
    assert small.decode.context_tokens == (512, 2048)
    assert small.decode.latency_ms == ((2.5, 3.5), (3.5, 4.5))
    assert (small.extend.batch, small.extend.new_tokens) == ((1,), (1, 64))
    assert small.extend.latency_ms == ((3.0,), (9.0,))
    assert small.extend.context_tokens == 1024
    assert small.extend.provenance.source == "our lab"
    assert (large.name, large.decode.context_tokens, large.tensor_parallel) == (
        "large, one",
        1024,
        2,
    )
    assert profile.hardware.gpus == 2
    assert profile.context_tokens == 1024


def increasing(smallest, largest, most):
    return st.lists(st.integers(smallest, largest), min_size=1, max_size=most, unique=True).map(
        sorted
    )


@st.composite
def tables(draw):
    """Complete tables of one model: {(context or None, new tokens or None, batch): latency}."""
    batches = sorted({1, *draw(increasing(1, 65_536, 4))})
    rows = {}
    kinds = [(draw(st.none() | increasing(0, 10**6, 3)), [None])]
    if draw(st.booleans()):
        kinds.append(([draw(st.integers(0, 10**6))], draw(increasing(1, 10**6, 3))))
    for contexts, new_tokens in kinds:
        for context in contexts or [None]:
            for new in new_tokens:
                steps = draw(
                    st.lists(st.integers(1, 10**6), min_size=len(batches), max_size=len(batches))
                )
                for batch, value in zip(batches, accumulate(steps), strict=True):
                    rows[context, new, batch] = value / 1000
    return rows


@given(tables(), st.randoms())
def test_tables_come_back_whatever_the_order_of_rows(tmp_path_factory, table, random):
    rows = [(c, n, b, repr(latency)) for (c, n, b), latency in table.items()]
    random.shuffle(rows)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["context_tokens", "new_tokens", "batch", "latency_ms", "model"])
    writer.writerows([*row, "m"] for row in rows)
    profile = import_csv(write(tmp_path_factory.mktemp("csv"), text.getvalue()))
    (model,) = profile.models
    found = {}
    decode = model.decode
    for context, row in zip(decode.contexts or [None], decode.rows, strict=True):
        for batch, latency in zip(decode.batch, row, strict=True):
            found[context, None, batch] = latency
    if model.extend:
        for new, row in zip(model.extend.new_tokens, model.extend.latency_ms, strict=True):
            for batch, latency in zip(model.extend.batch, row, strict=True):
                found[model.extend.context_tokens, new, batch] = latency
    assert found == table


HEADER = "the header is model,batch,latency_ms[,context_tokens][,new_tokens][,tensor_parallel]"
WHOLE = "must be a whole number from"


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("", ["the file is empty; a table with " + HEADER.replace(" is", "") + " is needed"]),
        ("model;batch;latency_ms\na;1;2\n",
         ["line 1: no column model; no column batch; no column latency_ms; unknown column "
          "model;batch;latency_ms; " + HEADER]),
        ("model,batch,latency_us,batch\n",
         ["line 1: no column latency_ms; unknown column latency_us; column batch twice; "
          + HEADER]),
        ("model,batch,latency_ms\n\n", ["the table has no rows"]),
        ('model,batch,latency_ms\n"a,1,2\n', ["line 2: unexpected end of data"]),
        ("model,batch,latency_ms,new_tokens,tensor_parallel,context_tokens\n"
         "a,1.5,-2,0,0,-1\na,1\n,0,nan,,,\na,1,600001,,,\n",
         [f"line 2: batch: {WHOLE} 1 to 65536, got 1.5",
          "line 2: latency_ms: must be a number above 0 and at most 600000, got -2",
          f"line 2: new_tokens: {WHOLE} 1 to 1000000000, got 0",
          f"line 2: tensor_parallel: {WHOLE} 1 to 10000, got 0",
          f"line 2: context_tokens: {WHOLE} 0 to 1000000000, got -1",
          "line 3: 6 cells are needed, got 2",
          "line 4: model is empty",
          f"line 4: batch: {WHOLE} 1 to 65536, got 0",
          "line 4: latency_ms: must be a number above 0 and at most 600000, got nan",
          "line 5: latency_ms: must be a number above 0 and at most 600000, got 600001"]),
        ("model,batch,latency_ms,context_tokens\na,1,2,512\na,2,3,512\na,1,2,1024\na,1,2,512\n"
         "b,2,1,512\nc,1,1,\nc,2,1,5\n",
         ["model a: line 5 repeats line 2",
          "model a: context_tokens 1024 has no row for batch 2",
          "model b: has no row for batch 1, the smallest is 2",
          "model c: context_tokens must be given in all of its decode rows or in none"]),
        ("model,batch,latency_ms,new_tokens,context_tokens,tensor_parallel\na,1,2,4,512,1\n"
         "a,1,3,8,1024,2\na,2,3,8,1024,2\n",
         ["model a: tensor_parallel must be the same in all of its rows, got 1, 2",
          "model a: has no decode rows (rows without new_tokens)",
          "model a: new_tokens 4 has no row for batch 2",
          "model a: context_tokens must be the same in all of its extend rows, got 512, 1024"]),
        (f"model,batch,latency_ms\n{'n' * 201},1,2\n",
         ["models[0].name: must be no longer than 200"]),
    ],
)  # fmt: skip
def test_everything_wrong_is_said_at_once(tmp_path, text, problems):
    path = write(tmp_path, text)
    with pytest.raises(InputError) as caught:
        import_csv(path)
    found = [problem.removeprefix(f"{path}: ") for problem in caught.value.problems]
    assert sorted(found) == sorted(problems)


def test_many_problems_are_counted(tmp_path):
    path = write(tmp_path, "model,batch,latency_ms\n" + "a,0,1\n" * 250)
    with pytest.raises(InputError) as caught:
        import_csv(path)
    assert len(caught.value.problems) == 101
    assert caught.value.problems[-1] == f"{path}: and 150 more"


def test_a_large_or_missing_file_is_refused(tmp_path):
    path = tmp_path / "large.csv"
    with open(path, "wb") as file:
        file.truncate(16 * 2**20 + 1)
    with pytest.raises(InputError, match="larger than 16 MiB"):
        import_csv(path)
    with pytest.raises(InputError, match="no such file"):
        import_csv(tmp_path / "none.csv")


def test_the_example_of_the_documentation(tmp_path, monkeypatch):
    text = (Path(__file__).parents[3] / "docs" / "importing.md").read_text(encoding="utf-8")
    (example,) = (b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "csv" in b)
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    exec(example, namespace)
    profile = namespace["profile"]
    assert profile.model_names == ["small", "large"]
    assert profile.hardware.gpus == 2
    assert profile.models[0].extend.latency_ms == ((3.0, 7.5),)
