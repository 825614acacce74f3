"""What needs PyTorch."""
from __future__ import annotations

from typing import Any

import torch

from ._lib import SpecrtError, ints


class TrimmedHead(torch.nn.Module):
    """An LM head that scores the listed rows alone; the others' logits are -inf.

        assistant.lm_head = TrimmedHead(assistant.lm_head, bundle.ids(8192))
        target.generate(..., assistant_model=assistant)

    For transformers' assistants and any drafter in PyTorch: whoever verifies with the whole vocabulary emits the
    same tokens. Rows are copied once; the embedding that a tied head shares stays whole.

    linear: a module with `weight` [n_vocab, d] and perhaps `bias` [n_vocab]. ids: target ids [n].
    """

    def __init__(self, linear: torch.nn.Module, ids: Any) -> None:
        super().__init__()
        weight, bias = linear.weight, getattr(linear, "bias", None)
        index = torch.from_numpy(ints(ids, "ids").astype("int64")).to(weight.device)
        n = weight.shape[0]
        if len(index) == 0 or int(index.min()) < 0 or int(index.max()) >= n:
            raise SpecrtError(f"ids: expected some in [0, {n}), the rows of the head")
        if len(torch.unique(index)) != len(index):
            raise SpecrtError("ids: expected each once")
        self.in_features, self.out_features = weight.shape[1], n
        self.register_buffer("ids", index)
        self.weight = torch.nn.Parameter(weight.detach()[index].clone(), requires_grad=False)
        self.bias = None
        if bias is not None:
            self.bias = torch.nn.Parameter(bias.detach()[index].clone(), requires_grad=False)

    def scores(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits of the listed tokens, [..., n] in the order of `ids`."""
        return torch.nn.functional.linear(hidden, self.weight, self.bias)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Logits [..., n_vocab] of hidden [..., d]."""
        scores = self.scores(hidden)
        out = scores.new_full((*scores.shape[:-1], self.out_features), float("-inf"))
        out[..., self.ids] = scores
        return out

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, rows={len(self.ids)} of {self.out_features}"
