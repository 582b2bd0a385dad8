"""Writes golden/flax_encoder_decoder.txt: TOW_ENCODER_DECODER in Flax, in the form of flax_catalogue.py.

The blocks are those of flax_attention.py. The input is the source; target and masks are constants. Run: python tests/oracle/flax_encoder_decoder.py
"""

from functools import partial
from typing import Any

import flax.linen as nn

from flax_attention import Block, Plain, memory
from flax_catalogue import File, mask_of, write_flax

LayerNorm = partial(nn.LayerNorm, use_fast_variance=False)


class Stack(nn.Module):
    make: Any
    length: int

    @nn.compact
    def __call__(self, x, *rest):
        for i in range(self.length):
            x = self.make(name=str(i))(x, *rest)
        return x


class EncoderDecoder(nn.Module):
    encoder: Any
    decoder: Any
    lengths: tuple
    norms: bool = True

    @nn.compact
    def __call__(self, source, target, source_mask=None, target_mask=None):
        source_mask = None if source_mask is None else source_mask[:, None, None]
        target_mask = None if target_mask is None else target_mask[:, None, None]
        memory = Stack(self.encoder, self.lengths[0], name="encoder")(source, None, source_mask)
        if self.norms:
            memory = LayerNorm(name="encoder_norm")(memory)
        y = Stack(self.decoder, self.lengths[1], name="decoder")(target, memory, target_mask, source_mask)
        return LayerNorm(name="decoder_norm")(y) if self.norms else y


def model(*masks, target, **options):
    class Model(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            return EncoderDecoder(**options, name="layer")(x, target.astype(x.dtype), *masks)

    return Model()


RELU = partial(Plain, activation=nn.relu)
CASES = {
    "plain": (
        model(target=memory(2, 4, 8), encoder=partial(Block, 2, 6), decoder=partial(Block, 2, 6, {"causal": True}, cross={}), lengths=(1, 2)),
        (2, 5, 8),
    ),
    "padded": (
        model(mask_of((2, 5)), mask_of((2, 4)), target=memory(2, 4, 6), encoder=partial(Block, 2, 6), decoder=partial(Block, 2, 6, {"causal": True}, cross={}), lengths=(2, 1)),
        (2, 5, 8),
    ),
    "post_norm": (
        model(mask_of((2, 5)), target=memory(2, 4, 8), norms=False, encoder=partial(Block, 2, 6, post=True, mlp=RELU), decoder=partial(Block, 2, 6, {"causal": True}, cross={}, post=True, mlp=RELU), lengths=(1, 2)),
        (2, 5, 8),
    ),
}


def main():
    file = File("flax_encoder_decoder.txt")
    for dtype in ("f32", "f64"):
        for name, (m, shape) in CASES.items():
            if dtype == "f32" or name == "post_norm":
                write_flax(file, name, m, shape, dtype)


if __name__ == "__main__":
    main()
