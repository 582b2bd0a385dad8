"""What element types do to a training: the validation loss of the example GPT with parameters, activations and optimizer state of few bits.

    python3 bench/precision.py build/release/bin/gpt [--steps 2000] [--threads 1] [--only NAME ...] [further options of gpt]

Each way trains from the same seed on the same batches. Printed are the validation loss after the last step, that over the loss of f32,
and the bytes of parameters and of the optimizer's state. "f32, other sums" is f32 with the sums of two row groups, which are rounded
differently: what that changes is chance.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

BF16 = "--dtype bf16 --param-dtype bf16"
WAYS = {
    "f32": "",
    "mixed": "--dtype bf16",
    "masters": f"{BF16} --master",
    "8-bit state": "--slot-bits 8",
    "masters, 8-bit state": f"{BF16} --master --slot-bits 8",
    "stochastic rounding": f"{BF16} --stochastic-rounding",
    "bf16": BF16,
    "f32, other sums": "--row-groups 2",
}


def train(gpt, options):
    """The last validation loss, and the planned bytes."""
    with tempfile.TemporaryDirectory() as folder:
        log, plan = pathlib.Path(folder, "log"), pathlib.Path(folder, "plan")
        done = subprocess.run([gpt, *options, "--no-sample", "--log", log, "--plan", plan], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{gpt} {' '.join(options)}: {done.stderr}")
        losses = [json.loads(line).get("val_loss") for line in log.read_text().splitlines()]
        return [loss for loss in losses if loss is not None][-1], json.loads(plan.read_text())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gpt")
    parser.add_argument("--steps", default="2000")
    parser.add_argument("--threads", default="1")
    parser.add_argument("--only", nargs="+", choices=list(WAYS), default=list(WAYS), help="of these; f32 is always run")
    o, further = parser.parse_known_args()
    print("| way | options | validation loss | over f32 | parameters, bytes | optimizer, bytes |\n|---|---|---|---|---|---|")
    first = None
    for name in dict.fromkeys(["f32", *o.only]):
        options = [*further, *WAYS[name].split()]
        loss, plan = train(o.gpt, [*options, "--steps", o.steps, "--threads", o.threads])
        first = first or loss
        print(f"| {name} | `{' '.join(options)}` | {loss:.4f} | {loss / first:.4f} | {plan['parameters']} | {plan['optimizer']} |", flush=True)


if __name__ == "__main__":
    main()
