"""Model engines behind one protocol: `scripted` for tests and demos, `http` for a `vllm serve` process, `vllm` in process."""
