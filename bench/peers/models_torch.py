"""Models in PyTorch that more than one program measures. Import after start_torch."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, context, width = x.shape
        heads = (part.view(batch, context, self.heads, width // self.heads).transpose(1, 2)
                 for part in self.qkv(self.ln1(x)).split(width, 2))
        attended = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.out(attended)
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT(nn.Module):
    """The mean cross-entropy of a GPT with tied embeddings. checkpointed: blocks under torch.utils.checkpoint."""

    def __init__(self, layers, width, heads, context, vocabulary, checkpointed=False):
        super().__init__()
        self.vocabulary, self.checkpointed = vocabulary, checkpointed
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        for table in (self.tokens, self.positions):  # as Flax and Tow: logits near 1, so that no probability is subnormal
            nn.init.normal_(table.weight, std=width**-0.5)
        self.blocks, self.norm = nn.ModuleList(Block(heads, width) for _ in range(layers)), nn.LayerNorm(width)

    def forward(self, tokens, labels):
        x = self.tokens(tokens) + self.positions.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        logits = self.norm(x) @ self.tokens.weight.T
        return F.cross_entropy(logits.float().view(-1, self.vocabulary), labels.view(-1))


def feed_forward(x, w1, w2):
    return (F.gelu(x @ w1, approximate="tanh") @ w2).square().sum()


def tanh_layers(x, w, b):
    for kernel, bias in zip(w, b):
        x = torch.tanh(torch.addmm(bias, x, kernel))
    return x
