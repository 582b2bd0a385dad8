"""The merged model that the example gpt2 writes is read by transformers, and both have the same logits.

    python tests/oracle/gpt2_test.py GPT2

Status 77, skipped, without these packages.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import safetensors.numpy
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

with tempfile.TemporaryDirectory() as directory:
    folder = pathlib.Path(directory)
    subprocess.run([sys.argv[1], "--steps", "30", "--tokens", "1", "--out", folder], check=True, stdout=subprocess.DEVNULL)
    model, info = transformers.GPT2LMHeadModel.from_pretrained(folder / "model", dtype=torch.float64, attn_implementation="eager",
                                                               output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "model" / "tokenizer.json"))
    ids = torch.tensor([tokenizer("Adapters of small rank are merged into the kernels.")["input_ids"]])
    with torch.no_grad():
        logits = model.eval()(ids).logits.float().numpy()
    golden = folder / "golden.safetensors"
    safetensors.numpy.save_file({"logits": logits, "input_ids": ids.int().numpy()}, golden)
    run = subprocess.run([sys.argv[1], "--model", folder / "model", "--no-training", "--tokens", "1", "--check", golden],
                         capture_output=True, text=True)
    print(run.stdout, run.stderr)
    sys.exit(run.returncode)
