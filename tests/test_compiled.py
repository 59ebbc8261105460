import os
from pathlib import Path

import trmodel.compiled
from trmodel.compiled import forget_stale_kernels


def test_only_kernels_older_than_a_compiled_source_are_forgotten(tmp_path):
    cache = tmp_path / "markov" / "__pycache__"
    cache.mkdir(parents=True)
    for name, age in [("launch.py", 10), ("markov/transitions.py", 20), ("profile.py", 0)]:
        source = tmp_path / name
        source.write_text("")
        os.utime(source, (1000 - age, 1000 - age))
    old, new = cache / "old.nbi", cache / "new.nbi"
    for index, time in [(old, 985), (new, 995)]:
        index.write_text("")
        os.utime(index, (time, time))
    forget_stale_kernels(tmp_path)
    assert not old.exists()
    assert new.exists()


def test_every_kernel_is_compiled_here():
    """Or its source would have to be watched as well."""
    package = Path(trmodel.compiled.__file__).parent
    users = [p for p in package.rglob("*.py") if "trmodel.compiled import" in p.read_text("utf-8")]
    alone = {"attention_kernel.py"}  # calls no other: numba sees when its file changed
    assert {p.parent.name for p in users if p.name not in alone} == {"markov", "simulate"}
    numba = [p for p in package.rglob("*.py") if "numba import" in p.read_text("utf-8")]
    assert [p.name for p in numba] == ["compiled.py"]
