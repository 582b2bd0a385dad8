"""llama.cpp on a GGUF file: what a token takes to read and to make. The peer of bench_weights --model.

    pip install xllamacpp; python3 bench/peers/weights_llama.py FILE.gguf [--threads T] [--prompt P] [--tokens G] [--rounds R]

Prints llama.cpp's own timings: milliseconds of each prompt token and of each further one, best of the rounds.
"""

import argparse
import random

import xllamacpp as xlc

parser = argparse.ArgumentParser()
parser.add_argument("file")
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--prompt", type=int, default=512)
parser.add_argument("--tokens", type=int, default=32)
parser.add_argument("--rounds", type=int, default=3)
options = parser.parse_args()

params = xlc.CommonParams()
params.model.path = options.file
params.n_ctx = options.prompt + options.tokens + 8
params.n_parallel = 1
params.warmup = True
params.cpuparams.n_threads = options.threads
params.cpuparams_batch.n_threads = options.threads
server = xlc.Server(params)
random.seed(1)
prompt, token = [], []
for _ in range(options.rounds):
    result = server.handle_completions({
        "prompt": [random.randrange(1000) for _ in range(options.prompt)], "n_predict": options.tokens, "temperature": 0,
        "ignore_eos": True, "cache_prompt": False})
    timings = result["timings"]
    prompt.append(timings["prompt_ms"] / timings["prompt_n"])
    token.append(timings["predicted_ms"] / timings["predicted_n"])
print(f"{options.file}: {options.threads} threads, prompt of {options.prompt}: {min(prompt):.3f} ms a token, "
      f"then {min(token):.2f} ms a token")
print(xlc.get_system_info())
