"""torch's _grouped_mm as a peer of gemm_bench: reads requests on stdin, answers on stdout.

    hello                                   -> ready
    setup EXPERTS N K bf16|fp16 ROWS...     -> ok         rows of each expert; operands are random
    run COUNT                               -> microseconds of COUNT runs, each with a cold L2

torch needs permuted rows and offers no SwiGLU: it computes the plain product.
"""

import sys

try:
    import torch
except ImportError:
    sys.exit("bench/peers/grouped_mm.py: torch is not installed")


def setup(words):
    experts, n, k = (int(w) for w in words[:3])
    dtype = torch.bfloat16 if words[3] == "bf16" else torch.float16
    rows = torch.tensor([int(w) for w in words[4:]], dtype=torch.int64)
    generator = torch.Generator(device="cuda").manual_seed(1)
    x = torch.randn(int(rows.sum()), k, device="cuda", generator=generator).to(dtype)
    weights = torch.empty(experts, n, k, device="cuda", dtype=dtype)
    for expert in weights:
        expert.copy_(torch.randn(n, k, device="cuda", generator=generator))
    offsets = torch.cumsum(rows, 0).to(device="cuda", dtype=torch.int32)
    operands = (x, weights.transpose(-2, -1), offsets)
    torch._grouped_mm(operands[0], operands[1], offs=operands[2])
    torch.cuda.synchronize()
    return operands


def run(operands, flush, count):
    begins = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
    ends = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
    for begin, end in zip(begins, ends):
        flush.zero_()
        begin.record()
        torch._grouped_mm(operands[0], operands[1], offs=operands[2])
        end.record()
    torch.cuda.synchronize()
    return [1000 * begin.elapsed_time(end) for begin, end in zip(begins, ends)]


def main():
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    operands = None
    for line in sys.stdin:
        words = line.split()
        if words[0] == "hello":
            print("ready", flush=True)
        elif words[0] == "setup":
            operands = None
            operands = setup(words[1:])
            print("ok", flush=True)
        elif words[0] == "run":
            print(*(f"{us:.2f}" for us in run(operands, flush, int(words[1]))), flush=True)


if __name__ == "__main__":
    main()
