# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""``neuronxcc.nki.language``: its names, from the modules that define them."""

from .elementwise import *  # noqa: F403
from .indexing import *  # noqa: F403
from .indexing import TYPES
from .memory_functions import *  # noqa: F403
from .products import *  # noqa: F403
from .reductions import *  # noqa: F403
from .tensors import Tensor  # noqa: F401

globals().update(TYPES)
