"""SGLang is importable on the CPU, and what is really installed is never stood in for."""

import os
import subprocess
import sys

import pytest

PREPARE = (
    "from trmodel.runtime.engines.sglang.environment import prepare_cpu; prepare_cpu(); import os; "
)


def python(code, *, path="", **environment):
    """Run code where nothing is prepared yet, with a folder before all others on the path."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ("SGLANG_USE_CPU_ENGINE", "HF_HUB_OFFLINE", "OMP_NUM_THREADS")
    }
    ours = [each for each in os.environ["PYTHONPATH"].split(os.pathsep) if "stubs" not in each]
    kept["PYTHONPATH"] = os.pathsep.join([str(path), *ours])
    return subprocess.run(
        [sys.executable, "-c", code],
        env=kept | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def said(*arguments, **options):
    done = python(*arguments, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_sglang_can_be_imported_and_so_it_can_in_a_process_started_from_there():
    child = "import sglang.srt.model_executor.model_runner as m; print(m.ModelRunner.__name__)"
    code = PREPARE + (
        "import subprocess, sys; from sglang.srt.platforms import current_platform; "
        "print(type(current_platform).__name__, flush=True); "
        f"sys.exit(subprocess.run([sys.executable, '-c', {child!r}]).returncode)"
    )
    assert said(code) == ["CpuSRTPlatform", "ModelRunner"]


@pytest.fixture
def folder(tmp_path):
    """First on the path; torch is quick to import there, and knows of no GPU."""
    (tmp_path / "torch.py").write_text("class cuda:\n    def is_available(): return False")
    return tmp_path


def test_stand_ins_say_so_when_they_are_called(folder):
    code = PREPARE + (
        "import sgl_kernel, torchvision, triton, triton.language as tl\n"
        "from triton.tools.tensor_descriptor import TensorDescriptor\n"
        "@triton.autotune(configs=[triton.Config({'BLOCK': 4})], key=[])\n"
        "@triton.jit\n"
        "def kernel(x: tl.constexpr): pass\n"
        "class Mine(TensorDescriptor): pass\n"
        "assert (triton.cdiv(7, 2), triton.next_power_of_2(5), tl.constexpr(3)) == (4, 8, 3)\n"
        "assert not hasattr(sgl_kernel, 'silu_and_mul')\n"
        "for call in (lambda: kernel[(1,)](2), lambda: tl.load(3), Mine,\n"
        "             lambda: sgl_kernel.weight_packed_linear_cpu(1),\n"
        "             lambda: torchvision.io.decode_image(b'')):\n"
        "    try: call()\n"
        "    except NotImplementedError as error: print(str(error).split(':')[1].split()[0])"
    )
    assert said(code, path=folder) == ["triton", "triton", "triton", "sgl_kernel", "torchvision"]


def test_real_packages_win(folder):
    (folder / "triton").mkdir()
    (folder / "triton" / "__init__.py").write_text("real = 'yes'")
    (folder / "torchvision").mkdir()  # a folder of that name is no package
    code = PREPARE + (
        "import triton, torchvision; print(triton.real, torchvision.__file__, "
        "os.environ['PYTHONPATH'].split(os.pathsep)[-2:])"
    )
    real, picture, *added = said(code, path=folder)
    assert real == "yes"
    assert picture.endswith("stubs/torchvision/torchvision.py")
    assert [each.strip("[],'").rsplit("/")[-1] for each in added] == ["sgl_kernel", "torchvision"]


def test_nothing_stands_in_on_a_machine_with_a_gpu(folder):
    (folder / "torch.py").write_text("class cuda:\n    def is_available(): return True")
    done = python(PREPARE, path=folder)
    assert done.returncode != 0
    assert "is not installed, and stand-ins are for machines without a GPU" in done.stderr
    for name in ("sgl_kernel", "torchvision", "triton"):
        (folder / f"{name}.py").write_text("")
    code = PREPARE + "print('stubs' in os.environ['PYTHONPATH'])"
    assert said(code, path=folder) == ["False"]


def test_the_environment_is_set_unless_it_was_before(folder):
    code = PREPARE + (
        "prepare_cpu(); print(*(os.environ[name] for name in ('SGLANG_USE_CPU_ENGINE', "
        "'HF_HUB_OFFLINE', 'OMP_NUM_THREADS')), os.environ['PYTHONPATH'].count('stubs/triton'))"
    )
    assert said(code, path=folder) == ["1", "1", "1", "1"]
    assert said(code, path=folder, HF_HUB_OFFLINE="0", OMP_NUM_THREADS="3") == ["1", "0", "3", "1"]


def test_too_late_is_an_error(folder):
    (folder / "sglang.py").write_text("")
    done = python("import sglang; " + PREPARE, path=folder)
    assert "RuntimeError: prepare_cpu: to be called before SGLang" in done.stderr
