"""SGLang as the engine: its model runner, batches and cache under our own scheduler."""
