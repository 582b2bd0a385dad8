#!/usr/bin/env python3
"""Writes golden/chains.txt: 200 random chains of blocks and the least time to run each forward and backward within limits of bytes.

    python3 tests/oracle/chains_golden.py > tests/oracle/golden/chains.txt

The optimum is that of Beaumont, Eyraud-Dubois, Herrmann, Joly, Shilova, "Optimal checkpointing for heterogeneous chains" (2019),
theorem 1, with several ways to keep the values of a block; names are those of the paper. All sizes are whole numbers, so nothing is
rounded. Part s..t with m bytes beside the values that s reads:

    C(s, t, m) = min(C1, C2)
    C1 = min over s < r <= t of  sum uf[s..r-1] + C(r, t, m - a[r-1]) + C(s, r-1, m)      if m >= m_none(s, t)
    C2 = min over k of  extra[s][k] + C(s+1, t, m - abar[s][k])                           if m >= m_all(s, t, k)
    m_none(s, t) = max(d[t] + a[s] + of[s], max over s < j < t of d[t] + a[j-1] + a[j] + of[j])
    m_all(s, t, k) = max(d[t] + abar[s][k] + of[s], d[s] + abar[s][0] + ob[s][k])

Times are those beyond one forward and one backward pass of each block.

A line "chain N", then for each block "uf a of n  abar extra working  ..." with working = d + abar[0] + ob, then "limit BYTES TIME"."""
import functools
import random


def optimum(chain):
    n = len(chain)
    a = d = [block["a"] for block in chain]
    of = [block["of"] for block in chain]
    uf = [block["uf"] for block in chain]

    @functools.cache
    def none(s, t):
        return max([d[t] + a[s] + of[s]] + [d[t] + a[j - 1] + a[j] + of[j] for j in range(s + 1, t)])

    @functools.cache
    def least(s, t, m):
        best = float("inf")
        if m < 0:
            return best
        for option in chain[s]["options"]:
            if m < max(d[t] + option["abar"] + of[s], option["working"]):
                continue
            rest = 0 if s == t else least(s + 1, t, m - option["abar"])
            best = min(best, option["extra"] + rest)
        if s < t and m >= none(s, t):
            for r in range(s + 1, t + 1):
                best = min(best, sum(uf[s:r]) + least(r, t, m - a[r - 1]) + least(s, r - 1, m))
        return best

    return lambda m: least(0, n - 1, m)


def draw(rng):
    chain = []
    for _ in range(rng.randint(2, 13)):
        a, uf = rng.randint(1, 6), rng.randint(1, 20)
        full = a + rng.randint(0, 12)
        options = [{"abar": full, "extra": 0}]
        while options[-1]["abar"] > a and len(options) < 4 and rng.random() < 0.7:
            last = options[-1]
            options.append({"abar": rng.randint(a, last["abar"] - 1), "extra": rng.randint(last["extra"], uf)})
        for option in options:
            option["working"] = a + full + rng.randint(0, 5)
        chain.append({"a": a, "uf": uf, "of": rng.randint(0, 4), "options": options})
    return chain


def main():
    rng = random.Random(2019)
    for _ in range(200):
        chain = draw(rng)
        least = optimum(chain)
        print("chain", len(chain))
        for block in chain:
            options = " ".join(f"{o['abar']} {o['extra']} {o['working']}" for o in block["options"])
            print(block["uf"], block["a"], block["of"], len(block["options"]), options)
        all_bytes = sum(block["options"][0]["abar"] for block in chain) + max(o["working"] for b in chain for o in b["options"])
        limits = sorted({rng.randint(1, all_bytes) for _ in range(24)} | {all_bytes})
        for limit in limits:
            print("limit", limit, least(limit) if least(limit) != float("inf") else -1)


if __name__ == "__main__":
    main()
