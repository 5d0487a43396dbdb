"""Import and export of models of other libraries, through key tables that work in both directions.

In this package, "our" means clearhead's, and "their" means the other library's.
"""

from clearhead.interop.huggingface.state import export_state, exportable_as, import_parts, import_state
from clearhead.interop.torch_nn import import_torch_state

__all__ = ["export_state", "exportable_as", "import_parts", "import_state", "import_torch_state"]
