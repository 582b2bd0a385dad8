"""The merged model that the example gpt2 writes is read by transformers, and both have the same logits. Kernels differ from those before
by products of the rank of the adapters, and nothing else differs.

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
    import safetensors.torch
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

RANK = 5
BEFORE = pathlib.Path(__file__).resolve().parents[2] / "examples" / "gpt2" / "tiny" / "model.safetensors"


def check_updates(after):
    """Each kernel (query, key and value are joined) has an update of the rank, other tensors have none."""
    before = safetensors.torch.load_file(BEFORE)
    after = safetensors.torch.load_file(after)
    assert before.keys() == after.keys(), before.keys() ^ after.keys()
    kernels = 0
    for name, value in after.items():
        update = value.double() - before[name].double()
        if not name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            assert not update.any(), name
            continue
        for part in update.split(update.shape[0], 1) if "c_attn" in name else [update]:
            sizes = torch.linalg.svdvals(part)
            assert sizes[RANK - 1] > 1e-4 * sizes[0] and sizes[RANK] < 1e-4 * sizes[0], (name, sizes)
            kernels += 1
    assert kernels == 18, kernels


with tempfile.TemporaryDirectory() as directory:
    folder = pathlib.Path(directory)
    subprocess.run([sys.argv[1], "--steps", "30", "--rank", str(RANK), "--tokens", "1", "--out", folder], check=True,
                   stdout=subprocess.DEVNULL)
    check_updates(folder / "model" / "model.safetensors")
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
