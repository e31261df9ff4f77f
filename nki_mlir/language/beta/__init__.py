# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The name tables of the beta generation (``neuronxcc.nki``)."""
