"""Steps from standard input on a model split over two processes; what they gave on output."""

import json
import sys

from trmodel.runtime.engines.sglang.options import EngineOptions
from trmodel.runtime.engines.sglang.start import start_engine
from trmodel.runtime.messages import Sampling
from trmodel.runtime.request import Batch, Request

if __name__ == "__main__":
    options = EngineOptions(path=sys.argv[1], dtype="float32", tp=2, kv_tokens=512, max_context=256)
    engine = start_engine(0, options, 4, {"logits", "embedding"})
    requests, logits, embedding = {}, [], []
    for step in json.load(sys.stdin):
        for number, ids in step:
            if number not in requests:
                requests[number] = Request(number, [], 0, Sampling(temperature=0.0), 0, 0, [0])
            requests[number].token_ids += ids
        batch = [requests[number] for number, _ in step]
        result = engine.step(Batch(0, batch, 0.0, [0.0] * len(batch)))
        for request in batch:
            request.anchor = len(request.token_ids)
        logits.append(result.tensors["logits"].tolist())
        embedding.append(result.tensors["embedding"].tolist())
    for number in requests:
        engine.release(number)
    print(json.dumps({"logits": logits, "embedding": embedding, "kv_tokens": engine.kv_tokens}))
