# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The scalar library: dtypes, conversions, ALU operations and activation functions, each defined once."""
