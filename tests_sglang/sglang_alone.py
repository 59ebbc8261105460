"""SGLang's own engine in a process of its own: prompts on standard input, replies on output."""

import json
import sys

from trmodel.runtime.engines.sglang.environment import prepare_cpu

if __name__ == "__main__":  # SGLang starts processes of its own
    prepare_cpu()
    import sglang

    path, tokens = sys.argv[1], int(sys.argv[2])
    engine = sglang.Engine(
        model_path=path,
        device="cpu",
        attention_backend="torch_native",
        sampling_backend="pytorch",
        grammar_backend="none",
        dtype="float32",
        disable_radix_cache=True,
        disable_overlap_schedule=True,
        disable_cuda_graph=True,
        max_total_tokens=4096,
        max_running_requests=16,
        mem_fraction_static=0.3,
        context_length=1024,
        skip_tokenizer_init=True,
        skip_server_warmup=True,
        log_level="error",
    )
    replies = engine.generate(
        input_ids=json.load(sys.stdin),
        sampling_params={"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
    )
    print(json.dumps([reply["output_ids"] for reply in replies]))
    engine.shutdown()
