# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Registers, cores and the machine."""

from nki_mlir.language.entries.entry import Group, InstructionEntry, Page

REGISTERS = """
    n: int32[1, 1]
    y: int32[1, 1]
    first, second = nisa.register_alloc(5), nisa.register_alloc()
    nisa.register_load(first, n)
    nisa.register_move(second, first)
    nisa.register_store(y, second)
    y == n
"""

MACHINE = "The number of the kernel's target, which capture knows, so an if may test it; outside of a kernel, of the " \
          "environment's target."

GROUP = Group("registers", "Registers, cores and the machine", {
    "register_alloc": InstructionEntry(
        releases="""
        2.27   (x=None)
        """,
        page=Page((), {
            "x": "the register's value: an integer, a register or a tensor of one element; None leaves it unset"},
            "A register of 32 bits, a run-time value for offsets, bounds and conditions.",
            "A tensor of several elements is an error."),
        example=REGISTERS),
    "register_move": InstructionEntry(
        releases="""
        kinds  ANY dst src imm
        2.27   (dst, imm)
        2.29   (dst, src)
        """,
        page=Page(("tensor_copy",), {
            "dst": "a register",
            "src": "an integer or a register"},
            "None. dst gets src's value.",
            "A dst that is not a register, or is the variable or the bound of a loop around it, is an error."),
        example=REGISTERS),
    "register_load": InstructionEntry(
        releases="""
        kinds  ANY dst src
        2.27   (dst, src)
        """,
        page=Page(("dma_copy", "tensor_copy"), {
            "dst": "a register",
            "src": "one element of up to 32 bits"},
            "None. dst gets the element; a float is converted, with a warning.",
            "A tensor of several elements is an error."),
        example=REGISTERS),
    "register_store": InstructionEntry(
        releases="""
        kinds  ANY dst src
        2.27   (dst, src)
        """,
        page=Page(("dma_copy", "tensor_copy"), {
            "dst": "one element of up to 32 bits",
            "src": "a register"},
            "None. The element gets the register's value.",
            "A src that is not a register is an error."),
        example=REGISTERS),
    "core_barrier": InstructionEntry(
        releases="""
        2.27   (data, cores, engine=engine.unknown, name=None)
        2.29   (data, cores, engine=engine.gpsimd, name=None)
        """,
        page=Page(("core_barrier",), {
            "data": "a tensor in nl.shared_hbm; with any other the barrier orders all memory that the cores share",
            "cores": "the numbers of the cores that wait for each other: (0, 1); one alone does not wait"},
            "None. After the barrier each core reads what any of them wrote to data before it.",
            "A core that the launch does not have is an error; cores that wait for each other without end are an "
            "error when the program runs."),
        example="""
        grid: 2
        x, y: float32[128, 64] in hbm
        shared = nl.ndarray((128, 64), dtype=nl.float32, buffer=nl.shared_hbm, name="shared")
        mine, other = 64 * nl.program_id(0), 64 * (1 - nl.program_id(0))
        nl.store(shared[mine:mine + 64, :], nl.load(x[mine:mine + 64, :]))
        nisa.core_barrier(data=shared, cores=(0, 1))
        nl.store(y[mine:mine + 64, :], nl.load(shared[other:other + 64, :]))
        y == np.roll(x, 64, axis=0)
        """),
    "sendrecv": InstructionEntry(
        releases="""
        2.27   (src, dst, send_to_rank, recv_from_rank, pipe_id, name=None)
        2.29   (src, dst, send_to_rank, recv_from_rank, pipe_id, dma_engine=dma_engine.dma, name=None)
        """,
        page=Page(("sendrecv",), {
            "src": "[P, F...] in SBUF",
            "dst": "[P, F...] in SBUF, of src's shape and dtype",
            "send_to_rank": "the core that receives src: 0 or 1",
            "recv_from_rank": "the core that sends dst: 0 or 1",
            "pipe_id": "exchanges of one pipe match in their order",
            "dma_engine": "gpsimd_dma moves at most 256 elements a partition"},
            "None. dst gets what the other core sent.",
            "Tiles of different shapes or dtypes, tiles outside of SBUF, and cores that the launch does not have are "
            "errors."),
        example="""
        grid: 2
        x, y: float32[128, 64] in hbm
        i = nl.program_id(0)
        mine = nl.load(x[64 * i:64 * i + 64, :])
        theirs = nl.ndarray((64, 64), dtype=nl.float32)
        nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - i, recv_from_rank=1 - i, pipe_id=0)
        nl.store(y[64 * i:64 * i + 64, :], theirs)
        y == np.roll(x, 64, axis=0)
        """),
    "get_nc_version": InstructionEntry(
        releases="""
        2.21   ()
        """,
        page=Page((), {},
            MACHINE.replace("number", "generation"),
            "None."),
        example="""
        x, y: float32[128, 64]
        y = nl.exp(x) if nisa.get_nc_version() >= nisa.nc_version.gen3 else nl.copy(x)
        y == np.exp(x)
        """),
    "get_nc_sub_version": InstructionEntry(
        releases="""
        2.31   ()
        """,
        page=Page((), {},
            MACHINE.replace("number", "revision"),
            "None."),
        example="""
        x, y: float32[128, 64]
        y = nl.exp(x) if nisa.get_nc_sub_version() == 0 else nl.copy(x)
        y == np.exp(x)
        """),
})
