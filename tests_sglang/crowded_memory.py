"""Load a model where others have taken all memory but what its cache needs; print what it holds."""

import sys

from trmodel.runtime.engines.sglang.folder import ModelFolder
from trmodel.runtime.engines.sglang.options import EngineOptions
from trmodel.runtime.engines.sglang.start import prepare, start_engine

KV_TOKENS = 512

if __name__ == "__main__":
    options = EngineOptions(path=sys.argv[1], dtype="float32", kv_tokens=KV_TOKENS, max_context=256)
    prepare(options)
    from sglang.srt.distributed import bootstrap
    from sglang.srt.mem_cache import kv_cache_configurator

    free = (KV_TOKENS + 1) * ModelFolder(options.path).kv_bytes_per_token("float32")
    bootstrap.get_available_gpu_memory = lambda *_, **__: 1.0  # GiB, as its process begins
    kv_cache_configurator.get_available_gpu_memory = lambda *_, **__: free / 2**30
    print(start_engine(0, options, 4).kv_capacity)
