"""The lines of the model that compute the formulas of the paper."""

from __future__ import annotations

from collections.abc import Mapping

from clearhead.inspection.line_recording import Code

EMBEDDED = Code("model/embeddings.py", "return functional.embedding(ids, self.weight) * self.scale", "mul")
POSITIONS = Code("model/positions.py", "return table[start:end]", "__getitem__")
PLACED = Code("model/embeddings.py", "x = x + self.positions(start, x.size(1))", "add")
QUERIES = Code("model/attention.py", "q = self._split_heads(self.q_proj(x))", "linear")
KEYS = Code("model/attention.py", "keys = self._split_heads(self.k_proj(memory))", "linear")
VALUES = Code("model/attention.py", "return keys, self._split_heads(self.v_proj(memory))", "linear")
SCORES = Code("model/attention.py", "scores = (q / math.sqrt(q.size(-1))) @ k.transpose(-2, -1)", "matmul")
MASKED = Code("model/attention.py", 'scores = scores.masked_fill(~mask, float("-inf"))', "masked_fill")
SOFTMAX = Code("model/attention.py", "weights = scores.softmax(dim=-1)", "softmax")
HEADS = Code("model/attention.py", "return drop(weights, dropout) @ v, weights", "matmul")
SIDE_BY_SIDE = Code("model/attention.py", "joined = heads.transpose(1, 2).flatten(2)", "flatten")
JOINED = Code("model/attention.py", "return self.out_proj(joined)", "linear")
ADDED = Code("model/residual.py", "return self.norm(x + self.dropout(sublayer(x)))", "add")
NORMED = ADDED._replace(function="layer_norm")
HIDDEN = Code("model/feed_forward.py", "hidden = self.dropout.after(self.activation, hidden)", "relu")
WIDENED = Code("model/feed_forward.py", "hidden = self.up_proj(x)", "linear")
NARROWED = Code("model/feed_forward.py", "return self.down_proj(hidden)", "linear")
LOGITS = Code("model/embeddings.py", "return functional.linear(x, self.weight, self.bias)", "linear")

FORMULAS: Mapping[Code, str] = {
    EMBEDDED: "embedding: sqrt(d_model) E[id] (section 3.4)",
    POSITIONS: "positional encoding PE (section 3.5)",
    PLACED: "embedding + PE",
    QUERIES: "queries: Q_i = x W_i^Q, head by head (section 3.2.2)",
    KEYS: "keys: K_i = x W_i^K",
    VALUES: "values: V_i = x W_i^V",
    SCORES: "scores: Q_i K_i^T / sqrt(d_k) (equation 1)",
    MASKED: "-inf where a query must not see a key (section 3.2.3)",
    SOFTMAX: "weights: softmax of the scores (equation 1)",
    HEADS: "weighted values: head_i (equation 1)",
    SIDE_BY_SIDE: "Concat(head_1, ..., head_h): the heads side by side",
    JOINED: "Concat(head_1, ..., head_h) W^O (section 3.2.2)",
    ADDED: "x + Sublayer(x) (section 3.1)",
    NORMED: "LayerNorm(x + Sublayer(x)) (section 3.1)",
    WIDENED: "x W_1 + b_1 (equation 2)",
    HIDDEN: "max(0, x W_1 + b_1) (equation 2)",
    NARROWED: "FFN(x) = max(0, x W_1 + b_1) W_2 + b_2 (equation 2)",
    LOGITS: "logits, a column for each token (section 3.4)",
}
"""What a line computes in the paper's model; the lines of other models' options are not listed."""
