# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The texts that ``help()`` shows of public functions beyond their first sentence, read on request."""
