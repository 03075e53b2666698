"""Time the operators of pavlov.attention beside the loop, public references and their own matrix products.

Run ``python benchmarks/attention.py``; ``--help`` lists the options. Every peer is unmodified, is held to our outputs
and gradients before it is timed, and gets its inputs in its own layout. Repetitions are interleaved: all contenders
run once, then all again. The time is the process's CPU time, on one thread. Peers are named in requirements.txt; one
that is not installed is named and left out.
"""

import argparse
import importlib.util
import json
import platform
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pavlov.attention import delta_attention, linear_attention

RULES = {"linear": "qkv", "delta": "qkvb", "gated delta": "qkvbg"}
TARGETS = {  # operator, peer: ratios of peer to ours that must be reached, and that are aimed at
    ("linear", "fla naive chunk"): ((1.5, 1.4), (2, 2)),
    ("linear", "fast-transformers (C++)"): ((1.1, 1.2), (1.5, 1.8)),
    ("delta", "transformers torch chunk"): ((1.7, 2.7), (2.5, 4)),
    ("delta", "fla naive chunk"): ((1.5, 3.5), (2, 5)),
    ("delta", "loop"): ((10, 60), (20, 80)),
    ("gated delta", "transformers torch chunk"): ((1.4, 2.3), (2, 3.5)),
}
FLOOR = {"linear": (2.3, 1.6), "delta": (2.8, 1.7)}  # our forward pass over its own products, at most


@dataclass
class Time:
    """Seconds of one contender: the median and the middle half's width over it."""

    operator: str
    contender: str
    T: int
    d: int
    forward: float
    forward_spread: float
    both: float | None
    both_spread: float | None


def inputs(T, d, heads=4, seed=0):
    """Unit queries and keys, Gaussian values, rates in (0, 1), log-decays in (-0.1, 0)."""
    g = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, heads, T, d, generator=g) for _ in range(3))
    unit = torch.nn.functional.normalize
    b, g = (torch.rand(1, heads, T, generator=g) for _ in range(2))
    return {"q": unit(q, dim=-1), "k": unit(k, dim=-1), "v": v, "b": b, "g": -0.1 * g}


# Contenders: how each wants its inputs, and the call. All return outputs as (1, heads, T, d).


def ours(operator, form="chunkwise"):
    def call(q, k, v, b=None, g=None):
        if operator == "linear":
            return linear_attention(q, k, v, log_decay=g, form=form)[0]
        return delta_attention(q, k, v, b, log_decay=g, form=form)[0]

    return call, lambda name, x: x


def scan_products(kept, response, state):
    states = []
    for i in range(kept.shape[1]):
        states.append(state)
        state = kept[:, i].mT @ (response[:, i] @ state)
    return torch.stack(states, 1)


def floor(operator):
    """The matrix products of our forward pass and nothing else: no mask, no inverse, no sums."""

    def call(q, k, v, b=None, g=None):
        q, k, v = (x.flatten(0, 1).unflatten(1, (-1, 64 if operator == "linear" else 32)) for x in (q, k, v))
        scores = q @ k.mT
        if operator == "linear":
            return q @ (k.mT @ v), scores @ v
        overlaps = k @ k.mT
        start = k.new_zeros(k.shape[0], k.shape[-1], v.shape[-1])
        return q @ scan_products(k, overlaps @ k, start), scores @ (overlaps @ v)

    return call, lambda name, x: x


def softmax(operator):
    def call(q, k, v, b=None, g=None):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    return call, lambda name, x: x


def _time_first(name, x):
    return x.transpose(1, 2).contiguous()


