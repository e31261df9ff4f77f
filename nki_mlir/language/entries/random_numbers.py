# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Random numbers."""

from nki_mlir.language.entries.entry import STATES, Group, InstructionEntry, Page

SEEDED = """
    seed: int32[1, 1]
    first: uint32[128, 64]
    y: uint32[128, 64]
    nisa.set_rng_seed(src_seeds=seed)
    nisa.rng(dst=first)
    nisa.set_rng_seed(src_seeds=seed)
    nisa.rng(dst=y)
    nisa.tensor_tensor(dst=y, data1=y, data2=first, op=nl.bitwise_xor)
    y == np.zeros((128, 64))
"""
RESTORED = """
    state: uint32[128, 6]
    first: uint32[128, 64]
    y: uint32[128, 64]
    nisa.rand_get_state(dst=state)
    nisa.rng(dst=first, engine=nisa.engine.gpsimd)
    nisa.rand_set_state(src_seeds=state)
    nisa.rng(dst=y, engine=nisa.engine.gpsimd)
    nisa.tensor_tensor(dst=y, data1=y, data2=first, op=nl.bitwise_xor)
    y == np.zeros((128, 64))
"""

GROUP = Group("random", "Random numbers", {
    "rng": InstructionEntry(
        releases="""
        2.27   (dst, engine=engine.unknown, name=None)
        2.31   (dst, engine=engine.vector, name=None)
        """,
        page=Page(("rng",), {
            "dst": "[P, F] of integers in SBUF or PSUM"},
            "Random bits in every element.",
            "A tile of floats is an error."),
        example=SEEDED),
    "rand2": InstructionEntry(
        releases="""
        needs  4: '{}': scale what nisa.rng or nl.rand gives
        2.27   (dst, min, max, name=None)
        """,
        page=Page(("rand", "tensor_scalar"), {
            "min": "the lower bound; a tile is [P, 1]",
            "max": "the upper bound, above min; a tile is [P, 1]"},
            "Random numbers, uniform between min and max, converted to dst's dtype.",
            "A max that is not above min, and a machine before NeuronCore-v4, are errors."),
        example="""
        x: float32[128, 64]
        y: float32[128, 64]
        nisa.rand2(dst=x, min=2.0, max=3.0)
        y = nl.floor(x)
        y == np.full((128, 64), 2.0)
        """),
    "set_rng_seed": InstructionEntry(
        releases="""
        2.27   (src_seeds, name=None)
        """,
        page=Page(("random_seed",), {
            "src_seeds": "[1, 1] of 32 bits in SBUF or PSUM"},
            "None. The Vector engine's random numbers that follow are the same in each run.",
            "A tile of several elements, or of other than 32 bits, is an error."),
        example=SEEDED),
    "rand_get_state": InstructionEntry(
        releases="""
        needs  3 engine=unknown: '{}' on the gpsimd engine: seed with nisa.set_rng_seed
        needs  3 engine=gpsimd: '{}' on the gpsimd engine: seed with nisa.set_rng_seed
        needs  4 engine=vector: '{}' on the vector engine: seed with nisa.set_rng_seed
        2.27   (dst, engine=engine.unknown, name=None)
        2.31   (dst, engine=engine.gpsimd, name=None)
        """,
        page=Page(("tensor_copy",), {
            "dst": "[P, 6] of uint32 in SBUF; [P, 24] for the Vector engine"},
            "The state of the engine's generator, for rand_set_state.",
            STATES),
        example=RESTORED),
    "rand_set_state": InstructionEntry(
        releases="""
        needs  3 engine=unknown: '{}' on the gpsimd engine: seed with nisa.set_rng_seed
        needs  3 engine=gpsimd: '{}' on the gpsimd engine: seed with nisa.set_rng_seed
        needs  4 engine=vector: '{}' on the vector engine: seed with nisa.set_rng_seed
        2.27   (src_seeds, engine=engine.unknown, name=None)
        2.31   (src_seeds, engine=engine.gpsimd, name=None)
        """,
        page=Page(("tensor_copy",), {
            "src_seeds": "[P, 6] of uint32 in SBUF; [P, 24] for the Vector engine"},
            "None. The engine's random numbers continue as they did after rand_get_state.",
            STATES),
        example=RESTORED),
})
