"""What the package `tokenizers` makes of truncation and padding: golden/tokenizers/cut.txt, a line for each encoding:

    name max_length strategy direction length multiple pad_direction special first second: id:type:begin:end:special ...

with "-" for a second text that is not there, and "error" for the tokens where the package refuses. In texts "_" is a space. By hand:
python tests/oracle/tokenizers_cut.py
"""
import itertools
import pathlib

from tokenizers import Tokenizer

FOLDER = pathlib.Path(__file__).parent / "golden" / "tokenizers"
TEXTS = [("a_layer_is_a_struct,_isn't_it?", None), ("one", "two_three_four_five_six_seven"), ("a_b_c_d_e_f_g_h", "x"),
         ("_some__words_here", "and_some_more_here"), ("", "only_the_second")]
STRATEGIES = ["longest_first", "only_first", "only_second"]


def line(t, name, most, strategy, side, length, multiple, pad_side, special, first, second):
    t.no_truncation()
    t.no_padding()
    if most:
        t.enable_truncation(most, strategy=strategy, direction=side)
    if length or multiple:
        t.enable_padding(direction=pad_side, pad_id=3, pad_type_id=1, length=length or None, pad_to_multiple_of=multiple or None)
    head = f"{name} {most} {STRATEGIES.index(strategy)} {side} {length} {multiple} {pad_side} {int(special)} {first or '.'} {second or '-'}:"
    try:
        e = t.encode(first.replace("_", " "), second and second.replace("_", " "), add_special_tokens=special)
    except Exception:  # the package raises nothing more precise
        return head + " error"
    tokens = zip(e.ids, e.type_ids, e.offsets, e.special_tokens_mask)
    return head + "".join(f" {i}:{k}:{a}:{b}:{s}" for i, k, (a, b), s in tokens)


def main():
    lines = []
    for name in ("bert_uncased", "roberta"):
        t = Tokenizer.from_file(str(FOLDER / f"{name}.json"))
        for most, strategy, side, special, (first, second) in itertools.product((4, 7, 10), STRATEGIES, ("left", "right"), (True, False), TEXTS):
            lines.append(line(t, name, most, strategy, side, 0, 0, "right", special, first, second))
        for length, multiple, side, (first, second) in itertools.product((0, 12), (0, 8), ("left", "right"), TEXTS):
            lines.append(line(t, name, 0, STRATEGIES[0], "right", length, multiple, side, True, first, second))
        lines += [line(t, name, 6, STRATEGIES[0], "left", 9, 4, "left", True, first, second) for first, second in TEXTS]
    (FOLDER / "cut.txt").write_text("\n".join(lines) + "\n")


main()
