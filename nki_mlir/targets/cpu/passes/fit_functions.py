# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fit-functions: compute functions of one bfloat16 by polynomials of four terms, where these have the same bits.

before:  y = round(gelu(widen(x)))          for x and y in bfloat16
after:   y = round(p(widen(x)))             p is one of 32 polynomials, chosen by the nearest multiple of a step

The pass compares code of the polynomials with the function for all arguments, so results keep their bits. A table of
the function provides denormal results, and results of arguments far from 0 if the function does not become constant
there. The host must round to bfloat16 in one instruction.
"""

from nki_mlir.targets.cpu import host_measurements
from nki_mlir.targets.cpu.fitted import fit_of, fitted_region, name_of
from nki_mlir.targets.cpu.function import NativeFunction
from nki_mlir.targets.cpu.function_lookups import FunctionLookups
from nki_mlir.targets.cpu.function_pass import FunctionPass
from nki_mlir.targets.cpu.schedule import WITH_32_REGISTERS
from nki_mlir.targets.cpu.tabulated import TabulatedFunction
from nki_mlir.targets.runtime import host
from nki_mlir.waist.overlap import ByteRegion


class FitFunctions(FunctionLookups, FunctionPass, name="fit-functions"):
    least: int = 131_072        # least elements of a nest: with fewer, polynomials cost more than they save
    gain: int = 120  # least time of the function on this host, in percent of the polynomials' time; 0: always fit

    def table(self, code: NativeFunction, function: TabulatedFunction) -> tuple[ByteRegion, str]:
        fit = fit_of(function.alone)
        assert fit is not None
        return fitted_region(code, function.alone, fit), name_of(function, fit)

    def is_worth_it(self, function: TabulatedFunction) -> bool:
        if host.lanes() != WITH_32_REGISTERS or not host.multiplies_pairs() or fit_of(function.alone) is None:
            return False
        return not self.gain or 100 * host_measurements.gain_of_fit(function) >= self.gain
