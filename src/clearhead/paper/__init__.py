"""The paper's equations, tables and figures, computed with this package; `clearhead paper` prints and draws them."""
