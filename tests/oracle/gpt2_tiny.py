"""Makes the tiny GPT-2 that comes with the example gpt2, examples/gpt2/tiny.

    python tests/oracle/gpt2_tiny.py build/release/bin/gpt2 [STEPS]

The tokenizer is trained by the package `tokenizers`, the first weights are drawn by transformers, the example itself trains them on
the documentation. expected.safetensors has the logits of a text, which torch computes in double precision.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import safetensors.numpy
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

ROOT = pathlib.Path(__file__).parent.parent.parent
FOLDER = ROOT / "examples" / "gpt2" / "tiny"
CONTEXT, WIDTH, LAYERS, HEADS, VOCABULARY = 128, 64, 3, 4, 512
PROMPT = "Tow is a neural-network layer library in C11. "


def tokenizer(text):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer, t.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    t.train_from_iterator(text.splitlines(keepends=True), trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=["<|endoftext|>"], show_progress=False))
    return t


def text_of(root):
    return "".join(p.read_text() for p in [root / "README.md", *sorted((root / "docs").glob("*.md"))])


def train(program, folder, text, steps):
    """The example trains all parameters of the model in `folder`, in place."""
    (folder / "text").write_text(text)
    subprocess.run([program, "--model", folder, "--full", "--bf16", "--text", folder / "text", "--steps", str(steps), "--batch", "16",
                    "--context", str(CONTEXT), "--learning-rate", "4e-3", "--out", folder / "out"], check=True)
    return folder / "out" / "model"


def main():
    text = text_of(ROOT)
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=VOCABULARY, n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
                                     bos_token_id=0, eos_token_id=0)
    with tempfile.TemporaryDirectory() as directory:
        folder = pathlib.Path(directory)
        t = tokenizer(text)
        t.save(str(folder / "tokenizer.json"), pretty=False)
        transformers.GPT2LMHeadModel(config).save_pretrained(folder)
        values = json.loads((folder / "config.json").read_text())
        values.pop("transformers_version", None)
        (folder / "config.json").write_text(json.dumps(values, indent=1, sort_keys=True) + "\n")
        trained = train(sys.argv[1], folder, text, int(sys.argv[2]) if len(sys.argv) > 2 else 2500)
        FOLDER.mkdir(exist_ok=True)
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            shutil.copyfile(trained / name, FOLDER / name)
    prompt = t.encode(PROMPT).ids
    model = transformers.GPT2LMHeadModel.from_pretrained(FOLDER, dtype=torch.float64, attn_implementation="eager").eval()
    with torch.no_grad():
        logits = model(torch.tensor([prompt])).logits.float().numpy()
    safetensors.numpy.save_file({"logits": logits, "input_ids": torch.tensor([prompt], dtype=torch.int32).numpy()},
                                FOLDER / "expected.safetensors", {"text": PROMPT})


main()
