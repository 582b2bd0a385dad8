"""GGUF files as the package gguf of llama.cpp writes and reads them: golden/gguf, which tests/unit/io/test_gguf_golden.c reads.

    python3 tests/oracle/gguf_golden.py               (made with gguf 0.19.0, numpy 2.4.6, safetensors 0.8.0)
    python3 tests/oracle/gguf_golden.py --check FILE  (prints what gguf reads in a file: names, types, shapes, sums, metadata)

types.gguf has a tensor of every type that Tow reads, [3, 256] or [2, 3], one that it does not read, and metadata of every type;
types.safetensors the numbers that gguf decodes them to. numbers.safetensors has floats, and numbers_TYPE.gguf the same floats as
gguf writes them in that type, with norms in f32.
"""
import pathlib
import sys

import gguf
import numpy as np
import safetensors.numpy
from gguf import GGMLQuantizationType as Q

FOLDER = pathlib.Path(__file__).resolve().parent / "golden" / "gguf"
PLAIN = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}


def metadata(w):
    w.add_uint8("t.u8", 200)
    w.add_int8("t.i8", -100)
    w.add_uint16("t.u16", 60000)
    w.add_int16("t.i16", -30000)
    w.add_uint32("t.u32", 4000000000)
    w.add_int32("t.i32", -2000000000)
    w.add_float32("t.f32", 0.1)
    w.add_bool("t.bool", True)
    w.add_string("t.string", "größe")
    w.add_uint64("t.u64", 2**64 - 1)
    w.add_int64("t.i64", -(2**63))
    w.add_float64("t.f64", 0.1)
    w.add_array("t.strings", ["", "a", "größe"])
    w.add_array("t.ints", [1, -2, 3])
    w.add_array("t.floats", [0.5, -1.5])
    w.add_array("t.bools", [True, False, True])


def blocks(rng, type, rows, columns):
    """Random bits with scales that are finite."""
    size, count = gguf.GGML_QUANT_SIZES[type][1], rows * columns // gguf.GGML_QUANT_SIZES[type][0]
    data = rng.integers(0, 256, (count, size), dtype=np.uint8)
    scales = {Q.Q8_0: [0], Q.Q4_0: [0], Q.Q4_K: [0, 2], Q.Q6_K: [208], Q.Q5_1: [0, 2]}[type]
    for at in scales:
        data[:, at:at + 2] = rng.normal(0, 0.1, (count, 1)).astype(np.float16).view(np.uint8)
    return data.reshape(rows, -1)


def types():
    rng = np.random.default_rng(0)
    w = gguf.GGUFWriter(FOLDER / "types.gguf", "llama")
    metadata(w)
    expected = {}
    for name, dtype in PLAIN.items():
        x = (rng.normal(0, 50, (2, 3))).astype(dtype)
        w.add_tensor(name, x)
        expected[name] = x.astype(np.int32) if name == "i16" else x
    for type in (Q.BF16, Q.Q8_0, Q.Q4_0, Q.Q4_K, Q.Q6_K, Q.Q5_1):
        name = type.name.lower()
        bf16 = gguf.quantize(rng.normal(0, 50, (3, 256)).astype(np.float32), Q.BF16)
        x = bf16 if type == Q.BF16 else blocks(rng, type, 3, 256)
        w.add_tensor(name, x, raw_dtype=type)
        if type != Q.Q5_1:
            expected[name] = gguf.dequantize(x, type)
    finish(w)
    safetensors.numpy.save_file(expected, FOLDER / "types.safetensors")


def numbers():
    """Rows with ties of rounding, one of zeros, one of tiny numbers."""
    rng = np.random.default_rng(1)
    x = rng.normal(0, 1, (6, 96)).astype(np.float32)
    x[1] = 0
    x[2] *= np.float32(1e-6)
    x[3] = np.arange(96) - 48
    x[4, :32] = np.array([127, 0.5, -0.5, 1.5, -1.5, 2.5] + [0.25] * 26)
    x[5, 0] = 4000
    tensors = {"matrix": x, "norm": rng.normal(0, 1, 96).astype(np.float32), "rest": rng.normal(0, 1, (3, 20)).astype(np.float32)}
    safetensors.numpy.save_file(tensors, FOLDER / "numbers.safetensors")
    for type in (Q.F32, Q.F16, Q.BF16, Q.Q8_0, Q.Q4_0):
        w = gguf.GGUFWriter(FOLDER / f"numbers_{type.name.lower()}.gguf", "gpt2")
        w.add_uint32("gpt2.block_count", 3)
        w.add_array("tokenizer.ggml.tokens", ["a", "bc"])
        for name, y in tensors.items():
            small = y.ndim < 2 or (type in (Q.Q8_0, Q.Q4_0) and y.shape[-1] % 32 != 0)
            chosen = Q.F32 if small else type
            w.add_tensor(name, gguf.quantize(y, chosen), raw_dtype=chosen)
        finish(w)


def split():
    """The tensors of numbers_q8_0.gguf, each in a file of its own."""
    tensors = safetensors.numpy.load_file(FOLDER / "numbers.safetensors")
    w = gguf.GGUFWriter(FOLDER / "split.gguf", "gpt2", split_max_tensors=1)
    w.add_uint32("gpt2.block_count", 3)
    w.add_array("tokenizer.ggml.tokens", ["a", "bc"])
    for name in ("matrix", "norm", "rest"):
        chosen = Q.Q8_0 if name == "matrix" else Q.F32
        w.add_tensor(name, gguf.quantize(tensors[name], chosen), raw_dtype=chosen)
    finish(w)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def check(path):
    r = gguf.GGUFReader(path)
    for key, field in r.fields.items():
        value = field.contents()
        print(key, [t.name for t in field.types], value if not isinstance(value, list) else [len(value), value[:3]])
    for t in r.tensors:
        x = t.data if t.tensor_type.name.lower() in PLAIN else gguf.dequantize(t.data, t.tensor_type)
        print(t.name, t.tensor_type.name, list(reversed([int(d) for d in t.shape])), f"{float(np.sum(x, dtype=np.float64)):.6g}")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    if len(sys.argv) == 3:
        check(sys.argv[2])
    else:
        types()
        numbers()
        split()
        for file in FOLDER.glob("*.*"):  # safetensors lets nobody else read
            file.chmod(0o644)