def fla(operator):
    """The naive chunk functions of flash-linear-attention, from its files: the package itself imports Triton."""
    package = Path(importlib.util.find_spec("fla").submodule_search_locations[0])
    folder = {"linear": "linear_attn", "delta": "delta_rule", "gated delta": "gated_delta_rule"}[operator]
    spec = importlib.util.spec_from_file_location(f"naive_{folder}", package / "ops" / folder / "naive.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if operator == "linear":
        return lambda q, k, v: module.naive_chunk_linear_attn(q, k, v, scale=1.0).transpose(1, 2), _time_first
    if operator == "delta":  # it divides queries by √d
        return lambda q, k, v, b: module.delta_rule_chunkwise(q, k, v, b)[0], _scaled
    return lambda q, k, v, b, g: module.naive_chunk_gated_delta_rule(q, k, v, g, b, scale=1.0)[0].transpose(
        1, 2
    ), _time_first


def _scaled(name, x):
    return x * x.shape[-1] ** 0.5 if name == "q" else x


def transformers(operator):
    """It divides queries by √d; without decay it is given log-decays of zero."""
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

    def call(q, k, v, b, g=None):
        g = torch.zeros_like(b) if g is None else g
        return torch_chunk_gated_delta_rule(q, k, v, g, b)[0].transpose(1, 2)

    return call, lambda name, x: _time_first(name, _scaled(name, x))


def fast_transformers(operator):
    from fast_transformers.causal_product import causal_dot_product

    return lambda q, k, v: causal_dot_product(q, k, v), lambda name, x: x


CONTENDERS = {
    "linear": {"fla naive chunk": fla, "fast-transformers (C++)": fast_transformers},
    "delta": {"transformers torch chunk": transformers, "fla naive chunk": fla},
    "gated delta": {"transformers torch chunk": transformers, "fla naive chunk": fla},
}


def contenders(operator, missing):
    """Everything to time for an operator, by name; peers that cannot be imported are added to ``missing``."""
    found = {"pavlov": ours(operator), "loop": ours(operator, "recurrent")}
    for name, make in CONTENDERS[operator].items():
        try:
            found[name] = make(operator)
        except (ImportError, AttributeError) as error:
            missing[name] = f"{type(error).__name__}: {error}"
    if operator != "gated delta":
        found["own products"] = floor(operator)
    if operator == "linear":
        found["torch SDPA (softmax)"] = softmax(operator)
    return found


NOT_EQUAL = ("own products", "torch SDPA (softmax)")  # of another kind: for scale


def leaves(operator, given, prepare):
    return [prepare(name, given[name]).clone().requires_grad_() for name in RULES[operator]]


def verify(operator, found):
    """Outputs and gradients of every peer are ours, in float32."""
    given = inputs(256, 64)
    expected = None
    for name, (call, prepare) in found.items():
        if name in NOT_EQUAL:
            continue
        # The layout is part of the graph, so that all gradients are in ours.
        plain = [given[x].clone().requires_grad_() for x in RULES[operator]]
        output = call(*(prepare(x, y) for x, y in zip(RULES[operator], plain, strict=True)))
        got = [output.detach(), *torch.autograd.grad(output.sin().sum(), plain)]
        expected = expected or got
        for x, y in zip(got, expected, strict=True):
            torch.testing.assert_close(x, y, rtol=0, atol=1e-4 * float(y.abs().max()))


def seconds(work):
    start = time.process_time()
    work()
    return time.process_time() - start


def measure(operator, found, T, d, repetitions, *, loop_repetitions=3):
    given, forward, both = inputs(T, d), {}, {}
    weight = torch.randn(1, 4, T, d, generator=torch.Generator().manual_seed(1))
    arguments = {name: leaves(operator, given, prepare) for name, (_, prepare) in found.items()}

    def one(name):
        with torch.no_grad():
            return found[name][0](*arguments[name])

    def two(name):
        torch.autograd.grad(found[name][0](*arguments[name]), arguments[name], weight)

    for repetition in range(-1, repetitions):  # the first warms up
        for name in found:
            if name == "loop" and repetition >= loop_repetitions:
                continue
            a = seconds(lambda n=name: one(n))
            b = None if name == "own products" else seconds(lambda n=name: two(n))
            if repetition >= 0:
                forward.setdefault(name, []).append(a)
                both.setdefault(name, []).append(b)
    return [Time(operator, name, T, d, *summary(forward[name]), *summary(both[name])) for name in found]


def summary(times):
    if None in times:
        return None, None
    low, middle, high = statistics.quantiles(times, n=4) if len(times) > 1 else times * 3
    return middle, (high - low) / middle


def table(times):
    """The lines of the table, each contender with its ratio to ours, and what was to be reached."""
    yield f"{'operator':12} {'contender':26} {'forward':>16} {'fwd + bwd':>16}   {'ratios':>13}   must / aim"
    mine = {x.operator: x for x in times if x.contender == "pavlov"}
    for x in times:
        us = mine[x.operator]
        cells = f"{1e3 * x.forward:7.1f} ms ±{50 * x.forward_spread:3.0f} %"
        cells += f" {1e3 * x.both:7.1f} ms ±{50 * x.both_spread:3.0f} %" if x.both else " " * 17
        ratios = f"{x.forward / us.forward:5.2f} / " + (f"{x.both / us.both:5.2f}" if x.both else "    –")
        yield f"{x.operator:12} {x.contender:26} {cells}   {ratios}   {judged(x, us)}"


def judged(x, us):
    if x.contender == "own products":
        must, aim = FLOOR[x.operator]
        over = us.forward / x.forward
        return f"ours is {over:.2f} times its products; at most {must}, aim {aim}: {'yes' if over <= must else 'NO'}"
    if (x.operator, x.contender) not in TARGETS:
        return ""
    must, aim = TARGETS[x.operator, x.contender]
    reached = x.forward >= must[0] * us.forward and x.both >= must[1] * us.both
    return f"{must[0]} / {must[1]}, aim {aim[0]} / {aim[1]}: {'yes' if reached else 'NO'}"


def growth(repetitions, lengths, widths):
    """Our own cost as T grows at d = 64, and as d grows at T = 2048."""
    sizes = [(T, 64) for T in lengths] + [(2048, d) for d in widths if d != 64]
    return [
        x for T, d in sizes for o in RULES for x in measure(o, {"pavlov": ours(o)}, T, d, repetitions) if x is not None
    ]


def versions():
    names = ("torch", "flash-linear-attention", "transformers", "pytorch-fast-transformers")
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    return found | {"python": platform.python_version()}


def hardware():
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {"cpu": models[0] if models else platform.processor(), "cores": len(models), "threads": 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("-T", type=int, default=2048, help="steps of the comparison")
    parser.add_argument("-d", type=int, default=64, help="width of keys and values")
    parser.add_argument("--lengths", type=int, nargs="*", default=[256, 512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--widths", type=int, nargs="*", default=[32, 64, 128, 256])
    parser.add_argument("--json", type=Path, default=Path("benchmarks/attention.json"))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    missing, times = {}, []
    for operator in RULES:
        found = contenders(operator, missing)
        verify(operator, found)
        times += measure(operator, found, asked.T, asked.d, asked.repetitions)
    print(f"B = 1, H = 4, T = {asked.T}, d = {asked.d}, float32, {hardware()['cpu']}, one thread, CPU time")
    print(*table(times), sep="\n")
    for name, why in missing.items():
        print(f"left out: {name} ({why})")
    grown = growth(asked.repetitions, asked.lengths, asked.widths)
    print("\nmicroseconds a step: forward, forward + backward")
    for x in grown:
        print(f"{x.operator:12} T = {x.T:5}  d = {x.d:3}  {1e6 * x.forward / x.T:8.2f} {1e6 * x.both / x.T:8.2f}")
    result = {"hardware": hardware(), "versions": versions(), "missing": missing}
    result |= {"comparison": [asdict(x) for x in times], "growth": [asdict(x) for x in grown]}
    asked.json.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nwrote {asked.json}")


if __name__ == "__main__":
    main()
