"""Files of arrays as NumPy, ml_dtypes and safetensors write them: golden/files, which tests/unit/io/test_io_golden.c reads.

    python3 tests/oracle/files_golden.py              (made with numpy 2.4.6, ml_dtypes 0.6.0, safetensors 0.8.0)
    python3 tests/oracle/files_golden.py --check TOW  (reads with them what TOW, the command, writes)

The elements of each type are the bits in BITS, which the test has as well.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np
import safetensors
import safetensors.numpy

FOLDER = pathlib.Path(__file__).resolve().parent / "golden" / "files"
BITS = {
    "f32": (np.float32, "u4", [0, 0x80000000, 0x3FC00000, 0x7F800000, 1, 0xFF7FFFFF]),
    "f64": (np.float64, "u8", [0, 1 << 63, 0x3FF8000000000000, 0x7FF0000000000000, 1, 0xFFEFFFFFFFFFFFFF]),
    "bf16": (ml_dtypes.bfloat16, "u2", [0, 0x8000, 0x3FC0, 0x7F80, 1, 0xFF7F]),
    "f16": (np.float16, "u2", [0, 0x8000, 0x3E00, 0x7C00, 1, 0xFBFF]),
    "i8": (np.int8, "u1", [0x80, 0xFF, 0, 1, 2, 0x7F]),
    "u8": (np.uint8, "u1", [0, 1, 2, 3, 0xFE, 0xFF]),
    "i32": (np.int32, "u4", [0x80000000, 0xFFFFFFFF, 0, 1, 2, 0x7FFFFFFF]),
    "u32": (np.uint32, "u4", [0, 1, 2, 3, 0xFFFFFFFE, 0xFFFFFFFF]),
    "i64": (np.int64, "u8", [1 << 63, (1 << 64) - 1, 0, 1, (1 << 53) + 1, (1 << 63) - 1]),
    "u64": (np.uint64, "u8", [0, 1, 2, 3, 1 << 63, (1 << 64) - 1]),
    "bool": (np.bool_, "u1", [0, 1, 1, 0, 1, 0]),
}
ARRAYS = {name: np.array(bits, word).view(dtype).reshape(2, 3) for name, (dtype, word, bits) in BITS.items()}


def write():
    FOLDER.mkdir(exist_ok=True)
    for name, x in ARRAYS.items():
        np.save(FOLDER / f"{name}.npy", x)
        np.save(FOLDER / f"{name}_columns.npy", np.asfortranarray(x))
        if x.dtype.itemsize > 1 and name != "bf16":  # of which NumPy has no swapped form
            np.save(FOLDER / f"{name}_swapped.npy", x.astype(x.dtype.newbyteorder(">")))
    np.savez(FOLDER / "stored.npz", **ARRAYS)
    np.savez_compressed(FOLDER / "deflated.npz", **ARRAYS)
    safetensors.numpy.save_file(ARRAYS, FOLDER / "all.safetensors", {"format": "np"})
    names = list(ARRAYS)
    shards = {"model-00001-of-00002.safetensors": names[:6], "model-00002-of-00002.safetensors": names[6:]}
    for shard, held in shards.items():
        safetensors.numpy.save_file({n: ARRAYS[n] for n in held}, FOLDER / shard, {"format": "np"})
    index = {"metadata": {"total_size": sum(x.nbytes for x in ARRAYS.values())},
             "weight_map": {n: shard for shard, held in shards.items() for n in held}}
    for path in FOLDER.iterdir():  # safetensors lets nobody else read
        path.chmod(0o644)
    (FOLDER / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def same(x, name):
    x = x.view(ml_dtypes.bfloat16) if x.dtype.kind == "V" else x
    assert x.dtype == ARRAYS[name].dtype and x.tobytes() == ARRAYS[name].tobytes(), name


def check(tow):
    """Each array goes through a program that returns it."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        inputs = " ".join(f'{n}:{n}[2,3]"{n}"' for n in ARRAYS)
        (folder / "same.tow").write_text(f"{{ lambda ; {inputs}. let in ({', '.join(ARRAYS)}) }}")
        for out in ("out.npz", "out.safetensors"):
            subprocess.run([tow, "run", folder / "same.tow", "--inputs", FOLDER / "all.safetensors", "--outputs",
                            folder / out], check=True, stdout=subprocess.DEVNULL)
        with np.load(folder / "out.npz") as arrays:
            for i, name in enumerate(ARRAYS):
                same(arrays[str(i)], name)
        for i, x in safetensors.numpy.load_file(folder / "out.safetensors").items():
            same(x, list(ARRAYS)[int(i)])
    print("what tow wrote is right")


if __name__ == "__main__":
    check(sys.argv[2]) if len(sys.argv) == 3 else write()
