"""The paper's equations, tables and figures, computed by our code; `clearhead paper` prints and draws them."""
