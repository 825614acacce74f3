"""Windows of runner V2's requests, as device state: the tokens that a request's target found likely of late are drafted,
beside those of a list (vllm.py, SPECRT_WINDOW). They are the prompt's tokens and the external ones of MicroSpec's Eq. 3 for
every position that the target verified, as a set of W of which those leave that were seen the longest ago:
docs/methods/window.md, with kver=8, positions=tree, emitted=off. It was never run on a GPU.

All tensors keep their addresses, shapes follow from what the host knows, and no call waits for the device, so that
vLLM's graphs can contain a draft. A request takes over what the last one in its place left: this costs drafts, never tokens.
"""
from __future__ import annotations

from typing import Any

BEST = 8  # of each position that the target verifies: kver
PROMPT = 256  # tokens that a request reads in one pass, the last ones, at most


class Window:
    """A set of W tokens for each request that may run."""

    def __init__(self, n_requests: int, width: int, n_verified: int, listed: Any, n_rows: int) -> None:
        """n_verified: positions of a request in a pass of the target, at most. listed: int64 [n], the tokens of the list,
        which no window has. n_rows: tokens of the drafter, of which a target may have more."""
        import torch
        new = torch.zeros(1, dtype=torch.int64, device=listed.device).new_full
        places = n_requests + 1, width + 1  # the last request is of padding; the last place is written and not read
        self.width, self.n_rows, self.filler = width, n_rows, listed[:1].clone()
        self.ids, self.seen = new(places, -1), new(places, 0)  # -1: empty; the pass that a token was in last
        self.passes = new((1,), 0)
        self.wanted = new((n_rows + 1,), 1).bool()  # by token
        self.wanted[listed], self.wanted[-1:] = False, False
        self.position, self.place, self.back = (torch.arange(n, device=listed.device) for n in (n_verified, width, PROMPT))

    def tokens(self, requests: Any) -> Any:
        """int64 [n, W] of requests int [n]; -1 is padding. A token of the list is in empty places."""
        import torch
        ids = self.ids[requests.long(), :self.width]
        return torch.where(ids < 0, self.filler, ids)

    def read(self, logits: Any, batch: Any) -> None:
        """What the target says of a pass: logits [n, n_vocab] of the batch's positions, and what it read of prompts."""
        import torch
        ends = batch.cu_num_logits  # int [n_requests + 1]
        at = torch.minimum(ends[:-1, None] + self.position, ends[1:, None] - 1)
        new = logits.topk(BEST).indices[at.long()].flatten(1)
        n_read = min(int(batch.num_scheduled_tokens.max()), PROMPT)  # of the host
        if n_read > len(self.position):
            ends = batch.query_start_loc[:len(new) + 1]
            at = torch.maximum(ends[1:, None] - 1 - self.back[:n_read], ends[:-1, None])
            new = torch.cat([new, batch.input_ids[at.long()]], 1)
        self.add(new, batch.idx_mapping)

    def add(self, new: Any, requests: Any) -> None:
        """Tokens int [n, m] of requests int [n]. Those that a window has are seen again, then others take the places of those
        that were seen the longest ago."""
        import torch
        new, requests = new.long(), requests.long()
        wanted = self.wanted[new.clamp(max=self.n_rows)]
        ids, seen = self.ids[requests], self.seen[requests]
        self.passes += 1
        has = ids[:, :self.width, None] == new[:, None]                 # [n, W, m]
        seen[:, :self.width] = torch.where(has.any(2), self.passes, seen[:, :self.width])
        again = (new[:, :, None] == new[:, None]).tril(-1).any(2)
        missing = wanted & ~has.any(1) & ~again
        order = (seen[:, :self.width] * self.width + self.place).argsort(1)[:, :new.shape[1]]
        rank = (missing.cumsum(1) - 1).clamp(min=0)
        fits = missing & (rank < order.shape[1])
        place = torch.where(fits, order.gather(1, rank.clamp(max=order.shape[1] - 1)), self.width)
        ids.scatter_(1, place, new)
        seen.scatter_(1, place, self.passes.expand_as(new))
        self.ids[requests], self.seen[requests] = ids, seen


class Rows:
    """A head's rows by token: where vLLM has them, on the rank that has them; of quantised and packed heads a copy."""

    def __init__(self, head: Any, gather: Any) -> None:
        import torch
        shard = head.shard_indices
        self.weight = head.weight
        self.first, self.end = shard.org_vocab_start_index, shard.org_vocab_end_index
        self.is_shared = head.tp_size > 1
        if tuple(head.weight.shape[1:]) == (head.embedding_dim,) and head.weight.dtype == head.params_dtype:
            return
        self.first, self.end, self.is_shared = 0, head.org_vocab_size, False
        self.weight = gather(head, torch.arange(self.end, device=head.weight.device))

    def score(self, hidden: Any, tokens: Any) -> Any:
        """hidden [n, d] times the rows of tokens int64 [n, k]: [n, k]. Ranks add up what each has."""
        import torch
        mine = (tokens >= self.first) & (tokens < self.end)
        rows = self.weight[torch.where(mine, tokens - self.first, 0)]
        logits = torch.where(mine, torch.bmm(rows, hidden.unsqueeze(2)).squeeze(2), 0)
        if not self.is_shared:
            return logits
        from vllm.distributed import tensor_model_parallel_all_reduce
        return tensor_model_parallel_all_reduce(logits)


class Widened:
    """A listed head's quant_method: behind the columns of the list come those of the windows, while requests are known."""

    def __init__(self, inner: Any, columns: Any, rows: Rows) -> None:
        self.inner, self.columns, self.rows = inner, columns, rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def apply(self, layer: Any, hidden: Any, *bias: Any, **more: Any) -> Any:
        import torch
        logits, columns = self.inner.apply(layer, hidden, *bias, **more), self.columns
        if columns.table is columns.ids:
            return logits
        n = len(columns.ids)
        return torch.cat([logits[..., :n], self.rows.score(hidden, columns.of(len(hidden))[:, n:])], -1)


def follows(sample: Any) -> Any:
    """GPUModelRunner.sample of runner V2: what the target reads and says enters the windows."""
    def followed(self: Any, hidden_states: Any, input_batch: Any, *rest: Any) -> Any:
        window = getattr(getattr(getattr(self, "speculator", None), "_specrt_columns", None), "window", None)
        if window is None:
            return sample(self, hidden_states, input_batch, *rest)
        compute = self.model.compute_logits

        def keep(*args: Any, **more: Any) -> Any:
            logits = compute(*args, **more)
            window.read(logits, input_batch)
            return logits
        self.model.compute_logits = keep
        try:
            return sample(self, hidden_states, input_batch, *rest)
        finally:
            self.model.compute_logits = compute
    return followed
