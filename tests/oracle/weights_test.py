"""What `tow convert-weights` writes is read by the packages safetensors and transformers, and gives the logits of the models.

    python tests/oracle/weights_test.py TOW

Status 77, skipped, without these packages.
"""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import numpy
    import safetensors
    import safetensors.numpy
    import torch
    import transformers
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

TOW = sys.argv[1]
GOLDEN = pathlib.Path(__file__).parent / "golden" / "weights"


def convert(*arguments):
    run = subprocess.run([TOW, "convert-weights", *map(str, arguments)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def check(name, table, scratch, dtype):
    ours, folder = scratch / f"{name}.safetensors", scratch / name
    folder.mkdir()
    convert(GOLDEN / name, "-o", ours, "--mapping", table, "--axis", "k=4")
    with safetensors.safe_open(ours, "numpy" if dtype == "f32" else "pt") as file:
        for key in ("tokens/embedding", "blocks/0/attn/query/kernel", "blocks/0/attn/out/kernel"):
            assert key in file.keys(), (key, list(file.keys()))
        assert tuple(file.get_tensor("blocks/0/attn/query/kernel").shape) == (16, 4, 4)
    convert(ours, "-o", folder / "model.safetensors", "--mapping", table, "--reverse", "--max-file-bytes", 4000, "--dtype", dtype)
    files = sorted(p.name for p in folder.iterdir())
    assert len(files) > 3 and "model.safetensors.index.json" in files, files
    shutil.copy(GOLDEN / name / "config.json", folder)
    expected = safetensors.numpy.load_file(GOLDEN / name / "expected.safetensors")
    kind = {"gpt2": transformers.GPT2LMHeadModel, "llama": transformers.LlamaForCausalLM, "bert": transformers.BertForMaskedLM}[table]
    model, info = kind.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager", output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    ids = {k: torch.tensor(v) for k, v in expected.items() if k != "logits"}
    with torch.no_grad():
        found = model.eval()(**ids).logits.float().numpy()
    assert numpy.abs(found - expected["logits"]).max() <= 1e-6, numpy.abs(found - expected["logits"]).max()
    print(f"{name}: {len(files)} files, logits are equal")


with tempfile.TemporaryDirectory() as directory:
    for name, table, dtype in (("gpt2", "gpt2", "f32"), ("llama", "llama", "f32"), ("llama_bf16", "llama", "bf16"), ("bert", "bert", "f32")):
        check(name, table, pathlib.Path(directory), dtype)
